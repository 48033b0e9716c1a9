"""`Carrier`: carries requests to slots in parallel, and the steps of an epoch one after the other.

Between two steps of an epoch that the driver has read, it divides the rows among the lanes. If slots read for themselves, they
also exchange rows among themselves, and only those of the last step pass the driver, or none if slots have an `Ending` for them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count, zip_longest
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa

from penstock.engines.connections import Address
from penstock.engines.exchange import Way
from penstock.engines.exchanging import Ending, Exchanging, Listen, Sending, decode_address
from penstock.engines.messages import unpacked
from penstock.engines.port import STUCK, Batches, LateError, OnProgress, SlotLostError, TaskFailedError
from penstock.engines.reading import Reading
from penstock.engines.requests import Leave, RestoreLane, RowsRequest, RunStep
from penstock.engines.slots import Slot
from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import INPUT, ROUTED_INPUT
from penstock.epochs.in_process import by_lane, collected
from penstock.epochs.program import Epoch, Program, keeps_processors
from penstock.epochs.restore import Restored
from penstock.epochs.routes import on_shards
from penstock.epochs.walk import Act, walk_of
from penstock.epochs.wire import OUT, out
from penstock.errors import PenstockError

_log = logging.getLogger(__name__)

_walks = count()
"""The numbers of walks whose rows slots exchange: a later one has a higher number, by which a slot knows rows that come late."""


_SILENT_S = 60.0
"""How long the restore of a lane may stand still, at least: a slot loads the program first."""


_LEAVE_S = 5.0
"""How long user code may take to close what it has open, when the application ends."""


class Errand(NamedTuple):
    """A request for the slot at a position, with records or rows."""

    position: int
    request: RowsRequest
    batches: Batches = ()


class Carrier:
    """Carries requests for a program; `slot` returns the slot at a position. All that a call carries may take `patience_s`.

    `listen` returns the request by which a slot opens its inbox.
    """

    def __init__(
        self, program: Program, slot: Callable[[int], Slot], patience_s: float, listen: Callable[[Slot], Listen]
    ) -> None:
        self._program = program
        self._walk = walk_of(program)
        self._slot = slot
        self._patience_s = patience_s
        self._listen = listen
        self._inboxes: WeakKeyDictionary[Slot, Address] = WeakKeyDictionary()
        self._asked: dict[int, Slot] = {}
        self._threads = ThreadPoolExecutor(program.lanes, "penstock-slot")

    def run(self, errands: Sequence[Errand]) -> list[list[pa.RecordBatch]]:
        """Run requests in parallel; return the rows of each. If one fails, the others are completed first."""
        return self._run(errands, self._slot, self._deadline)

    @property
    def _deadline(self) -> float:
        """When what begins now is late."""
        return time.monotonic() + self._patience_s

    def _run(self, errands: Sequence[Errand], slot: Callable[[int], Slot], deadline: float) -> list[list[pa.RecordBatch]]:
        def done(errand: Errand) -> list[pa.RecordBatch]:
            asked = self._asked[errand.position] = slot(errand.position)
            return unpacked(asked.ask(errand.request, errand.batches, deadline))

        return self._all(done, errands)

    def restore(self, positions: Sequence[int], requests: Sequence[RestoreLane], on_progress: OnProgress) -> list[Restored]:
        """Restore lanes, each on the slot at its position.

        That may take as long as it takes, but a slot whose restore does not advance for a while is lost.
        """
        suspects: set[int] = set()
        patience_s = max(self._patience_s, _SILENT_S)

        def done(asked: tuple[int, RestoreLane]) -> Restored:
            position, request = asked
            slot, reached = self._slot(position), "loading the program"

            def note(where: str, left: int | None) -> None:
                nonlocal reached
                reached = where or reached
                on_progress(request.lane, f"{reached} on {slot.host}", left)

            try:
                content = slot.ask(request, on_progress=note, patience_s=patience_s)
            except LateError as error:  # for a restore, that is a lost slot: fewer records are of no use
                suspects.add(request.lane)
                text = (
                    f"The restore of lane {request.lane} on {slot.host} has not advanced for {patience_s:g} s, {reached}. {STUCK}"
                )
                _log.warning("%s", text)  # the error waits until the other lanes are restored
                raise SlotLostError(text) from error
            except SlotLostError as error:
                suspects.update([request.lane] * error.by_request)
                raise
            on_progress(request.lane, "", None)
            return Restored(*msgspec.msgpack.decode(content))

        try:
            return self._all(done, list(zip(positions, requests, strict=True)))
        except SlotLostError as error:
            raise SlotLostError(str(error), suspects) from error

    def take_steps(
        self,
        epoch: Epoch,
        records: Batches,
        position_of: Sequence[int],
        entering: Sequence[int],
        ending: Ending | None = None,
    ) -> pa.Table:
        """Take the steps of an epoch; return the rows of the last one, or what an `ending` leaves of them.

        `position_of` is the position of each lane's slot; records enter at the slots at `entering`.
        """
        rows, deadline = pa.table({}), self._deadline
        for step in self._walk:
            if step.act is Act.ENTER:
                positions, parts = entering, _by_origin(records, len(entering))
            else:
                table = self._routed(epoch, records) if step.is_first else rows
                positions, parts = position_of, [part.to_batches() for part in by_lane(self._program, table)]
            errands = [
                Errand(position, RunStep(epoch, step, number), part)
                for number, (position, part) in enumerate(zip(positions, parts, strict=True))
            ]
            rows = collected(self._run(errands, self._slot, deadline), step.schema)
        if ending is None:
            return rows
        parts_of_lanes = ending.sending(epoch).divide(self._program, rows)

        def carried(request: RowsRequest) -> pa.Table:
            errands = [
                Errand(position, request, part.to_batches()) for position, part in zip(position_of, parts_of_lanes, strict=True)
            ]
            return collected(self._run(errands, self._slot, deadline), OUT)

        return ending.finish(carried)

    def take_steps_in_slots(
        self,
        epoch: Epoch,
        reading: Reading,
        position_of: Sequence[int],
        entering: Sequence[int],
        ending: Ending | None = None,
    ) -> pa.Table:
        """As `take_steps`, but the slots at `entering` read the records, and all slots exchange rows among themselves."""
        walk, deadline = walk_of(self._program, has_entry=True), self._deadline
        shares = reading.shares(epoch, len(entering))
        slots = {position: self._slot(position) for position in {*entering, *position_of}}  # the same ones in all steps
        inboxes = {position: self._inbox(slot, deadline) for position, slot in slots.items()}
        way = Way(next(_walks), tuple(inboxes[position] for position in position_of))

        def carried(at: int, request_of: Callable[[int], RowsRequest], sending: Sending | None) -> list[list[pa.RecordBatch]]:
            positions = position_of if at else entering
            senders = len(position_of) if at > 1 else at * len(entering)  # the first step is that of records that enter
            errands = [
                Errand(position, Exchanging(request_of(task), epoch, way, at, task, senders, sending, share))
                for task, (position, share) in enumerate(zip_longest(positions, () if at else shares))
            ]
            return self._run(errands, slots.__getitem__, deadline)

        rows = pa.table({})
        for at, step in enumerate(walk):
            sending: Sending | None = Sending(by_lane, step.schema, epoch.attempt.most_bytes)
            if step.is_last:
                sending = None if ending is None else ending.sending(epoch)
            rows = collected(carried(at, partial(RunStep, epoch, step), sending), step.schema)
            if rows.num_rows and sending is not None:  # a task is above its limit
                return out(rows)
        if ending is None:
            return rows
        return ending.finish(lambda request: collected(carried(len(walk), lambda task: request, None), OUT))

    def close(self) -> None:
        """Let slots close what user code has open there, and end the threads.

        Threads that wait for an answer end with their slots.
        """
        if keeps_processors(self._program):
            deadline = time.monotonic() + _LEAVE_S
            for slot in self._asked.values():
                with suppress(PenstockError):
                    if slot.is_idle:
                        slot.ask(Leave(), deadline=deadline)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _inbox(self, slot: Slot, deadline: float) -> Address:
        """Return the address of a slot's inbox, which is opened when rows are first exchanged."""
        if slot not in self._inboxes:
            self._inboxes[slot] = decode_address(slot.ask(self._listen(slot), deadline=deadline))
        return self._inboxes[slot]

    def _routed(self, epoch: Epoch, records: Batches) -> pa.Table:
        """Return the records with their shards."""
        table = pa.Table.from_batches(records, INPUT)
        unrouted = table.append_column(ROUTED_INPUT.field("shard"), pa.nulls(table.num_rows, pa.int32()))
        return on_shards(Assignment(self._program, epoch), unrouted)

    def _all(self, done: Callable[[Any], Any], asked: Sequence[Any]) -> list[Any]:
        if len(asked) == 1:  # no thread for one request
            return [done(asked[0])]
        futures = [self._threads.submit(done, one) for one in asked]
        failures = [error for future in futures if (error := future.exception()) is not None]
        if failures:
            raise next((error for error in failures if not isinstance(error, (SlotLostError, TaskFailedError))), failures[0])
        return [future.result() for future in futures]


def _by_origin(batches: Batches, count: int) -> list[list[pa.RecordBatch]]:
    """Divide records into parts of about the same size; those of a partition stay together, because their order matters."""
    parts: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
    origins: dict[int, list[pa.RecordBatch]] = {}
    for batch in batches:
        origins.setdefault(batch.column("origin")[0].as_py(), []).append(batch)
    loads = [0] * count
    for of_origin in sorted(origins.values(), key=lambda each: -sum(batch.num_rows for batch in each)):
        place = loads.index(min(loads))
        parts[place] += of_origin
        loads[place] += sum(batch.num_rows for batch in of_origin)
    return parts
