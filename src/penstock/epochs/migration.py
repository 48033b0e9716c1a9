"""Migrations on a lane: an epoch without records that converts some values of stores, or the last one, which clears the traces.

How far a shard is, is in its registers, and so in Kafka with the values that it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow as pa
from structlog.contextvars import bound_contextvars

from penstock import faults
from penstock.epochs.assignment import Assignment
from penstock.epochs.home import open_lane
from penstock.epochs.hops import bring_to, write_lane
from penstock.epochs.opened import require_the_same
from penstock.errors import ProcessingError
from penstock.state import Register, ShardState, StoreSpec, rewrite

_DONE = -1


class Migrated(NamedTuple):
    """What an epoch of a migration did on a lane: its changelog rows, how many values it converted, and whether none are left."""

    rows: list[pa.Table]
    converted: int
    is_done: bool


def migrate_lane(assigned: Assignment, stores: Sequence[str], most: int) -> Migrated:
    """Convert up to `most` values of some stores, in an epoch without records."""
    converted, is_done = 0, True
    with bound_contextvars(lane=assigned.lane), open_lane(assigned.program, assigned.lane, assigned.epoch.attempt) as state:
        require_the_same(state, assigned)
        bring_to(state, assigned.epoch, assigned.stage)
        for number in assigned.shards:
            for store in stores:
                found, is_shard_done = _migrate(state.shard(number), assigned.program.specs[store], most - converted)
                converted += found
                is_done &= is_shard_done
        faults.point("migration.before_write")
        return Migrated(write_lane(assigned, state), converted, is_done)


def finish_lane(assigned: Assignment, stores: Sequence[str]) -> list[pa.Table]:
    """Clear the traces of a migration, in an epoch of its own; return changelog rows."""
    with bound_contextvars(lane=assigned.lane), open_lane(assigned.program, assigned.lane, assigned.epoch.attempt) as state:
        require_the_same(state, assigned)
        bring_to(state, assigned.epoch, assigned.stage)
        for number in assigned.shards:
            for store in stores:
                _progress(state.shard(number), assigned.program.specs[store]).value = 0
        return write_lane(assigned, state)


def _migrate(shard: ShardState, spec: StoreSpec, most: int) -> tuple[int, bool]:
    """Convert values of a store in one shard; return how many, and whether none are left."""
    progress = _progress(shard, spec)
    if progress.value == _DONE:
        return 0, True
    if most <= 0:
        return 0, False
    read, left, is_done = rewrite(shard, spec, progress.value, most, _converter(spec))
    progress.value = _DONE if is_done else progress.value + left
    return read, is_done


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
        except Exception as error:
            raise ProcessingError(
                f"Store {spec.name!r} cannot be migrated to version {spec.version}: {type(error).__name__}: {error}, for the "
                f"value {raw[:200]!r}. Nothing of this step is committed: correct migrate= or old=, and start again."
            ) from error

    return converted
