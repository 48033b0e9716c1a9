"""The requests by which slots read records for themselves, and exchange rows among themselves, and what a slot has for that."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
import pyarrow as pa

from penstock.engines.connections import Address
from penstock.engines.exchange import Exchange, RowsLostError, Way
from penstock.engines.reading import Reading, ReadingSlot
from penstock.engines.requests import Batches, RowsRequest
from penstock.epochs.bounds import Measured, measure_row, measured_in
from penstock.epochs.program import Epoch, Program
from penstock.state.remote.accepting import ANY_PORT, Ports

Divide = Callable[[Program, pa.Table], list[pa.Table]]
"""Divides rows among the lanes to whose slots they go."""


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
            self._exchange = request, Exchange(at, request.key, request.ports)
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
class Sending:
    """How the rows of a request, which have this `schema`, are sent to slots. A lane may get `most_bytes`; 0 for any number."""

    divide: Divide
    schema: pa.Schema
    most_bytes: int


class Ending(Protocol):
    """What slots do with the rows of the last step, instead of returning all of them to the driver."""

    def sending(self, epoch: Epoch) -> Sending:
        """Return how these rows are divided among the slots."""

    def finish(self, carry: Callable[[RowsRequest], pa.Table]) -> pa.Table:
        """Let `carry` bring a request to all slots when they have these rows; return the rows that are left."""

    def abandon(self) -> None:
        """Drop what was done with the rows of an epoch that will run again."""


@dataclass(frozen=True)
class Exchanging:
    """A request whose rows come from other slots, and may go to others: number `at` of its walk, for one of its tasks.

    `senders` ran the one before. In the first one, the slot reads its share of the records itself. Without `sending`, the rows go
    to the driver.
    """

    request: RowsRequest
    epoch: Epoch
    way: Way
    at: int
    task: int
    senders: int
    sending: Sending | None = None
    reading: Reading | None = None

    @property
    def reads_topics(self) -> bool:
        """Whether its records come from topics."""
        return self.reading is not None

    def received(self, slot: SlotSide) -> Batches:
        """Return what this slot has read, or what was sent to its lane."""
        if self.reading is not None:
            return slot.reader.records(self.epoch, self.reading)
        return slot.exchange.inbox.take(self.way.number, self.at, self.task, self.senders)

    def run(self, program: Program, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Run the request."""
        return self.request.run(program, batches)

    def sent(self, slot: SlotSide, program: Program, rows: Batches) -> Batches:
        """Send rows to the slots of their lanes. Return those for the driver: all, or why there are too many."""
        sending = self.sending
        if sending is None:
            return rows
        table = pa.Table.from_batches(rows, sending.schema)
        over = [measured for measured in measured_in(table) if measured.too_large]
        if not over:
            parts = {lane: part.to_batches() for lane, part in enumerate(sending.divide(program, table))}
            if slot.exchange.hand_over(self.way, self.at + 1, self.task, parts, sending.most_bytes):
                return []
            over = [Measured(too_large=f"The rows for a lane have more than {sending.most_bytes} bytes, which is the limit.")]
        names = sending.schema.names
        return [batch for measured in over for batch in measure_row(measured).select(names).to_batches()]


@dataclass(frozen=True)
class Listen:
    """Open an inbox for the rows of other slots; `where` as in `listening`, a directory instead of a path."""

    where: Path | str
    key: bytes = field(repr=False)
    ports: Ports = ANY_PORT

    def answer(self, slot: SlotSide) -> bytes:
        """Return the inbox's address, encoded."""
        return msgspec.msgpack.encode(slot.listening(self).inbox.address)


decode_address: Callable[[pa.Buffer], Address] = msgspec.msgpack.Decoder(str | tuple[str, int]).decode
