"""Counts and times the work of each node of a lane; only in sampled epochs, as it costs time for every record."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Any

from penstock.records import Headers, Process


class Samples:
    """Records and seconds by node; the seconds exclude those of the nodes below."""

    __slots__ = ("_below", "_tallies")

    def __init__(self) -> None:
        self._tallies: dict[str, list[Any]] = {}
        self._below = 0.0  # seconds of the nodes that the current one has called

    def watched(self, name: str, process: Process) -> Process:
        """Return the function with its calls counted and timed."""
        tally = self._tallies.setdefault(name, [0, 0.0])

        def watched(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            above, self._below = self._below, 0.0
            began = perf_counter()
            try:
                process(key, value, timestamp, headers)
            finally:
                spent = perf_counter() - began
                tally[0] += 1
                tally[1] += spent - self._below
                self._below = above + spent

        return watched

    def add(self, name: str, records: int, seconds: float) -> None:
        """Count and time the work of a node on many records at once."""
        tally = self._tallies.setdefault(name, [0, 0.0])
        tally[0] += records
        tally[1] += seconds

    def by_node(self) -> dict[str, tuple[int, float]]:
        """Return records and seconds by node."""
        return {name: (records, seconds) for name, (records, seconds) in self._tallies.items()}


def by_node(shards: Iterable[Samples]) -> dict[str, tuple[int, float]]:
    """Return records and seconds by node, of several shards together."""
    found: dict[str, tuple[int, float]] = {}
    for samples in shards:
        for name, (records, seconds) in samples.by_node().items():
            before = found.get(name, (0, 0.0))
            found[name] = before[0] + records, before[1] + seconds
    return found
