"""(D) Stream–table join and aggregate: orders with the region and the rate of their user, then revenue by region.

All users are processed before the first order is written, so that every order has a user, however a side orders its sources.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.workloads.documents import document
from benchmarks.workloads.results import LastOfEachKey, pair
from benchmarks.workloads.workload import SEED, START_MS, Expected, Input

USERS = 100_000
REGIONS = 1_000
HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Enriched:
    """Revenue is an order's amount times its user's rate."""

    topology: str = "enriched"
    title: str = "stream–table join and aggregate by another key"
    sources: tuple[str, ...] = ("orders", "users")
    records: int = 2_000_000
    is_exchanged: bool = True
    needs_tables_first: bool = True
    users: int = USERS

    def inputs(self, records: int) -> tuple[Iterator[Input], Expected]:
        """The users, then the orders; the count of orders and the revenue of every region."""
        expected = LastOfEachKey(pair)

        def generate() -> Iterator[Input]:
            chance = random.Random(SEED)
            regions = [int(chance.random() * REGIONS) for _ in range(self.users)]
            rates = [1 + int(chance.random() * 9) for _ in range(self.users)]
            for user in range(self.users):
                value = f'{{"region":"r{regions[user]}","rate":{rates[user]}}}'.encode()
                yield Input("users", f"k{user}", value, START_MS - HOUR_MS)
            for number in range(records):
                user, amount = int(chance.random() * self.users), int(chance.random() * 1000)
                total = expected.values.setdefault(f"r{regions[user]}", [0, 0])
                total[0] += 1
                total[1] += amount * rates[user]
                yield Input("orders", f"k{user}", document(number, f"k{user}", amount), START_MS + number // 10)

        return generate(), expected
