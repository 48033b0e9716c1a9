"""How an input is cut: what may make no difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Cut:
    """How many records an epoch takes at most, and on how many lanes it runs; an uneven one takes fewer by chance."""

    epoch_records: int
    lanes: int
    is_uneven: bool = False

    def sizes(self) -> Iterator[int]:
        """How many records each epoch takes, without end."""
        chance = Random(str(self))
        while True:
            yield chance.randrange(1, self.epoch_records + 1) if self.is_uneven else self.epoch_records

    def __str__(self) -> str:
        return f"epochs of {'up to ' if self.is_uneven else ''}{self.epoch_records}, {self.lanes} lanes"


LANES = (1, 2, 5)

USUAL = tuple(Cut(size, lanes) for size in (5, 97, 5000) for lanes in LANES)

RECUT = tuple(cut for lanes in LANES for cut in (Cut(7, lanes), Cut(1000, lanes), Cut(120, lanes, is_uneven=True)))
"""For what is decided by time, which must not depend on where an epoch ends."""
