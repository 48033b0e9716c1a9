"""Sets offsets by hand, in a form that the next start accepts: the part of a reset that moves offsets.

If the state is kept, they belong to the committed epoch, so that only the position changes. If not, they belong to a first epoch
without records.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from penstock.config import Config
from penstock.epochs.program import lanes_topic
from penstock.errors import ConfigError, TopicError
from penstock.history.committed import facts_in, last_epoch
from penstock.history.past import NO_STATE
from penstock.kafka.changelog import read
from penstock.kafka.clients import consumer_settings
from penstock.kafka.commit import CommitMetadata, Committer, SourceOffset
from penstock.kafka.publishers import publisher_of
from penstock.kafka.topics import Topic, Topics
from penstock.records import NO_TIMESTAMP, Partition

KEPT = "kept"
"""Replaces the topology's fingerprint if no committed offset has it any more."""


class To(Enum):
    """The kinds of positions to continue from."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class Goal:
    """The position to continue from; `at` is a time in milliseconds or an offset, if the kind needs one."""

    to: To
    at: int = 0


Goals = Mapping[str, Mapping["int | None", Goal]]
"""The goals by topic and partition; None stands for all partitions of the topic."""


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that continues at offset `to`; `before` is its committed offset, if any."""

    topic: str
    partition: int
    before: int | None
    to: int


def find_moves(goals: Goals, offsets: Mapping[Partition, tuple[int, str]], topics: Topics) -> list[Move]:
    """Return the moves to the goals, according to the current topics."""
    found = topics.seen(goals)
    missing = sorted(goals.keys() - found.keys())
    if missing:
        raise TopicError(f"Topics do not exist: {', '.join(missing)}. Create them first.")
    moves = []
    for name, wanted in goals.items():
        places = [(name, number) for number in range(found[name].partitions)]
        unknown = sorted(number for number in wanted if number is not None and (name, number) not in places)
        if unknown:
            raise ConfigError(f"Topic {name!r} has no partition {unknown[0]}: it has {len(places)} partitions, counted from 0.")
        begins, ends = topics.begin_offsets(places), topics.end_offsets(places)
        for place in places:
            goal = wanted.get(place[1], wanted.get(None))
            if goal is not None:
                to = _offset(goal, place, begins[place], ends[place], topics)
                moves.append(Move(*place, offsets[place][0] if place in offsets else None, to))
    return moves


def _offset(goal: Goal, place: Partition, begin: int, end: int, topics: Topics) -> int:
    if goal.to is To.EARLIEST:
        return begin
    if goal.to is To.LATEST:
        return end
    if goal.to is To.TIME:
        return topics.offset_at(place, goal.at, end)
    if not begin <= goal.at <= end:
        raise ConfigError(f"{place[0]}-{place[1]} has no offset {goal.at}. Use one from {begin} to {end}.")
    return goal.at


def new_offsets(
    moves: list[Move], offsets: Mapping[Partition, tuple[int, str]], topics: Mapping[str, Topic], base: CommitMetadata
) -> list[SourceOffset]:
    """Return the new offsets of all partitions of the moved topics, with the metadata of a commit.

    Moved partitions count as unread: they have neither a watermark nor a highest event time. The others keep their offsets.
    """
    targets = {(move.topic, move.partition): move.to for move in moves}
    written = []
    for name in sorted({move.topic for move in moves}):
        topic = topics[name]
        for number in range(topic.partitions):
            place = (name, number)
            fresh = replace(
                base, topic_id=topic.topic_id, partitions=topic.partitions, high_time=NO_TIMESTAMP, watermark=NO_TIMESTAMP
            )
            if place in targets:
                written.append(SourceOffset(*place, targets[place], fresh.encode()))
                continue
            kept = CommitMetadata.decode(offsets[place][1]) if place in offsets else None
            if kept is None or kept.topic_id not in {None, topic.topic_id}:
                raise ConfigError(f"Partition {number} of topic {name!r} has no committed offset. Set its offset as well.")
            kept = replace(fresh, high_time=kept.high_time, watermark=kept.watermark)
            written.append(SourceOffset(*place, offsets[place][0], kept.encode()))
    return written


def base_of_kept_state(
    application_id: str, offsets: Mapping[Partition, tuple[int, str]], config: Config, topics: Topics
) -> CommitMetadata:
    """Return the metadata for offsets that keep the committed state: that of the last commit.

    If all offsets are gone, take the epoch from the lanes' topic: the last one in which a shard's registers changed, or 0 without
    any. Local stores may then not match the last commit, so that they catch up from the changelogs.
    """
    known = [CommitMetadata.decode(text) for _, text in offsets.values() if text]
    if known:
        return max(known, key=lambda found: found.epoch)
    name = lanes_topic(application_id)
    found = topics.seen([name])
    partitions = [(name, number) for number in range(found[name].partitions)] if found else []
    begins, ends = topics.begin_offsets(partitions), topics.end_offsets(partitions)
    rows = list(read(consumer_settings(config, application_id), begins, ends, config.broker_timeout_ms))
    if facts_in(rows) is None:
        raise ConfigError(f"{application_id!r} has no state to keep. Omit --keep-state.")
    return replace(base_of_no_state(config), epoch=last_epoch(rows) or 0, fingerprint=KEPT, shards=len(partitions))


def base_of_no_state(config: Config) -> CommitMetadata:
    """Return the metadata for offsets without state."""
    return CommitMetadata(
        epoch=0,
        incarnation=uuid.uuid4().hex,
        fingerprint=NO_STATE,
        lanes=config.lanes or 1,
        shards=config.shards or 1,  # of no state: the next start decides
        high_time=NO_TIMESTAMP,
        topic_id=None,
    )


def write_offsets(application_id: str, config: Config, offsets: list[SourceOffset]) -> None:
    """Commit the offsets, all or none. An instance that has started in the meantime is fenced, or fences this one."""
    publisher = publisher_of(config, application_id)
    publisher.start()
    try:
        Committer(publisher, config.broker_timeout_ms).write((), offsets)
    finally:
        publisher.close()
