"""The application under test, as a user would write it: its output shows every lost, duplicated or reordered payment.

Spark's workers find its functions by name, so they import this module too; the import turns a guard off if the
campaign requests it.
"""

from __future__ import annotations

import os
from operator import add
from typing import Any

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
from penstock.delivery import Files, Postgres, Target
from penstock.handlers import ErrorHandler
from verification.chaos import guards
from verification.chaos.payments import BANK, REFUSED_EVERY, WINDOW_MS, Topics

BROKEN = os.environ.get("CHAOS_BROKEN", "")
"""The broken part of the application: `payments`, `totals`, or none."""


FILES = os.environ.get("CHAOS_FILES", "")
"""The directory that one of the outputs is delivered to; none without it."""


def table(name: str, key: str | tuple[()] = ()) -> Target | None:
    """The table that an output is delivered to, if there is a database."""
    return Postgres("env:CHAOS_DATABASE", name, key=key) if "CHAOS_DATABASE" in os.environ else None


def build(topics: Topics) -> Topology:
    """A stateless path, a table per key, a table per group behind an exchange, and a windowed table; every update is sent.

    And a ledger that all lanes write: a group receives each payment twice, once in an atomic section; the bank pays it once.
    """
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("ledger", value=int, merge=add))
    payments = builder.stream(topics.input, key=str, value=dict).map_values(checked)
    payments.to(topics.echo, value=dict, deliver_to=table("payments"))
    by_key = payments.group_by_key()
    sums = by_key.aggregate(nothing_yet, with_payment, store=Store("sums", value=dict, caching=False))
    sums.to_stream().to(topics.sums, value=dict, deliver_to=table("sums", key="id"))
    by_group = payments.group_by(group_of, key=str, value=dict)
    groups = by_group.aggregate(nothing_yet, with_payment, store=Store("groups", value=dict, caching=False))
    groups.to_stream().to(topics.groups, value=dict, deliver_to=Files(FILES) if FILES else None)
    windows = by_key.windowed_by(tumbling(WINDOW_MS, grace="1h")).count(store=Store("windows", caching=False))
    windows.to_stream().map(named_window).to(topics.windows, key=str, value=int)
    payments.process(Give, stores=["ledger"])
    payments.process_atomically(Book, stores=["ledger"])
    return builder.build()


class Give(Processor[str, dict[str, Any], str, Any]):
    """Gives a payment to its group, whichever shard owns it."""

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        """Give."""
        self.context.store("ledger").merge(group_of(record.key, record.value), record.value["amount"])


class Book(Processor[str, dict[str, Any], str, Any]):
    """Takes a payment from the bank and gives it to its group, atomically."""

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        """Book."""
        ledger, amount = self.context.store("ledger"), record.value["amount"]
        ledger.merge(BANK, -amount)
        ledger.merge(group_of(record.key, record.value), amount)


def checked(payment: dict[str, Any] | None) -> dict[str, Any]:
    """Return a complete payment; raise for anything else."""
    if payment is None or not payment.keys() >= {"number", "step", "group", "amount"}:
        raise ValueError("not a payment")
    take("payments", payment)
    return payment


def take(part: str, payment: dict[str, Any]) -> None:
    """Refuse some payments in the broken part."""
    if part == BROKEN and payment["number"] % REFUSED_EVERY == 0:
        raise ValueError(f"{part} is broken")


def nothing_yet() -> dict[str, int]:
    """No payment yet."""
    return {"count": 0, "sum": 0, "number": -1}


def with_payment(key: str, payment: dict[str, Any], total: dict[str, int]) -> dict[str, int]:
    """The total with one more payment."""
    take("totals", payment)
    return {"count": total["count"] + 1, "sum": total["sum"] + payment["amount"], "number": payment["number"]}


def group_of(key: str, payment: dict[str, Any]) -> str:
    """The group in which a payment is also counted."""
    return str(payment["group"])


def named_window(windowed: Any, count: int) -> tuple[str, int]:
    """The output key of a window."""
    return f"{windowed.key}@{windowed.start}", count


def handler(name: str, topics: Topics) -> ErrorHandler:
    """The error handler that the campaign requests."""
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
