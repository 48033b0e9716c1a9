"""How an input is cut into epochs and lanes, which must not change any result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Cut:
    """The maximum number of records of an epoch, and the number of lanes; the size of an uneven epoch is random."""

    epoch_records: int
    lanes: int
    is_uneven: bool = False

    def sizes(self) -> Iterator[int]:
        """The number of records of each epoch, endlessly."""
        chance = Random(str(self))
        while True:
            yield chance.randrange(1, self.epoch_records + 1) if self.is_uneven else self.epoch_records

    def __str__(self) -> str:
        return f"epochs of {'up to ' if self.is_uneven else ''}{self.epoch_records}, {self.lanes} lanes"


LANES = (1, 2, 5)

USUAL = tuple(Cut(size, lanes) for size in (5, 97, 5000) for lanes in LANES)

RECUT = tuple(cut for lanes in LANES for cut in (Cut(7, lanes), Cut(1000, lanes), Cut(120, lanes, is_uneven=True)))
"""For results that depend on time, which must not depend on epoch boundaries."""
