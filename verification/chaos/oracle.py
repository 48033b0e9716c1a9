"""The expected results of payments: sequences per key, contents of tables. Plain Python over the input in log order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from verification.chaos.payments import BANK, Payment


class Seen(NamedTuple):
    """One payment in one output: its number, or a count, and the whole value."""

    number: int
    value: Any


Sequences = dict[str, list[Seen]]
"""By key, in order."""


def within(payments: Iterable[Payment], offsets: Mapping[int, int]) -> list[Payment]:
    """The payments before these offsets, partition by partition and in order."""
    return sorted((p for p in payments if p.offset < offsets.get(p.partition, 0)), key=lambda p: (p.partition, p.offset))


def echoes(payments: Iterable[Payment]) -> Sequences:
    """Every payment as it was read."""
    found: Sequences = defaultdict(list)
    for p in payments:
        value = {"number": p.number, "step": p.step, "group": p.group, "amount": p.amount}
        found[p.key].append(Seen(p.number, value))
    return found


def sums(payments: Iterable[Payment]) -> Sequences:
    """Count and sum per key after every payment: all payments of a key are in one partition, so their order is known."""
    found: Sequences = defaultdict(list)
    for p in payments:
        found[p.key].append(Seen(p.number, added(found[p.key], p)))
    return found


def added(before: list[Seen], payment: Payment) -> dict[str, int]:
    """The total after one more payment."""
    last = before[-1].value["sum"] if before else 0
    return {"count": len(before) + 1, "sum": last + payment.amount, "number": payment.number}


def windows(payments: Iterable[Payment]) -> Sequences:
    """Payments per key and window, after every payment."""
    found: Sequences = defaultdict(list)
    for p in payments:
        count = len(found[p.window]) + 1
        found[p.window].append(Seen(count, count))
    return found


def groups(payments: Iterable[Payment]) -> dict[str, dict[int, Payment]]:
    """The payments of each group by number. They come from all partitions, which may interleave in any way."""
    found: dict[str, dict[int, Payment]] = defaultdict(dict)
    for p in payments:
        found[p.group][p.number] = p
    return found


def ledger(payments: Iterable[Payment]) -> dict[str, int]:
    """What each group received, twice, and what the bank has paid, once; in any order."""
    found: dict[str, int] = defaultdict(int)
    for p in payments:
        found[p.group] += 2 * p.amount
        found[BANK] -= p.amount
    return dict(found)


def table(sequences: Mapping[str, list[Seen]]) -> dict[str, Any]:
    """A table's content: the last value of each key."""
    return {key: seen[-1].value for key, seen in sequences.items() if seen}
