"""The application under test, as a user would write it: every loss, doubling and reordering of payments shows in what it sends.

Its functions are found by name in Spark's workers, so that this module is imported there too; that is where a guard is
turned off, if the campaign asks for it.
"""

from __future__ import annotations

import os
from operator import add
from typing import Any

from chaos import guards
from chaos.payments import BANK, REFUSED_EVERY, WINDOW_MS, Topics
from penstock import (
    App,
    Processor,
    Record,
    Store,
    StreamsBuilder,
    Topology,
    dead_letter,
    log_and_continue,
    log_and_fail,
    shared_store,
    tumbling,
)
from penstock.handlers import ErrorHandler

BROKEN = os.environ.get("CHAOS_BROKEN", "")
"""Which part of the application is: `payments`, `totals`, or none."""


def build(topics: Topics) -> Topology:
    """A stateless way, a table per key, a table per group behind an exchange, and a windowed table; every update is sent.

    And a ledger that is written from all lanes: what a group is given twice, once by an atomic section, the bank pays once.
    """
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("ledger", value=int, merge=add))
    payments = builder.stream(topics.input, key=str, value=dict).map_values(checked)
    payments.to(topics.echo, value=dict)
    by_key = payments.group_by_key()
    sums = by_key.aggregate(nothing_yet, with_payment, store=Store("sums", value=dict, caching=False))
    sums.to_stream().to(topics.sums, value=dict)
    by_group = payments.group_by(group_of, key=str, value=dict)
    groups = by_group.aggregate(nothing_yet, with_payment, store=Store("groups", value=dict, caching=False))
    groups.to_stream().to(topics.groups, value=dict)
    windows = by_key.windowed_by(tumbling(WINDOW_MS, grace="1h")).count(store=Store("windows", caching=False))
    windows.to_stream().map(named_window).to(topics.windows, key=str, value=int)
    payments.process(Give, stores=["ledger"])
    payments.process_atomically(Book, stores=["ledger"])
    return builder.build()


class Give(Processor[str, dict[str, Any], str, Any]):
    """Gives a payment to its group, wherever that lives."""

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        """Give."""
        self.context.store("ledger").merge(group_of(record.key, record.value), record.value["amount"])


class Book(Processor[str, dict[str, Any], str, Any]):
    """Takes a payment from the bank and gives it to its group, as one act."""

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        """Book."""
        ledger, amount = self.context.store("ledger"), record.value["amount"]
        ledger.merge(BANK, -amount)
        ledger.merge(group_of(record.key, record.value), amount)


def checked(payment: dict[str, Any] | None) -> dict[str, Any]:
    """A payment that has all it should have; what has not ends here."""
    if payment is None or not payment.keys() >= {"number", "step", "group", "amount"}:
        raise ValueError("not a payment")
    take("payments", payment)
    return payment


def take(part: str, payment: dict[str, Any]) -> None:
    """Refuse some payments in the part that is said to be broken, until it is fixed."""
    if part == BROKEN and payment["number"] % REFUSED_EVERY == 0:
        raise ValueError(f"{part} is broken")


def nothing_yet() -> dict[str, int]:
    """No payment yet."""
    return {"count": 0, "sum": 0, "number": -1}


def with_payment(key: str, payment: dict[str, Any], total: dict[str, int]) -> dict[str, int]:
    """One payment more; its number says which."""
    take("totals", payment)
    return {"count": total["count"] + 1, "sum": total["sum"] + payment["amount"], "number": payment["number"]}


def group_of(key: str, payment: dict[str, Any]) -> str:
    """The group that a payment is also counted in."""
    return str(payment["group"])


def named_window(windowed: Any, count: int) -> tuple[str, int]:
    """A window's name as a plain key."""
    return f"{windowed.key}@{windowed.start}", count


def handler(name: str, topics: Topics) -> ErrorHandler:
    """The error handler that the campaign asks for."""
    handlers: dict[str, ErrorHandler] = {
        "fail": log_and_fail(),
        "continue": log_and_continue(),
        "dead_letter": dead_letter(topics.dead_letters),
    }
    return handlers[name]


def app(application_id: str, on_error: str) -> App:
    """The application."""
    topics = Topics(application_id)
    decision = handler(on_error, topics)
    return App(application_id, build(topics), deserialization_errors=decision, processing_errors=decision)


guards.turn_off(os.environ.get(guards.VARIABLE, ""))
