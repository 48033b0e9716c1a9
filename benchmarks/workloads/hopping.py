"""(F) Hopping windows with late data: count and sum by key in windows of 10 s that start every 5 s, with 30 s of grace.

A record is up to 5 s out of order, which is never late, or from the day before, which always is: the verdict does not depend on
whether a partition, a shard or a batch has the clock. Late records would have windows of their own, so they show if counted.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.workloads.documents import document
from benchmarks.workloads.results import LastOfEachKey, pair
from benchmarks.workloads.workload import SEED, START_MS, Expected, Input

SIZE_MS = 10_000
ADVANCE_MS = 5_000
GRACE_MS = 30_000
DISORDER_MS = 5_000
DAY_MS = 86_400_000
RECORDS_OF_MS = 20
LATE_SHARE = 0.01
EARLY = 2_000
"""The first records, none of which is late: every partition and every shard has a clock afterwards."""


def windows_of(timestamp_ms: int) -> list[int]:
    """The starts of the windows that contain a time."""
    last = timestamp_ms - timestamp_ms % ADVANCE_MS
    return list(range(last, timestamp_ms - SIZE_MS, -ADVANCE_MS))


def _is_late(key: str) -> bool:
    return int(key.rpartition("@")[2]) < START_MS - 2 * DISORDER_MS - SIZE_MS


@dataclass(frozen=True, slots=True)
class Hopping:
    """The key of a result is the record's key and the start of the window: `k7@1700000000000`."""

    topology: str = "hopping"
    title: str = "hopping windows, 1 % late data"
    sources: tuple[str, ...] = ("records",)
    records: int = 2_000_000
    is_exchanged: bool = False
    needs_tables_first: bool = False
    keys: int = 10_000

    def inputs(self, records: int) -> tuple[Iterator[Input], Expected]:
        """The records, and the totals of every key and window without the late ones."""
        expected = LastOfEachKey(pair, is_late=_is_late)

        def generate() -> Iterator[Input]:
            chance = random.Random(SEED)
            for number in range(records):
                key, amount = f"k{int(chance.random() * self.keys)}", int(chance.random() * 1000)
                timestamp_ms = START_MS + number // RECORDS_OF_MS - int(chance.random() * DISORDER_MS)
                if number >= EARLY and chance.random() < LATE_SHARE:
                    timestamp_ms -= DAY_MS
                else:
                    for start in windows_of(timestamp_ms):
                        total = expected.values.setdefault(f"{key}@{start}", [0, 0])
                        total[0] += 1
                        total[1] += amount
                yield Input("records", key, document(number, key, amount), timestamp_ms)

        return generate(), expected
