"""What a workload is: its sources, its records, and the results that each record must have exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

SEED = 7
START_MS = 1_700_000_000_000
"""Event time of the first record. Fixed, so that the same records have the same windows."""


class Input(NamedTuple):
    """A record to write."""

    source: str
    key: str
    value: bytes
    timestamp_ms: int


Result = tuple[bytes, bytes]
"""The key and the value of a record of the sink."""


class WrongResultError(Exception):
    """A record was lost, counted twice, or processed wrongly: the run is invalid."""


class Expected(Protocol):
    """The results of a workload's records."""

    def check(self, results: Iterable[Result], *, keeps_late: bool) -> int:
        """Raise if they are wrong; return how many there were.

        With `keeps_late`, results of late records are allowed: Spark only knows how late a record is from the batch before.
        """


class Workload(Protocol):
    """Records for one topology. Applications know it by its name."""

    @property
    def topology(self) -> str:
        """The name of its topology."""

    @property
    def title(self) -> str:
        """What it is, for reports."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Its source topics. The first is the measured one; tables follow."""

    @property
    def records(self) -> int:
        """How many records of the first source a full measurement has."""

    @property
    def is_exchanged(self) -> bool:
        """Whether records pass an exchange: committed offsets of the source then do not show that all is done."""

    @property
    def needs_tables_first(self) -> bool:
        """Whether the other sources must be processed before the first record of the measured one is written."""

    def inputs(self, records: int) -> tuple[Iterator[Input], Expected]:
        """The records, and what is expected of them once they have all been taken from the iterator."""
