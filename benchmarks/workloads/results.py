"""Checks that several workloads share: the last result of each key, or one result for each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from benchmarks.workloads.workload import Result, WrongResultError

Pair = list[int]
"""A count and a sum."""


def pair(value: bytes) -> Pair:
    """A count and a sum, as `[n, total]` or as `{"n": n, "total": total}`."""
    found = orjson.loads(value)
    return [found["n"], found["total"]] if isinstance(found, dict) else [*found]


def compare(expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Raise unless both are equal; the error shows some keys that differ."""
    if found == expected:
        return
    wrong = [key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)]
    sample = {key: (expected.get(key), found.get(key)) for key in sorted(wrong)[:3]}
    raise WrongResultError(f"{len(wrong)} of {len(expected)} keys are wrong; (expected, found): {sample}")


@dataclass(slots=True)
class LastOfEachKey:
    """The last result of each key is right. How many there were before depends on commits and caches."""

    read: Callable[[bytes], Any]
    values: dict[str, Any] = field(default_factory=dict)
    is_late: Callable[[str], bool] = lambda _: False

    def check(self, results: Iterable[Result], *, keeps_late: bool = False) -> int:
        """Compare the last results."""
        count, last = 0, dict[bytes, bytes]()
        for count, (key, value) in enumerate(results, start=1):  # noqa: B007 - the number of results is returned
            last[key] = value
        found = {key.decode(): self.read(value) for key, value in last.items()}
        if keeps_late:
            found = {key: value for key, value in found.items() if not self.is_late(key)}
        compare(self.values, found)
        return count


@dataclass(slots=True)
class OneForEachKey:
    """Each key has exactly one result, and it is right."""

    read: Callable[[bytes], Any]
    values: dict[str, Any] = field(default_factory=dict)

    def check(self, results: Iterable[Result], *, keeps_late: bool = False) -> int:
        """Compare all results."""
        found: dict[str, Any] = {}
        for raw_key, value in results:
            key = raw_key.decode()
            if key in found:
                raise WrongResultError(f"{key} has two results: {found[key]} and {self.read(value)}")
            found[key] = self.read(value)
        compare(self.values, found)
        return len(found)
