"""What an operator does to records, as far as columns can do it: a value that an operator made of expressions returns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from penstock.expressions.nodes import Aggregates, Node
from penstock.timing import TimeWindows


@dataclass(frozen=True, slots=True)
class Pass:
    """Leaves records as they are."""


@dataclass(frozen=True, slots=True)
class Keep:
    """Keeps the records for which a condition holds, or, negated, all others."""

    condition: Node
    negate: bool


@dataclass(frozen=True, slots=True)
class Replace:
    """Replaces the value."""

    value: Node


@dataclass(frozen=True, slots=True)
class InWindows:
    """Windows, each with aggregates of its own; updates of closed ones are dropped for that reason."""

    windows: TimeWindows
    drops_for: str


@dataclass(frozen=True, slots=True)
class Gather:
    """Adds values to the aggregates of their key, in a store; drops records without a key or a value for that reason.

    Without aggregates it counts the records. In windows, a record without a value counts, too.
    """

    aggregates: Aggregates | None
    store: str
    drops_for: str
    within: InWindows | None = None


@dataclass(frozen=True, slots=True)
class Unwrap:
    """Makes the change of a table its new value."""


Step = Pass | Keep | Replace | Gather | Unwrap


class Columnar(ABC):
    """An operator that may consist of expressions alone."""

    @abstractmethod
    def in_columns(self) -> Step | None:
        """What it does to many records at once; None if it has to see them one by one."""
