"""The progress of earlier starts, from the committed offsets of the group: what continues, what is new, what was lost.

Every commit covers all partitions that its start reads. So offsets of the newest epoch are from the last commit. A topic with
older offsets was not part of the topology at the last commit, and continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.errors import StateError, TopicError
from penstock.history.progress import Progress
from penstock.kafka.commit import CommitMetadata
from penstock.records import Partition
from penstock.topology.plan import TopologyFacts

RESET = "Reset the application."
"""The cure if offsets and state no longer match."""

NO_STATE = ""
"""Replaces the topology's fingerprint in offsets that a reset has set without keeping state."""

FoundOffsets = Mapping[Partition, "tuple[int, str] | None"]


@dataclass(frozen=True)
class Past:
    """The progress of earlier starts.

    `resumed` are topics that the last commit did not cover, with the last epoch that did. `added` are partitions without an
    offset that were created after the last commit: they are read from their beginning, whatever the source's reset position.
    `has_state` is false if a reset has set the offsets without keeping state.
    """

    progress: Progress
    incarnation: str
    lanes: int
    resumed: Mapping[str, int] = field(default_factory=dict)
    added: frozenset[Partition] = frozenset()
    has_state: bool = True


def past(
    offsets: FoundOffsets,
    topic_ids: Mapping[str, str],
    shards: int,
    facts: TopologyFacts | None = None,
    patterns: Mapping[str, str] | None = None,
) -> Past | None:
    """Return the progress according to the committed offsets and their metadata; None if nothing was ever committed.

    `offsets` are of the topics that are read now, whose ids are `topic_ids`, and of those that the last commit covered. `facts`
    are those of the committed topology. `patterns` are the patterns that topics match, by topic.
    """
    known = {partition: found for partition, found in offsets.items() if found is not None}
    if not known:
        return None
    metadata = {partition: _metadata(partition, text) for partition, (_, text) in known.items()}
    newest = max(metadata.values(), key=lambda found: found.epoch)
    last = facts if facts is not None and facts.incarnation == newest.incarnation else None
    covered = frozenset(last.sources) if last is not None else frozenset()
    topics = _agreed(metadata, newest, covered)
    for topic, found in topics.items():
        if found.topic_id is not None and topic_ids.get(topic, found.topic_id) != found.topic_id:
            raise TopicError(
                f"Topic {topic!r} was deleted and created again since offsets were committed. {rewind(topic)}, or reset the "
                f"application."
            )
    if newest.shards != shards and newest.fingerprint != NO_STATE:
        raise StateError(
            f"The committed state has shards={newest.shards}, but the application was started with shards={shards}. The number "
            f"of shards cannot change: set shards to {newest.shards}, or leave it out."
        )
    own = {partition for partition in metadata if partition[0] in topic_ids}
    progress = Progress(
        newest.epoch,
        {partition: offset for partition, (offset, _) in known.items() if partition in own},
        {partition: found.high_time for partition, found in metadata.items() if partition in own},
        {partition: found.watermark for partition, found in metadata.items() if partition in own},
        newest.application_watermark,
    )
    missing = [partition for partition, found in offsets.items() if found is None and partition[0] in topic_ids]
    return Past(
        progress,
        newest.incarnation,
        newest.lanes,
        {topic: found.epoch for topic, found in topics.items() if found.epoch < newest.epoch and topic in topic_ids},
        _added(missing, topics, covered, patterns or {}),
        has_state=newest.fingerprint != NO_STATE,
    )


def rewind(topic: str) -> str:
    """Return the cure if only the offsets of a topic have to be set again."""
    return f"Run `penstock reset --keep-state --to-earliest {topic}` to read it from its beginning and keep the state"


def _metadata(partition: Partition, text: str) -> CommitMetadata:
    if not text:
        raise StateError(
            f"The committed offset of {partition[0]}-{partition[1]} was not written by Penstock (perhaps another tool reset it), "
            f"so that offsets and state would not match. {RESET}"
        )
    return CommitMetadata.decode(text)


def _agreed(
    metadata: Mapping[Partition, CommitMetadata], newest: CommitMetadata, covered: Collection[str]
) -> dict[str, CommitMetadata]:
    """Return the commit of each topic, after checking that all partitions of a topic, and of a start, were committed together."""
    topics: dict[str, CommitMetadata] = {}
    for (topic, partition), found in sorted(metadata.items(), key=lambda entry: (-entry[1].epoch, entry[0])):
        expected = newest if topic in covered else topics.setdefault(topic, found)
        topics.setdefault(topic, found)
        is_other_start = found.epoch == newest.epoch and found.incarnation != newest.incarnation
        if found.epoch != expected.epoch or found.incarnation != expected.incarnation or is_other_start:
            raise StateError(
                f"The committed offset of {topic}-{partition} is of epoch {found.epoch}, others are of epoch {expected.epoch}: "
                f"another program has committed offsets for this group. {RESET}"
            )
    return topics


def _added(
    missing: Collection[Partition], topics: Mapping[str, CommitMetadata], covered: Collection[str], patterns: Mapping[str, str]
) -> frozenset[Partition]:
    """Return which partitions without an offset were created after the last commit; refuse those that have lost theirs."""
    added = set()
    for topic, partition in missing:
        if topic in topics:
            count = topics[topic].partitions
            if partition < count or not count:
                raise TopicError(
                    f"Partition {partition} of topic {topic!r} was read before, but has no committed offset, while others have "
                    f"one: its offset has expired or was deleted. {rewind(topic)}, or reset the application."
                )
            added.add((topic, partition))
        elif topic in covered:
            raise TopicError(
                f"Topic {topic!r} was part of the last commit, but has no committed offset: it was deleted and created again, or "
                f"its offsets were deleted. {rewind(topic)}, or reset the application."
            )
        elif patterns.get(topic) in covered:
            added.add((topic, partition))
    return frozenset(added)


@dataclass(frozen=True, slots=True)
class Lost:
    """Lost input of a partition: the next offset to read, and the offset at which reading can continue."""

    topic: str
    partition: int
    offset: int
    goes_on_at: int

    @property
    def count(self) -> int:
        """The number of offsets that are skipped."""
        return max(0, self.goes_on_at - self.offset)

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}"
        if self.goes_on_at < self.offset:
            return f"{place} ends at offset {self.goes_on_at}, before the committed offset {self.offset}: it has lost records"
        return f"{place}: records from offset {self.offset} to {self.goes_on_at} were deleted before they were read"


def lost_input(
    offsets: Mapping[Partition, int], begins: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> tuple[Lost, ...]:
    """Return the partitions that no longer have the next offset to read, or that end before it."""
    lost = []
    for (topic, partition), offset in offsets.items():
        begin, end = begins.get((topic, partition), 0), ends.get((topic, partition), offset)
        if offset < begin or offset > end:
            lost.append(Lost(topic, partition, offset, begin if offset < begin else end))
    return tuple(lost)


def refuse_lost_input(lost: Collection[Lost]) -> None:
    """Raise if there is lost input."""
    if lost:
        raise TopicError(
            "; ".join(map(str, lost)) + ". Keep records for longer (retention.ms). To continue without these, set "
            "on_lost_input = continue, or move the offsets with `penstock reset --keep-state`."
        )
