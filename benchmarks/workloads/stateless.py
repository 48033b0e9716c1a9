"""(A) Filter and map of JSON records of 1 KB: every second record is kept, with twice its amount, under its number."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from benchmarks.workloads.documents import LARGE_BYTES, document
from benchmarks.workloads.results import OneForEachKey
from benchmarks.workloads.workload import SEED, START_MS, Expected, Input


def _amount(value: bytes) -> int:
    amount: int = orjson.loads(value)["amount"]
    return amount


@dataclass(frozen=True, slots=True)
class Stateless:
    """Even amounts are kept and doubled. The key of a record is its number, so each result belongs to one record."""

    topology: str = "stateless"
    title: str = "filter and map, 1 KB"
    sources: tuple[str, ...] = ("records",)
    records: int = 1_000_000
    is_exchanged: bool = False
    needs_tables_first: bool = False

    def inputs(self, records: int) -> tuple[Iterator[Input], Expected]:
        """The records, and one result for each even amount."""
        expected = OneForEachKey(_amount)

        def generate() -> Iterator[Input]:
            chance = random.Random(SEED)
            for number in range(records):
                key, amount = f"k{number}", int(chance.random() * 1000)
                if amount % 2 == 0:
                    expected.values[key] = 2 * amount
                yield Input("records", key, document(number, key, amount, LARGE_BYTES), START_MS + number // 10)

        return generate(), expected
