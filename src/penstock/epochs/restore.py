"""Restores a lane to the committed epoch from the changelogs, starting with whatever is on its machine.

A store that is ahead, by as many epochs as were in flight, is rolled back; one that is behind catches up from its mark; one
without a usable mark is removed and rebuilt. The changelogs are the only source; local stores only make a restore faster.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from penstock import faults
from penstock.epochs.due import forget_due
from penstock.epochs.home import Home, open_lane, owned
from penstock.epochs.hops import own_mark
from penstock.epochs.program import Program, lanes_topic
from penstock.epochs.shards import shards_of
from penstock.errors import TopicError
from penstock.records import NO_TIMESTAMP
from penstock.state import (
    MARK_LIFE_MS,
    EngineFactory,
    EngineKind,
    LaneState,
    Mark,
    ShardState,
    StoreChanges,
    last_registers,
    retention_limit,
)
from penstock.topology.bindings import changelog_topic

LOST_CHANGELOG = "Restore the topic from a backup of the cluster, or reset the application."
"""The cure if Kafka has lost the state of the committed offsets."""


class Found(Enum):
    """The condition of a lane's local store."""

    UP_TO_DATE = "up to date"
    BEHIND = "behind"
    REBUILT = "rebuilt"


@dataclass(frozen=True)
class Committed:
    """The last committed transaction, to which lanes are restored.

    `begins` and `ends` are offsets of the changelogs by `topic/partition`, including that of the shards' registers. `topic_ids`
    are the ids of these topics, by name. `heads` are the ids of the writes of that epoch, by lane, as far as they are known, and
    `attempt` is the first whose tasks may use the lanes; both matter only if lanes run on several hosts.
    """

    epoch: int
    incarnation: str
    begins: Mapping[str, int]
    ends: Mapping[str, int]
    now_ms: int
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    heads: Mapping[int, str] = field(default_factory=dict)
    attempt: int = 0


class ChangelogRows(NamedTuple):
    """Changelog rows of one partition, in order."""

    topic: str
    partition: int
    keys: list[bytes]
    values: list[bytes | None]


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
    program: Program, lane: int, committed: Committed, read: ReadChangelog, report: Report, is_retry: bool
) -> Restored:
    """Restore a lane to the committed epoch. A retry does not use the local store, which may have killed the first attempt."""
    home = Home(program.directory, program.application_id)
    if program.is_spread:
        home.settle()
    with owned(program):  # all the time, so that a late task cannot remove the files of another start
        if is_retry or not _is_usable(program, lane, committed):
            shutil.rmtree(home.lane_directory(lane, program.lanes), ignore_errors=True)
        return _restore(program, lane, committed, read, report)


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
            rows = _catch_up(program, lane, state, committed, read, report)
        for shard in shards:
            forget_due(shard)
        faults.point("restore.before_mark")
        whole = Mark(committed.epoch, committed.now_ms, dict(committed.ends), dict(committed.topic_ids))
        mark = own_mark(program, lane, whole)
        state.restore([], committed.epoch, program.incarnation, mark, committed.attempt, committed.heads.get(lane))
        return Restored(lane, found.value, rows, state.head.write_id)


def _is_usable(program: Program, lane: int, committed: Committed) -> bool:
    """Whether the store can be opened, rolled back to a committed epoch and trusted; if not, it is rebuilt."""
    try:
        with open_lane(program, lane) as state:
            if state.epoch == -1:
                return False  # new, or a rebuild that was not completed
            _roll_back(state, _is_known(program, lane, state, committed), committed)
            _refuse_lost_rows(state, committed)
            if not _is_current(program, lane, state, committed) and not _has_usable_mark(state, committed):
                return False
            if program.is_spread and state.head.incarnation == program.incarnation:
                return True  # a lane that returns, or stays while others move: it was in use a moment ago
            if program.engine is not EngineKind.LMDB:
                state.verify()
                return True
            renewed = _renewed(state, Home(program.directory, program.application_id).lane_directory(lane, program.lanes))
        renewed()
    except TopicError:
        raise
    except Exception:  # noqa: BLE001 - whatever is wrong with the store, the changelog has all of its content
        return False
    return True


def _is_known(program: Program, lane: int, state: LaneState, committed: Committed) -> bool:
    """Whether it is known which epochs of a store are committed: it was written by the start that has committed last.

    On several hosts, that start may have written several stores of a lane: it is known of the one that has the committed write.
    """
    if program.is_spread:
        return lane in committed.heads and state.head.write_id_of(committed.epoch) == committed.heads[lane]
    return state.head.incarnation == committed.incarnation and state.epoch >= committed.epoch


