"""How a lane's store stands to what was committed: whether it can be trusted, which epochs are taken back, what is left to read.

It is the same for a store of this host, one that was copied from elsewhere, and one that was composed of others.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from penstock import faults
from penstock.epochs.program import Program, lanes_topic
from penstock.epochs.shards import shards_of
from penstock.errors import TopicError
from penstock.state import MARK_LIFE_MS, EngineFactory, EngineKind, Head, LaneState, Mark
from penstock.topology.bindings import changelog_topic

_log = logging.getLogger(__name__)

T = TypeVar("T")

LOST_CHANGELOG = "Restore the topic from a backup of the cluster, or reset the application."
"""The cure if Kafka has lost the state of the committed offsets."""


class Found(Enum):
    """The condition of a lane's local store, or where another one was found that was nearer."""

    UP_TO_DATE = "up to date"
    BEHIND = "behind"
    REBUILT = "rebuilt"
    COPIED = "copied"
    COMPOSED = "composed"


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


class Standing(NamedTuple):
    """What a store is good for: as of epoch `target`, it has what the changelogs had at `mark`.

    If it `is_exact`, it has all that was committed in the changelogs of its mark.
    """

    target: int
    mark: Mark
    is_exact: bool


def standing(head: Head, committed: Committed, is_known: bool) -> Standing | None:
    """Return what a store is good for, None if nothing; `is_known` says whether its committed epochs are known."""
    mark, target = head.mark, _target(head, committed, is_known)
    if target < 0 or mark is None or not is_of_these_topics(mark, committed):
        return None
    if is_known and target == committed.epoch:
        ends = {place: committed.ends[place] for place in mark.offsets if place in committed.ends}
        return Standing(target, Mark(target, committed.now_ms, ends, mark.topic_ids), is_exact=True)
    return Standing(target, mark, is_exact=False) if _can_be_used(mark, target, committed) else None


def offsets_left(program: Program, shards: Iterable[int], mark: Mark | None, committed: Committed) -> int:
    """Return how many offsets of the changelogs of some shards come after a mark; all of them without one."""
    known = {} if mark is None else mark.offsets
    ends = of_shards(program, shards, committed.ends)
    return sum(max(0, end - known.get(place, committed.begins.get(place, 0))) for place, end in ends.items())


def is_usable(program: Program, lane: int, committed: Committed, directory: Path, is_copy: bool = False) -> bool:
    """Whether a store can be opened, rolled back to a committed epoch and trusted; the roll-back is done then.

    A copy was just written: it is checked, and not copied once more.
    """
    return bool(attempted(f"The store {directory}", partial(_is_usable, program, lane, committed, directory, is_copy)))


def attempted(what: str, use: Callable[[], T]) -> T | None:
    """Return what the use of a store returns; None if there is anything wrong with it: the changelog has all of its content."""
    try:
        return use()
    except TopicError:
        raise
    except Exception as error:  # noqa: BLE001 - a file can be damaged in any way
        _log.warning("%s cannot be used: %s", what, error)
        return None


def _is_usable(program: Program, lane: int, committed: Committed, directory: Path, is_copy: bool) -> bool:
    with closing(LaneState(EngineFactory(program.engine, str(directory)).open())) as state:
        if state.epoch == -1:
            return False  # new, or a rebuild that was not completed
        roll_back(state, has_known_commits(program, lane, state.head, committed), committed)
        refuse_lost_rows(state.head, committed)
        if not is_current(program, lane, state.head, committed) and not _has_usable_mark(state.head, committed):
            return False
        if program.is_spread and state.head.incarnation == program.incarnation and not is_copy:
            return True  # a lane that returns, or stays while others move: it was in use a moment ago
        if is_copy or program.engine is not EngineKind.LMDB:
            state.verify()
            return True
        renewed = _renewed(state, directory)
    renewed()
    return True


def has_known_commits(program: Program, lane: int, head: Head, committed: Committed) -> bool:
    """Whether it is known which epochs of a store are committed: it was written by the start that has committed last.

    On several hosts, that start may have written several stores of a lane: it is known of the one that has the committed write.
    """
    if program.is_spread:
        return lane in committed.heads and head.write_id_of(committed.epoch) == committed.heads[lane]
    return head.incarnation == committed.incarnation and head.epoch >= committed.epoch


def roll_back(state: LaneState, is_known: bool, committed: Committed) -> None:
    """Take back the epochs that were in flight.

    If it is not known which of them Kafka has committed, all are taken back that can be: what is left was committed when they
    were written.
    """
    target = _target(state.head, committed, is_known)
    if state.epoch > target:
        faults.point("restore.before_roll_back")
        state.roll_back(target + 1)


def _target(head: Head, committed: Committed, is_known: bool) -> int:
    return max(committed.epoch, head.earliest) if is_known else head.earliest


def is_current(program: Program, lane: int, head: Head, committed: Committed) -> bool:
    """Whether there is nothing to read. A store that was removed from the topology for a while has to be read."""
    is_at_epoch = head.epoch == committed.epoch and has_known_commits(program, lane, head, committed)
    if head.mark is None or not is_at_epoch or not is_of_these_topics(head.mark, committed):
        return False
    own = shards_of(lane, program.shards, program.lanes)
    return head.mark.offsets.keys() >= of_shards(program, own, committed.ends).keys()


def is_of_these_topics(mark: Mark, committed: Committed) -> bool:
    """Whether a mark belongs to the current topics; topics that are no longer read do not matter."""
    marked = {place_of(place)[0] for place in mark.offsets}
    return all(mark.topic_ids.get(topic) == now for topic, now in committed.topic_ids.items() if topic in marked)


def refuse_lost_rows(head: Head, committed: Committed) -> None:
    """Refuse a changelog that ends before a committed offset: a rebuild would lose state silently."""
    mark = head.mark
    if mark is None or mark.epoch > committed.epoch or not is_of_these_topics(mark, committed):
        return
    for place, offset in mark.offsets.items():
        end = committed.ends.get(place)
        if end is not None and end < offset:
            topic, partition = place_of(place)
            raise TopicError(
                f"{topic}-{partition} ends at offset {end}, but records up to offset {offset} were committed: the changelog has "
                f"lost records. {LOST_CHANGELOG}"
            )


def of_shards(program: Program, shards: Iterable[int], offsets: Mapping[str, int]) -> dict[str, int]:
    """Return the offsets of the changelog partitions of some shards."""
    topics = [
        lanes_topic(program.application_id),
        *(changelog_topic(program.application_id, store) for store in program.logged_stores),
    ]
    own = list(shards)
    return {place: offsets[place] for topic in topics for shard in own if (place := f"{topic}/{shard}") in offsets}


def place_of(key: str) -> tuple[str, int]:
    """Return the topic and the partition of a place in a mark."""
    topic, _, partition = key.rpartition("/")
    return topic, int(partition)


def _has_usable_mark(head: Head, committed: Committed) -> bool:
    mark = head.mark
    return mark is not None and is_of_these_topics(mark, committed) and _can_be_used(mark, head.epoch, committed)


def _can_be_used(mark: Mark, epoch: int, committed: Committed) -> bool:
    if mark.epoch > min(committed.epoch, epoch) or committed.now_ms - mark.time_ms > MARK_LIFE_MS:
        return False
    return all(committed.begins.get(place, 0) <= offset for place, offset in mark.offsets.items())


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
