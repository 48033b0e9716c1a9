"""Requests over HTTP: deadlines, limits, and connections that are used again."""

from __future__ import annotations

import http.client
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.http_client import FAILURES, AnswerTooLargeError, HttpClient

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each request with the next of `answers`, or the last; None closes the connection without one."""

    def __init__(self, *answers: bytes | None, pause_s: float = 0.0) -> None:
        self.answers = list(answers) or [OK]
        self.requests: list[bytes] = []
        self.connections = 0
        self._pause_s = pause_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while data := connection.recv(65536):
                self.requests.append(data)
                answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                if answer is None:
                    return
                for at in range(0, len(answer), 1 if self._pause_s else len(answer)):
                    connection.sendall(answer[at : at + 1] if self._pause_s else answer)
                    time.sleep(self._pause_s)
        except OSError:
            return
        finally:
            connection.close()

    def hang_up(self) -> None:
        """Close all connections, as a server does that has waited long enough."""
        for connection in self._open:
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self) -> None:
        """Stop listening."""
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for connection in self._open:
            connection.close()


@contextmanager
def serving(*answers: bytes | None, pause_s: float = 0.0) -> Iterator[Server]:
    server = Server(*answers, pause_s=pause_s)
    try:
        yield server
    finally:
        server.close()


def client(timeout_s: float = 5.0, most_bytes: int = 100) -> HttpClient:
    return HttpClient(timeout_s, most_bytes)


def test_a_get_uses_a_connection_again() -> None:
    with serving() as server:
        asking = client()
        assert [asking.send("GET", f"{server.url}/{path}?a=1", {"X": "1"}) for path in "ab"] == [(200, b"ok")] * 2
        assert server.connections == 1
        assert server.requests[1].startswith(b"GET /b?a=1 HTTP/1.1\r\n")


def test_a_post_may_not_arrive_twice_so_it_has_its_own() -> None:
    with serving() as server:
        asking = client()
        asking.send("POST", server.url, {}, b"one")
        asking.send("POST", server.url, {}, b"two")
        assert server.connections == 2


def test_a_connection_that_the_server_has_closed_is_replaced() -> None:
    with serving() as server:
        asking = client()
        asking.send("GET", server.url, {})
        server.hang_up()
        assert asking.send("GET", server.url, {}) == (200, b"ok")
        assert server.connections == 2


def test_a_new_connection_that_is_closed_is_a_failure() -> None:
    with serving(None) as server, pytest.raises(FAILURES):
        client().send("GET", server.url, {})


def test_a_forked_process_has_its_own_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving() as server:
        asking = client()
        asking.send("GET", server.url, {})
        monkeypatch.setattr(os, "getpid", lambda: -1)
        asking.send("GET", server.url, {})
        assert server.connections == 2


def test_an_answer_that_trickles_has_a_deadline() -> None:
    with serving(OK, pause_s=0.1) as server:
        began = time.monotonic()
        with pytest.raises(TimeoutError, match=r"no whole answer within 0\.5 s"):
            client(timeout_s=0.5).send("GET", server.url, {})
        assert time.monotonic() - began < 3


def test_a_long_answer_is_refused() -> None:
    with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n" + b"x" * 101) as server:
        with pytest.raises(AnswerTooLargeError, match="more than 100 bytes"):
            client().send("GET", server.url, {})
        assert client(most_bytes=101).send("GET", server.url, {}).content == b"x" * 101


def test_an_answer_that_is_cut_off_is_a_failure() -> None:
    with serving(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok", None) as server:
        asking = client(timeout_s=0.5)
        threading.Timer(0.1, server.hang_up).start()
        with pytest.raises(http.client.IncompleteRead):
            asking.send("GET", server.url, {})


def test_a_redirect_is_an_answer() -> None:
    with serving(b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere\r\nContent-Length: 0\r\n\r\n") as server:
        assert client().send("GET", server.url, {}).status == 302


def test_nobody_listens() -> None:
    with serving() as server:
        gone = server.url
    with pytest.raises(ConnectionRefusedError):
        client().send("GET", gone, {})
