"""How an input is cut: what may make no difference."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cut:
    """How many records an epoch takes at most, and on how many lanes it runs."""

    epoch_records: int
    lanes: int

    def __str__(self) -> str:
        return f"epochs of {self.epoch_records}, {self.lanes} lanes"
