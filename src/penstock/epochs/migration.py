"""Migrations on a lane: an epoch without records that converts some values of stores, or the last one, which clears the traces.

How far a shard is, is in its registers, and so in Kafka with the values that it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from structlog.contextvars import bound_contextvars

from penstock import faults
from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import bring_to, write_lane
from penstock.epochs.opened import require_the_same
from penstock.epochs.state_directory import open_lane
from penstock.epochs.wire import LaneReport, out, rows_about
from penstock.errors import FAILURES, ProcessingError, text_of
from penstock.state import LaneState, Register, ShardState, StoreSpec, rewrite

_DONE = -1


MigrationStep = Callable[[Assignment], pa.Table]
"""Runs an epoch of a migration on a lane, where the lane is; returns what leaves the epoch."""


def migrate_lane(assigned: Assignment, stores: Sequence[str], most: int) -> pa.Table:
    """Convert up to `most` values of some stores; return changelog rows and a report. If it counts fewer, none are left."""
    converted = 0
    with _opened(assigned) as state:
        for number in assigned.shards:
            for store in stores:
                converted += _migrate(state.shard(number), assigned.program.specs[store], most - converted)
        faults.point("migration.before_write")
        return _written(assigned, state, converted)


def finish_lane(assigned: Assignment, stores: Sequence[str]) -> pa.Table:
    """Clear the traces of a migration, in an epoch of its own; return changelog rows and a report."""
    with _opened(assigned) as state:
        for number in assigned.shards:
            for store in stores:
                _progress(state.shard(number), assigned.program.specs[store]).value = 0
        return _written(assigned, state, 0)


@contextmanager
def _opened(assigned: Assignment) -> Iterator[LaneState]:
    """Open the lane at the epoch before."""
    with (
        bound_contextvars(lane=assigned.lane),
        open_lane(assigned.program, assigned.lane, assigned.epoch.attempt.number) as state,
    ):
        require_the_same(state, assigned)
        bring_to(state, assigned.epoch, assigned.stage)
        yield state


def _written(assigned: Assignment, state: LaneState, converted: int) -> pa.Table:
    rows = write_lane(assigned, state)
    report = LaneReport(assigned.lane, assigned.stage, converted, 0.0, write_id=state.head.write_id)
    return out(pa.concat_tables([*rows, rows_about(assigned.shards[0], report, None)]))


def _migrate(shard: ShardState, spec: StoreSpec, most: int) -> int:
    """Convert values of a store in one shard; return how many. If these are as many as allowed, some may be left."""
    progress = _progress(shard, spec)
    if progress.value == _DONE or not most:
        return 0
    read, left, is_done = rewrite(shard, spec, progress.value, most, _converter(spec))
    progress.value = _DONE if is_done else progress.value + left
    return read


def _progress(shard: ShardState, spec: StoreSpec) -> Register:
    """Return the register with the number of entries that are converted."""
    return shard.registers.register(f"{spec.name}/migrated to version {spec.version}", 0)


def _converter(spec: StoreSpec) -> Callable[[bytes], bytes | None]:
    migration = spec.migration
    assert migration is not None
    deserialize, convert, serialize = migration.value.deserialize, migration.convert, spec.serdes[1].serialize

    def converted(raw: bytes) -> bytes | None:
        try:
            new = convert(deserialize(raw))
            return None if new is None else serialize(new)
        except FAILURES as error:
            raise ProcessingError(
                f"Store {spec.name!r} cannot be migrated to version {spec.version}: {type(error).__name__}: {text_of(error)}, "
                f"for the value {raw[:200]!r}. Nothing of this step is committed: correct migrate= or old=, and start again."
            ) from error

    return converted
