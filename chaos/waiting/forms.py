"""What can be read of payments and ticks in every topic: all that the application and its checker share."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.payments import Payment, Topics

DELAY_VARIABLE = "CHAOS_DELAY_MS"
DELAY_MS = 3_000
"""How long a payment's timers wait at least; none waits for more than twice as long."""

TIMERS, TICKS = "reminding-timers", "ticks"
"""The stores, by the names of their changelogs."""

EVENT, PROCESSING = "e", "p"
KINDS = (EVENT, PROCESSING)

EVERY_MS = {"all": 250, "once": 250, "skip": 4_000}
"""The schedules, by how they make up for missed ticks, which is also their name."""

LATE_MS = 1_000
"""What the application takes for late with `skip`, so that a row need not be down for minutes."""

CALL = "call.under_way"
"""A fault point of the application itself: a call that has waited, while others do."""


@dataclass(frozen=True, slots=True)
class WaitingTopics(Topics):
    """The topics of the application. What the payments' application echoes is answered here."""

    @property
    def fired(self) -> str:
        """What timers have sent."""
        return f"{self.application_id}-fired"

    @property
    def ticks(self) -> str:
        """What schedules have sent."""
        return f"{self.application_id}-ticks"

    @property
    def outputs(self) -> tuple[str, ...]:
        """All that the application writes besides its changelogs."""
        return (self.echo, self.fired, self.ticks, self.dead_letters)


def due_of(kind: str, number: int, timestamp: int, delay_ms: int) -> int:
    """When a timer of a payment is due: no two neighbours at the same time, nor in the order of payments."""
    return timestamp + delay_ms + number * (7_919 if kind == EVENT else 104_729) % delay_ms


def timers_of(payment: Payment, delay_ms: int) -> dict[str, int]:
    """The timers of a payment by name, with the times they are due at."""
    return {f"{kind}{payment.number}": due_of(kind, payment.number, payment.timestamp, delay_ms) for kind in KINDS}


def answer_to(number: int) -> int:
    """What a call answers."""
    return 3 * number + 1