def _roll_back(state: LaneState, is_known: bool, committed: Committed) -> None:
    """Take back the epochs that were in flight.

    If it is not known which of them Kafka has committed, all are taken back that can be: what is left was committed when they
    were written.
    """
    target = max(committed.epoch, state.earliest) if is_known else state.earliest
    if state.epoch > target:
        faults.point("restore.before_roll_back")
        state.roll_back(target + 1)


def _renewed(state: LaneState, directory: Path) -> Callable[[], None]:
    """Copy a store to a new file, and return a function that replaces the old file by it.

    LMDB has no checksums. The digests detect a damaged entry, but not a damaged branch page or list of free pages, which would
    cause errors later: so nothing of the old file's structure is kept.
    """
    fresh = directory.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    engine = EngineFactory(EngineKind.LMDB, str(fresh)).open()
    try:
        state.copy(engine)
    finally:
        engine.close()

    def replace() -> None:
        shutil.rmtree(directory)
        fresh.rename(directory)

    return replace


def _is_current(program: Program, lane: int, state: LaneState, committed: Committed) -> bool:
    """Whether there is nothing to read. A store that was removed from the topology for a while has to be read."""
    mark = state.head.mark
    is_at_epoch = state.epoch == committed.epoch and _is_known(program, lane, state, committed)
    if mark is None or not is_at_epoch or not _is_of_these_topics(mark, committed):
        return False
    return mark.offsets.keys() >= _of_lane(program, lane, committed.ends).keys()


def _has_usable_mark(state: LaneState, committed: Committed) -> bool:
    mark = state.head.mark
    if mark is None or mark.epoch > min(committed.epoch, state.epoch) or committed.now_ms - mark.time_ms > MARK_LIFE_MS:
        return False
    if not _is_of_these_topics(mark, committed):
        return False
    return all(committed.begins.get(place, 0) <= offset for place, offset in mark.offsets.items())


def _is_of_these_topics(mark: Mark, committed: Committed) -> bool:
    """Whether a mark belongs to the current topics; topics that are no longer read do not matter."""
    marked = {_place(place)[0] for place in mark.offsets}
    return all(mark.topic_ids.get(topic) == now for topic, now in committed.topic_ids.items() if topic in marked)


def _refuse_lost_rows(state: LaneState, committed: Committed) -> None:
    """Refuse a changelog that ends before a committed offset: a rebuild would lose state silently."""
    mark = state.head.mark
    if mark is None or mark.epoch > committed.epoch or not _is_of_these_topics(mark, committed):
        return
    for place, offset in mark.offsets.items():
        end = committed.ends.get(place)
        if end is not None and end < offset:
            topic, partition = _place(place)
            raise TopicError(
                f"{topic}-{partition} ends at offset {end}, but records up to offset {offset} were committed: the changelog has "
                f"lost records. {LOST_CHANGELOG}"
            )


def _judge(program: Program, lane: int, state: LaneState, committed: Committed) -> Found:
    if state.head.mark is None:
        return Found.REBUILT
    return Found.UP_TO_DATE if _is_current(program, lane, state, committed) else Found.BEHIND


def _catch_up(program: Program, lane: int, state: LaneState, committed: Committed, read: ReadChangelog, report: Report) -> int:
    """Apply the changelogs from the lane's mark, or from their beginning; registers come last, because rows change them too."""
    stores = {changelog_topic(program.application_id, store): store for store in program.logged_stores}
    shards = [state.shard(number) for number in shards_of(lane, program.shards, program.lanes)]
    registers = {shard.number: shard.registers.saved for shard in shards}
    for shard in shards if program.has_watermarks else ():
        _keep_everything(program, shard)
    ends = {_place(key): end for key, end in _of_lane(program, lane, committed.ends).items()}
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


def _of_lane(program: Program, lane: int, offsets: Mapping[str, int]) -> dict[str, int]:
    """Return the offsets of the changelog partitions that a lane owns."""
    own = shards_of(lane, program.shards, program.lanes)
    topics = [
        lanes_topic(program.application_id),
        *(changelog_topic(program.application_id, store) for store in program.logged_stores),
    ]
    return {place: offsets[place] for topic in topics for shard in own if (place := f"{topic}/{shard}") in offsets}


def _place(key: str) -> tuple[str, int]:
    topic, _, partition = key.rpartition("/")
    return topic, int(partition)
