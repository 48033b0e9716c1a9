"""Restores a lane to the committed epoch from the changelogs, starting with the nearest store of it that can be found.

A store that is ahead, by as many epochs as were in flight, is rolled back; one that is behind catches up from its mark; without a
usable store the lane is rebuilt. The changelogs are the only source; stores, here or elsewhere, only make a restore faster.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from penstock import faults
from penstock.advance import advanced
from penstock.epochs.copies import bring_nearer
from penstock.epochs.due import forget_due
from penstock.epochs.hops import own_mark
from penstock.epochs.program import Program
from penstock.epochs.shards import shards_of
from penstock.epochs.standing import Committed, Found, is_current, is_usable, of_shards, place_of
from penstock.epochs.state_directory import StateDirectory, open_lane, owned
from penstock.records import NO_TIMESTAMP, ChangelogRows
from penstock.state import MARK_LIFE_MS, LaneState, Mark, ShardState, StoreChanges, last_registers, retention_limit
from penstock.state.remote.client import Address
from penstock.topology.bindings import changelog_topic

ReadChangelog = Callable[[Mapping[tuple[str, int], int], Mapping[tuple[str, int], int]], Iterable[ChangelogRows]]
"""`read(positions, ends)`: all committed rows in between."""

Report = Callable[[int], None]
"""Called with the number of offsets left to read."""


class Restored(NamedTuple):
    """How a lane was restored. `write_id` is that of its store, `port` that of its host's lane server, 0 if it has none."""

    lane: int
    found: str
    rows: int
    write_id: str
    port: int = 0


def restore_lane(
    program: Program,
    lane: int,
    committed: Committed,
    read: ReadChangelog,
    report: Report,
    is_retry: bool,
    peer: Address | None = None,
) -> Restored:
    """Restore a lane to the committed epoch. `peer` is the lane server of the host that has had the lane, if that is another one.

    A retry uses no store, neither the local one nor others: one of them may have killed the first attempt.
    """
    home = StateDirectory(program.directory, program.application_id)
    if program.is_spread:
        home.settle()
        home.forget_others(program.lanes, unused_for_s=MARK_LIFE_MS / 1_000)  # with marks as old, they are of no use
    directory = home.lane_directory(lane, program.lanes)
    advanced(f"checking the store {directory}")
    with owned(program):  # all the time, so that a late task cannot remove the files of another start
        if is_retry or not is_usable(program, lane, committed, directory):
            shutil.rmtree(directory, ignore_errors=True)
        brought = None if is_retry else bring_nearer(program, lane, committed, peer)
        restored = _restore(program, lane, committed, read, report)
        return restored if brought is None else restored._replace(found=brought.value)


def _restore(program: Program, lane: int, committed: Committed, read: ReadChangelog, report: Report) -> Restored:
    with open_lane(program, lane) as state:
        shards = [state.shard(number) for number in shards_of(lane, program.shards, program.lanes)]
        for shard in shards:
            for name, spec in program.specs.items():
                if name not in program.global_stores:
                    shard.store(spec)
        found = _judge(program, lane, state, committed)
        rows = 0
        if found is not Found.UP_TO_DATE:
            advanced(
                f"asking for the changelogs from the mark of epoch {-1 if state.head.mark is None else state.head.mark.epoch} on"
            )
            rows = _catch_up(program, lane, state, committed, read, report)
        for shard in shards:
            forget_due(shard)
        faults.point("restore.before_mark")
        whole = Mark(committed.epoch, committed.now_ms, dict(committed.ends), dict(committed.topic_ids))
        mark = own_mark(program, lane, whole)
        state.restore([], committed.epoch, program.incarnation, mark, committed.attempt, committed.heads.get(lane))
        return Restored(lane, found.value, rows, state.head.write_id)


def _judge(program: Program, lane: int, state: LaneState, committed: Committed) -> Found:
    if state.head.mark is None:
        return Found.REBUILT
    return Found.UP_TO_DATE if is_current(program, lane, state.head, committed) else Found.BEHIND


def _catch_up(program: Program, lane: int, state: LaneState, committed: Committed, read: ReadChangelog, report: Report) -> int:
    """Apply the changelogs from the lane's mark, or from their beginning; registers come last, because rows change them too."""
    stores = {changelog_topic(program.application_id, store): store for store in program.logged_stores}
    own = shards_of(lane, program.shards, program.lanes)
    shards = [state.shard(number) for number in own]
    registers = {shard.number: shard.registers.saved for shard in shards}
    for shard in shards if program.has_watermarks else ():
        _keep_everything(program, shard)
    ends = {place_of(key): end for key, end in of_shards(program, own, committed.ends).items()}
    saved = {} if state.head.mark is None else state.head.mark.offsets
    starts = {place: saved.get(f"{place[0]}/{place[1]}", committed.begins.get(f"{place[0]}/{place[1]}", 0)) for place in ends}
    left = sum(max(0, end - starts[place]) for place, end in ends.items())
    total = 0
    report(left)
    for topic, partition, keys, values in read(starts, ends):
        if topic in stores:
            state.restore([StoreChanges(stores[topic], keys, values, partition)])
        else:
            registers[partition] = last_registers(keys, values) or registers[partition]
        total += len(keys)
        report(max(0, left - total))
        faults.point("restore.chunk")
    for shard in shards:
        shard.restore_registers(registers[shard.number])
    report(0)
    return total


def _keep_everything(program: Program, shard: ShardState) -> None:
    """Expire nothing while restoring: watermarks are known only with the registers."""
    for name in program.logged_stores:
        if program.specs[name].retention_ms is not None:
            retention_limit(shard.registers, name).value = NO_TIMESTAMP
