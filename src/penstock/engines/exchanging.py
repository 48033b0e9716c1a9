"""The requests by which slots read records for themselves, and exchange rows among themselves, and what a slot has for that."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa

from penstock.engines.connections import Address
from penstock.engines.exchange import Exchange, RowsLostError, Way
from penstock.engines.parts import by_lane
from penstock.engines.reading import Reading, ReadingSlot
from penstock.engines.requests import Batches, RunStep
from penstock.epochs.bounds import Measured, measure_row, measured_in
from penstock.epochs.program import Program
from penstock.epochs.wire import WIRE


class SlotSide:
    """What a slot has for itself: its reader of topics, and its exchange with other slots once that is opened."""

    def __init__(self) -> None:
        self.reader: ReadingSlot = ReadingSlot()
        self._exchange: tuple[Listen, Exchange] | None = None

    def listening(self, request: Listen) -> Exchange:
        """Return the exchange that a request opens, or has opened before."""
        if self._exchange is None or self._exchange[0] != request:
            self._close_exchange()
            where = request.where
            at = where if isinstance(where, str) else where / f"{os.getpid()}-{secrets.token_hex(4)}"
            self._exchange = request, Exchange(at, request.key)
        return self._exchange[1]

    @property
    def exchange(self) -> Exchange:
        """The exchange that is open."""
        if self._exchange is None:
            raise RowsLostError("Rows were lost: the slot has ended since it got them.")
        return self._exchange[1]

    def close(self) -> None:
        """End all connections."""
        self.reader.close()
        self._close_exchange()

    def _close_exchange(self) -> None:
        if self._exchange is not None:
            self._exchange[1].close()
            self._exchange = None


@dataclass(frozen=True)
class Exchanging:
    """Run a step whose rows come from other slots, and go to others. It is step `at` of its walk; `senders` ran the one before.

    In the first step, the slot reads its share of the records itself.
    """

    step: RunStep
    way: Way
    at: int
    senders: int
    reading: Reading | None = None

    @property
    def reads_topics(self) -> bool:
        """Whether its records come from topics."""
        return self.reading is not None

    def received(self, slot: SlotSide) -> Batches:
        """Return what this slot has read, or what was sent to its lane."""
        if self.reading is not None:
            return slot.reader.records(self.step.epoch, self.reading)
        return slot.exchange.inbox.take(self.way.number, self.at, self.step.task, self.senders)

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run the step."""
        return self.step.run(program, batches)

    def sent(self, slot: SlotSide, program: Program, rows: Batches) -> Batches:
        """Send rows to the slots of their lanes. Return those for the driver: of the last step, or why there are too many."""
        if self.step.step.is_last:
            return rows
        table, epoch = pa.Table.from_batches(rows, WIRE), self.step.epoch
        over = [measured for measured in measured_in(table) if measured.too_large]
        if not over:
            parts = {lane: part.to_batches() for lane, part in enumerate(by_lane(program, table))}
            if slot.exchange.hand_over(self.way, self.at + 1, self.step.task, parts, epoch.most_bytes):
                return []
            over = [Measured(too_large=f"The rows for a lane have more than {epoch.most_bytes} bytes, which is the limit.")]
        return [batch for measured in over for batch in measure_row(measured).to_batches()]


@dataclass(frozen=True)
class Listen:
    """Open an inbox for the rows of other slots; `where` as in `listening`, a directory instead of a path."""

    where: Path | str
    key: bytes = field(repr=False)

    def answer(self, slot: SlotSide) -> bytes:
        """Return the inbox's address, encoded."""
        return msgspec.msgpack.encode(slot.listening(self).inbox.address)


decode_address: Callable[[pa.Buffer], Address] = msgspec.msgpack.Decoder(str | tuple[str, int]).decode
