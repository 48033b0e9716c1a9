"""(E) Foreign-key join of two tables: orders with the name of their customer, while both change.

The last result of an order must have its last amount and the last name of its last customer, in whichever order both arrived.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from benchmarks.workloads.results import LastOfEachKey
from benchmarks.workloads.workload import SEED, START_MS, Expected, Input

CUSTOMERS = 10_000
UPDATES_OF_ORDER = 2
RENAMED_OF_ORDERS = 1_000
"""One customer is renamed for so many orders."""


@dataclass(frozen=True, slots=True)
class ForeignKeys:
    """Each order changes once, and may then belong to another customer."""

    topology: str = "foreign-keys"
    title: str = "foreign-key join of two tables"
    sources: tuple[str, ...] = ("orders", "customers")
    records: int = 1_000_000
    is_exchanged: bool = True
    needs_tables_first: bool = False
    customers: int = CUSTOMERS

    def inputs(self, records: int) -> tuple[Iterator[Input], Expected]:
        """The customers, then orders with renamed customers among them; the last join of every order."""
        expected = LastOfEachKey(orjson.loads)

        def generate() -> Iterator[Input]:
            chance = random.Random(SEED)
            names = {customer: f"name {customer}" for customer in range(self.customers)}
            last: dict[int, tuple[int, int]] = {}
            for customer, name in names.items():
                yield Input("customers", f"c{customer}", f'{{"name":"{name}"}}'.encode(), START_MS)
            for number in range(records):
                order = int(chance.random() * max(1, records // UPDATES_OF_ORDER))
                customer, amount = int(chance.random() * self.customers), int(chance.random() * 1000)
                last[order] = customer, amount
                value = f'{{"id":{number},"customer":"c{customer}","amount":{amount}}}'.encode()
                yield Input("orders", f"k{order}", value, START_MS + 1 + number // 10)
                if number % RENAMED_OF_ORDERS == RENAMED_OF_ORDERS - 1:
                    names[customer] = f"name {customer} since {number}"
                    renamed = f'{{"name":"{names[customer]}"}}'.encode()
                    yield Input("customers", f"c{customer}", renamed, START_MS + 1 + number // 10)
            expected.values.update(
                {f"k{order}": {"amount": amount, "name": names[customer]} for order, (customer, amount) in last.items()}
            )

        return generate(), expected
