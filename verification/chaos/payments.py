"""What is sent through the application: payments, each unique and numbered, and their form in every topic.

The application and its checker share only the names of topics and the forms of keys and values.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

WINDOW_MS = 2_000
STORES = ("sums", "groups", "windows", "ledger")
REFUSED_EVERY = 5
"""A broken application refuses one payment in this many."""
BANK = "bank"
"""The key of the ledger from which every payment is taken."""


class Payment(NamedTuple):
    """A payment as written to the input: the log determines its offset, the load everything else.

    `number` is unique and ascending over all payments of a row, `step` ascending by one over those of its key.
    """

    number: int
    key: str
    step: int
    group: str
    amount: int
    partition: int
    offset: int
    timestamp: int

    @property
    def window(self) -> str:
        """The key of its window in the output."""
        return f"{self.key}@{self.timestamp - self.timestamp % WINDOW_MS}"

    def value(self) -> bytes:
        """The record's value."""
        return encoded(number=self.number, step=self.step, group=self.group, amount=self.amount)


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of an application, which are named after it."""

    application_id: str

    @property
    def input(self) -> str:
        """Payments by key."""
        return f"{self.application_id}-payments"

    @property
    def echo(self) -> str:
        """Every payment as it was read."""
        return f"{self.application_id}-echo"

    @property
    def sums(self) -> str:
        """Count and sum per key, after every payment."""
        return f"{self.application_id}-sums"

    @property
    def groups(self) -> str:
        """Count and sum per group, after every payment: what goes through an exchange."""
        return f"{self.application_id}-groups"

    @property
    def windows(self) -> str:
        """Payments per key and window, after every payment."""
        return f"{self.application_id}-windows"

    @property
    def dead_letters(self) -> str:
        """Records that could not be read or processed."""
        return f"{self.application_id}-dead-letters"

    @property
    def outputs(self) -> tuple[str, ...]:
        """All topics that the application writes, except changelogs."""
        return (self.echo, self.sums, self.groups, self.windows, self.dead_letters)

    def changelog(self, store: str) -> str:
        """The changelog of a store."""
        return f"{self.application_id}-{store}-changelog"


def encoded(**fields: Any) -> bytes:
    """A value's bytes."""
    return json.dumps(fields, separators=(",", ":")).encode()
