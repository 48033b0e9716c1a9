"""Asks a store for single keys at a steady rate, and prints how long the answers took: `python -m operable.asking`.

A process of its own. The schedule does not wait for answers: one that comes late counts from when its question was due.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from dataclasses import dataclass, field

RIGHT = (b"HTTP/1.1 200", b"HTTP/1.1 404")
"""A key that no record has brought yet has no value."""


@dataclass
class Tally:
    """What was answered."""

    seconds: list[float] = field(default_factory=list)
    failures: int = 0


async def ask(port: int, paths: list[bytes], due: list[float], tally: Tally) -> None:
    """One connection, one question after the other, each at its time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for path, at in zip(paths, due, strict=True):
        wait = at - time.perf_counter()
        if wait > 0:
            await asyncio.sleep(wait)
        writer.write(b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % path)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
        tally.seconds.append(time.perf_counter() - at)
        tally.failures += not head.startswith(RIGHT)
    writer.close()


async def ask_all(options: argparse.Namespace) -> Tally:
    """All connections, their questions evenly interleaved."""
    tally, chance = Tally(), random.Random(options.seed)
    count = int(options.rate * options.seconds)
    begin = time.perf_counter() + 0.1
    paths = [f"{options.path}k{int(chance.random() * options.keys)}".encode() for _ in range(count)]
    due = [begin + number / options.rate for number in range(count)]
    parts = range(options.connections)
    step = options.connections
    await asyncio.gather(*(ask(options.port, paths[part::step], due[part::step], tally) for part in parts))
    return tally


def main() -> int:
    """Ask, and print a line of JSON: how many, how many failed, milliseconds at some percentiles."""
    parser = argparse.ArgumentParser(prog="python -m operable.asking")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--path", default="/stores/totals/get?key=")
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    tally = asyncio.run(ask_all(parser.parse_args()))
    milliseconds = sorted(1000 * seconds for seconds in tally.seconds)
    json.dump({"answers": len(milliseconds), "failures": tally.failures, "milliseconds": milliseconds}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
