"""(G) Sessions with suppress: count and sum of each session by key, emitted once, when the session is closed.

Keys are active in blocks, one after the other. At the end come records of other keys, much later, which close all sessions.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.workloads.documents import document
from benchmarks.workloads.results import OneForEachKey, pair
from benchmarks.workloads.workload import SEED, START_MS, Expected, Input

GAP_MS = 5_000
GRACE_MS = 1_000
BLOCK_MS = 10_000
CLOSING = 4_000
"""Records that close all sessions: enough for every partition and every shard to have some."""
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Sessions:
    """The key of a result is the record's key and the start of the session: `k7@1700000000000`."""

    topology: str = "sessions"
    title: str = "sessions with suppress"
    sources: tuple[str, ...] = ("records",)
    records: int = 2_000_000
    is_exchanged: bool = False
    needs_tables_first: bool = False
    keys_of_block: int = 5_000
    records_of_block: int = 100_000

    def inputs(self, records: int) -> tuple[Iterator[Input], Expected]:
        """The records and those that close their sessions; one result for every closed session."""
        expected = OneForEachKey(pair)

        def generate() -> Iterator[Input]:
            chance = random.Random(SEED)
            last: dict[str, tuple[int, list[int]]] = {}
            for number in range(records):
                time_ms = number * BLOCK_MS // self.records_of_block
                key = f"k{number // self.records_of_block * self.keys_of_block + int(chance.random() * self.keys_of_block)}"
                at_ms, session = last.get(key, (-HOUR_MS, []))
                if time_ms - at_ms == GAP_MS:  # rivals differ on whether a pause of exactly the gap ends a session
                    time_ms += 1
                if time_ms - at_ms > GAP_MS:
                    session = expected.values[f"{key}@{START_MS + time_ms}"] = [0, 0]
                amount = int(chance.random() * 1000)
                session[0] += 1
                session[1] += amount
                last[key] = time_ms, session
                yield Input("records", key, document(number, key, amount), START_MS + time_ms)
            end_ms = START_MS + records * BLOCK_MS // self.records_of_block + HOUR_MS
            for number in range(CLOSING):
                yield Input("records", f"z{number}", document(number, f"z{number}", 0), end_ms)

        return generate(), expected
