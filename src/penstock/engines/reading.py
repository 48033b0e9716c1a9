"""Records that slots read for themselves, when there are many: each slot its share of the partitions, epoch after epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.epochs.hops import INPUT
from penstock.epochs.program import Epoch
from penstock.records import Partition, Ranges


class Reader(Protocol):
    """Reads ranges of offsets, and prefetches what follows them."""

    def read(self, ranges: Ranges) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """Return the records in these ranges: offset, timestamp, key, value, headers."""

    def close(self) -> None:
        """Stop reading."""


@dataclass(frozen=True)
class Reading:
    """What to read: ranges of offsets, with the code of each topic's source. `open` opens a reader in a slot."""

    ranges: Ranges
    source_of: Mapping[str, int]
    open: Callable[[], Reader]

    def shares(self, epoch: Epoch, count: int) -> list[Reading]:
        """Return the shares of so many slots: a partition always belongs to the same one, which has prefetched it."""
        place_of = {place: number % count for number, place in enumerate(epoch.origins)}
        return [
            Reading({place: found for place, found in self.ranges.items() if place_of[place] == slot}, self.source_of, self.open)
            for slot in range(count)
        ]


class ReadingSlot:
    """The reader of a slot, opened when it first reads."""

    def __init__(self) -> None:
        self._reader: Reader | None = None

    def records(self, epoch: Epoch, reading: Reading) -> list[pa.RecordBatch]:
        """Return the records, with the codes of their sources and partitions."""
        if not reading.ranges:
            return []
        if self._reader is None:
            self._reader = reading.open()
        codes = {origin: code for code, origin in enumerate(epoch.origins)}
        return [coded(batch, reading.source_of[place[0]], codes[place]) for place, batch in self._reader.read(reading.ranges)]

    def close(self) -> None:
        """Stop reading."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def coded(batch: pa.RecordBatch, source: int, origin: int) -> pa.RecordBatch:
    """Return records of a partition with the codes of their source and of the partition."""
    size = batch.num_rows
    columns = {
        "name": pa.array(np.full(size, source, np.int16)),
        "origin": pa.array(np.full(size, origin, np.int32)),
        **{name: batch.column(name) for name in ("offset", "timestamp", "key", "value", "headers")},
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in INPUT.names], schema=INPUT)
