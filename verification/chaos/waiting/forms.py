"""The form of payments and ticks in every topic: everything that the application and its checker share."""

from __future__ import annotations

from dataclasses import dataclass

from verification.chaos.payments import Payment, Topics

DELAY_VARIABLE = "CHAOS_DELAY_MS"
DELAY_MS = 3_000
"""The minimum delay of a payment's timers; the maximum is twice as long."""

TIMERS, TICKS = "reminding-timers", "ticks"
"""The stores, by the names of their changelogs."""

EVENT, PROCESSING = "e", "p"
KINDS = (EVENT, PROCESSING)

EVERY_MS = {"all": 250, "once": 250, "skip": 4_000}
"""The interval of each schedule; its name is also its `misfire`."""

LATE_MS = 1_000
"""How late a tick may be with `skip`: short, so that a row need not be down for minutes."""

CALL = "call.under_way"
"""A fault point of the application itself: in a call, while others are in flight."""


@dataclass(frozen=True, slots=True)
class WaitingTopics(Topics):
    """The topics of the application. `echo` has the answers here."""

    @property
    def fired(self) -> str:
        """The output of timers."""
        return f"{self.application_id}-fired"

    @property
    def ticks(self) -> str:
        """The output of schedules."""
        return f"{self.application_id}-ticks"

    @property
    def outputs(self) -> tuple[str, ...]:
        """All topics that the application writes, except changelogs."""
        return (self.echo, self.fired, self.ticks, self.dead_letters)


def due_of(kind: str, number: int, timestamp: int, delay_ms: int) -> int:
    """When a timer of a payment is due: adjacent payments at different times, and not in the order of payments."""
    return timestamp + delay_ms + number * (7_919 if kind == EVENT else 104_729) % delay_ms


def timers_of(payment: Payment, delay_ms: int) -> dict[str, int]:
    """The timers of a payment by name, with their due times."""
    return {f"{kind}{payment.number}": due_of(kind, payment.number, payment.timestamp, delay_ms) for kind in KINDS}


def answer_to(number: int) -> int:
    """The result of a call."""
    return 3 * number + 1
