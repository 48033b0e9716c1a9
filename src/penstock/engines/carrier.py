"""`Carrier`: carries requests to slots in parallel, and the steps of an epoch one after the other.

Between two steps, the driver divides the rows among the lanes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from penstock.engines.messages import unpacked
from penstock.engines.port import Batches, SlotLostError, TaskFailedError
from penstock.engines.requests import RestoreLane, RowsRequest, RunStep
from penstock.engines.slots import Slot
from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import INPUT, ROUTED_INPUT
from penstock.epochs.program import Epoch, Program
from penstock.epochs.restore import Restored
from penstock.epochs.routes import on_shards
from penstock.epochs.shards import lane_of
from penstock.epochs.walk import Act, walk_of


class Errand(NamedTuple):
    """A request for the slot at a position, with records or rows."""

    position: int
    request: RowsRequest
    batches: Batches = ()


class Carrier:
    """Carries requests for a program; `slot` returns the slot at a position. A request may take `patience_s`."""

    def __init__(self, program: Program, slot: Callable[[int], Slot], patience_s: float) -> None:
        self._program = program
        self._walk = walk_of(program)
        self._slot = slot
        self._patience_s = patience_s
        self._threads = ThreadPoolExecutor(program.lanes, "penstock-slot")

    def run(self, errands: Sequence[Errand]) -> list[list[pa.RecordBatch]]:
        """Run requests in parallel; return the rows of each. If one fails, the others are completed first."""
        deadline = time.monotonic() + self._patience_s

        def done(errand: Errand) -> list[pa.RecordBatch]:
            return unpacked(self._slot(errand.position).ask(errand.request, errand.batches, deadline))

        return self._all(done, errands)

    def restore(self, requests: Sequence[tuple[int, RestoreLane]], on_progress: Callable[[int, int], None]) -> list[Restored]:
        """Restore lanes, each on the slot at a position; `on_progress` is called with a lane, and the offsets left to read."""

        def done(asked: tuple[int, RestoreLane]) -> Restored:
            position, request = asked
            try:
                content = self._slot(position).ask(request, on_progress=lambda left: on_progress(request.lane, left))
            except SlotLostError as error:
                raise SlotLostError(str(error), [request.lane]) from error
            return Restored(*msgspec.msgpack.decode(content))

        return self._all(done, requests)

    def take_steps(self, epoch: Epoch, records: Batches, position_of: Sequence[int], entering: Sequence[int]) -> pa.Table:
        """Take the steps of an epoch; return the rows of the last one.

        `position_of` is the position of each lane's slot; records enter at the slots at `entering`.
        """
        rows = pa.table({})
        for step in self._walk:
            if step.act is Act.ENTER:
                positions, parts = entering, _by_origin(records, len(entering))
            else:
                table = self._routed(epoch, records) if step.is_first else rows
                positions, parts = position_of, [part.to_batches() for part in self.by_lane(table)]
            errands = [
                Errand(position, RunStep(epoch, step, number), part)
                for number, (position, part) in enumerate(zip(positions, parts, strict=True))
            ]
            rows = collected(self.run(errands), step.schema)
        return rows

    def by_lane(self, table: pa.Table) -> list[pa.Table]:
        """Return the rows of each lane, in their order."""
        program = self._program
        if program.lanes == 1:
            return [table]
        return divided(table, lane_of(table.column("shard").to_numpy(), program.shards, program.lanes), program.lanes)

    def close(self) -> None:
        """End the threads; those that wait for an answer end with their slots."""
        self._threads.shutdown(wait=False, cancel_futures=True)

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


def divided(table: pa.Table, parts: Any, count: int) -> list[pa.Table]:
    """Return the rows of each part, in their order; `parts` are the numbers of the rows' parts."""
    table = table.take(pa.array(np.argsort(parts, kind="stable")))
    ends = np.cumsum(np.bincount(parts, minlength=count)).tolist()
    return [table.slice(begin, end - begin) for begin, end in pairwise([0, *ends])]


def collected(found: Iterable[Iterable[pa.RecordBatch]], schema: pa.Schema) -> pa.Table:
    """Return all rows as one table."""
    return pa.Table.from_batches([batch for each in found for batch in each], schema)


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
