"""Offsets that are set by hand, written so that the next start accepts them: what a reset to a place consists of.

With the state kept they are of the epoch that is committed, so that nothing but the place to read from changes. Without, they are
of a first epoch that had nothing to do.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from penstock.barrier import Barrier, CommitMetadata, SourceOffset
from penstock.config import Config, Guarantee
from penstock.epochs.program import lanes_topic
from penstock.errors import ConfigError, TopicError
from penstock.kafka.changelog import read
from penstock.kafka.clients import consumer_settings
from penstock.kafka.publishers import AtLeastOncePublisher, TransactionalPublisher
from penstock.kafka.topics import Topic, Topics
from penstock.records import NO_TIMESTAMP, Partition
from penstock.runtime.committed import facts_in, last_epoch
from penstock.runtime.past import NO_STATE

KEPT = "kept"
"""In place of a topology's fingerprint, where no offset is left that has it."""


class To(Enum):
    """Kinds of places to go on from."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIME = "time"
    OFFSET = "offset"


@dataclass(frozen=True, slots=True)
class Goal:
    """Where to go on: a time in milliseconds and an offset are told besides the kind."""

    to: To
    at: int = 0


Goals = Mapping[str, Mapping["int | None", Goal]]
"""By topic and partition; None stands for all partitions of the topic."""


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that goes on somewhere else: `before` is what was committed, if anything was."""

    topic: str
    partition: int
    before: int | None
    to: int


def find_moves(goals: Goals, offsets: Mapping[Partition, tuple[int, str]], topics: Topics) -> list[Move]:
    """Where the partitions are and where they go, as the topics are now."""
    found = topics.seen(goals)
    missing = sorted(goals.keys() - found.keys())
    if missing:
        raise TopicError(f"topics are missing: {', '.join(missing)}. Create them first")
    moves = []
    for name, wanted in goals.items():
        places = [(name, number) for number in range(found[name].partitions)]
        unknown = sorted(number for number in wanted if number is not None and (name, number) not in places)
        if unknown:
            raise ConfigError(f"{name} has {len(places)} partitions, from 0 on, and none is {unknown[0]}")
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
        raise ConfigError(f"{place[0]}-{place[1]} has offsets from {begin} to {end}, and {goal.at} is not among them")
    return goal.at


def new_offsets(
    moves: list[Move], offsets: Mapping[Partition, tuple[int, str]], topics: Mapping[str, Topic], base: CommitMetadata
) -> list[SourceOffset]:
    """All partitions of the topics that are moved, as a commit with this metadata leaves them.

    Those that are moved are as if nothing had been read of them: neither a watermark nor a highest time is known. Those beside
    them stay where they are.
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
                raise ConfigError(f"say where partition {number} of {name!r} goes on, too: it has no offset of that topic")
            kept = replace(fresh, high_time=kept.high_time, watermark=kept.watermark)
            written.append(SourceOffset(*place, offsets[place][0], kept.encode()))
    return written


def base_of_kept_state(
    application_id: str, offsets: Mapping[Partition, tuple[int, str]], config: Config, topics: Topics
) -> CommitMetadata:
    """What offsets have to say that go with the committed state: what the last commit said.

    Where all offsets are gone, the lanes' topic tells the last epoch in which a shard's clocks moved; of an application without
    any, epochs are counted anew. Stores on a machine are then not known to be as of the last commit: they catch up from the
    changelogs.
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
        raise ConfigError(f"there is no state of {application_id!r} to keep; leave --keep-state out")
    return replace(base_of_no_state(config), epoch=last_epoch(rows) or 0, fingerprint=KEPT, shards=len(partitions))


def base_of_no_state(config: Config) -> CommitMetadata:
    """What offsets have to say that stand alone."""
    return CommitMetadata(
        epoch=0,
        incarnation=uuid.uuid4().hex,
        fingerprint=NO_STATE,
        lanes=config.lanes or 1,
        shards=config.shards,
        high_time=NO_TIMESTAMP,
        topic_id=None,
    )


def write_offsets(application_id: str, config: Config, offsets: list[SourceOffset]) -> None:
    """Commit them, all or none. An instance that has started meanwhile is fenced, or fences this."""
    publisher: TransactionalPublisher | AtLeastOncePublisher
    if config.guarantee is Guarantee.EXACTLY_ONCE:
        publisher = TransactionalPublisher(config, application_id, application_id, (), ())
    else:
        publisher = AtLeastOncePublisher(config, application_id, (), ())
    publisher.start()
    try:
        Barrier(publisher, config.broker_timeout_ms).commit(0, (), offsets)
    finally:
        publisher.close()
