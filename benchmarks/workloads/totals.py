"""(B, H) Count and sum of amounts by key. The expected totals are arrays, so that millions of keys fit into memory."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import compress
from operator import ne

from benchmarks.workloads.documents import document
from benchmarks.workloads.results import pair
from benchmarks.workloads.workload import SEED, START_MS, Expected, Input, Result, WrongResultError


def _zeros(size: int) -> array[int]:
    return array("q", bytes(8 * size))


class ExpectedTotals:
    """Counts and sums by the number of the key: `k7`, or `aak7` after two re-keys, is 7."""

    def __init__(self, keys: int) -> None:
        self.counts, self.sums = _zeros(keys), _zeros(keys)

    def check(self, results: Iterable[Result], *, keeps_late: bool = False) -> int:
        """Compare the last result of every key."""
        counts, sums = _zeros(len(self.counts)), _zeros(len(self.sums))
        number = 0
        for number, (key, value) in enumerate(results, start=1):  # noqa: B007 - the number of results is returned
            at = number_of(key)
            counts[at], sums[at] = pair(value)
        wrong = sorted(
            {*compress(range(len(counts)), map(ne, counts, self.counts)), *compress(range(len(sums)), map(ne, sums, self.sums))}
        )
        if wrong:
            sample = {f"k{key}": ([self.counts[key], self.sums[key]], [counts[key], sums[key]]) for key in wrong[:3]}
            raise WrongResultError(f"{len(wrong)} of {len(counts)} keys are wrong; (expected, found): {sample}")
        return number


def number_of(key: bytes) -> int:
    """The number of a key."""
    return int(key.rpartition(b"k")[2])


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """As many keys as `keys`: first each key once in turn if there are enough records, then keys by chance."""

    title: str
    keys: int
    records: int
    depth: int = 0
    """How many times the records are re-keyed before they are counted."""
    sources: tuple[str, ...] = ("records",)
    needs_tables_first: bool = False

    @property
    def topology(self) -> str:
        """With re-keys it is another topology."""
        return f"depth-{self.depth}" if self.depth else "totals"

    @property
    def is_exchanged(self) -> bool:
        """With re-keys it is."""
        return self.depth > 0

    def inputs(self, records: int) -> tuple[Iterator[Input], Expected]:
        """The records, and the totals of every key."""
        expected = ExpectedTotals(self.keys)

        def generate() -> Iterator[Input]:
            chance = random.Random(SEED)
            in_turn = self.keys if self.keys <= records else 0
            for number in range(records):
                chosen = number if number < in_turn else int(chance.random() * self.keys)
                amount = int(chance.random() * 1000)
                expected.counts[chosen] += 1
                expected.sums[chosen] += amount
                key = f"k{chosen}"
                yield Input("records", key, document(number, key, amount), START_MS + number // 10)

        return generate(), expected
