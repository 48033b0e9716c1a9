"""Requests single keys of a store at a steady rate, and prints the latencies: `python -m verification.operations.query_load`.

A separate process that uses little of the machine, which it shares with the server. The schedule does not wait for
responses: the latency of a late one counts from when its request was due.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import socket
import sys
import time

RIGHT = (b"HTTP/1.1 200", b"HTTP/1.1 404")
"""A key without any record so far has no value."""


class QueryLoad:
    """Some connections, each with at most one pending request."""

    def __init__(self, port: int, connections: int) -> None:
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._due: dict[int, float] = {}
        self._received: dict[int, bytes] = {}
        for _ in range(connections):
            connection = socket.create_connection(("127.0.0.1", port))
            self._sockets[connection.fileno()] = connection
            self._poll.register(connection.fileno(), select.EPOLLIN)
        self._idle = list(self._sockets)
        self.seconds: list[float] = []
        self.failures = 0

    def run(self, questions: list[bytes], rate: float) -> None:
        """Send all requests, at this rate per second."""
        begin = time.perf_counter()
        asked = 0
        while len(self.seconds) < len(questions):
            now = time.perf_counter()
            while asked < len(questions) and self._idle and begin + asked / rate <= now:
                number = self._idle.pop()
                self._due[number] = begin + asked / rate
                self._sockets[number].sendall(questions[asked])
                asked += 1
            self._poll_until(begin + asked / rate - now)

    def _poll_until(self, wait_s: float) -> None:
        for number, _ in self._poll.poll(max(0.0, wait_s) if self._idle else 1.0):
            answer = self._received[number] = self._received.get(number, b"") + self._sockets[number].recv(65_536)
            if not _is_whole(answer):
                continue
            del self._received[number]
            self.seconds.append(time.perf_counter() - self._due[number])
            self.failures += not answer.startswith(RIGHT)
            self._idle.append(number)


def _is_whole(answer: bytes) -> bool:
    """Whether head and body are complete: they may arrive in two pieces."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return len(body) == int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or -1)


def main() -> int:
    """Send the requests, and print a line of JSON: the number of failures, and the milliseconds of each request."""
    parser = argparse.ArgumentParser(prog="python -m verification.operations.query_load")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/stores/totals/get?key=")
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    request = "GET {}k{} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    keys = [int(chance.random() * options.keys) for _ in range(int(options.rate * options.seconds))]
    load = QueryLoad(options.port, options.connections)
    load.run([request.format(options.path, key).encode() for key in keys], options.rate)
    milliseconds = [round(1000 * seconds, 3) for seconds in load.seconds]
    json.dump({"failures": load.failures, "milliseconds": milliseconds}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
