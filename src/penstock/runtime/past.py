"""How far an application had come, from the offsets its group has committed: what goes on, what is new, what was lost.

Every commit covers all partitions that its start reads. So offsets of the newest epoch are the last commit's; a topic whose
offsets are older was not read by it, because a version of the topology in between did without, and goes on where it was left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.barrier import CommitMetadata
from penstock.errors import StateError, TopicError
from penstock.plan import TopologyFacts
from penstock.records import Partition
from penstock.runtime.progress import Progress

RESET = "Reset the application"
"""The cure where offsets and state no longer fit together."""

NO_STATE = ""
"""In place of a topology's fingerprint in offsets that were set by hand, and belong to no state."""

FoundOffsets = Mapping[Partition, "tuple[int, str] | None"]


@dataclass(frozen=True)
class Past:
    """How far the application had come: none of it is of this start.

    `resumed` are topics that the last commit did not cover, with the epoch that did last. `added` are partitions without an
    offset that came after the last commit: all of their records are to be read, wherever the source says it begins. Offsets that
    a reset has set without keeping state say that there is none.
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
    """What the committed offsets and their metadata say; None if nothing has ever been committed.

    `offsets` are those of the topics that are read now, whose ids are `topic_ids`, and of those that the last commit covered.
    `facts` are of the topology that was committed last; `patterns` tells which topics are read because they match one.
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
                f"topic {topic!r} was deleted and created again since offsets were committed. {rewind(topic)}, or reset the "
                f"application"
            )
    if newest.shards != shards:
        raise StateError(f"the application was started with shards={newest.shards} and cannot go on with shards={shards}")
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
    """The cure where only the offsets of a topic have to be set anew."""
    return f"`penstock reset --keep-state --to-earliest {topic}` reads what there is from its beginning and keeps the state"


def _metadata(partition: Partition, text: str) -> CommitMetadata:
    if not text:
        raise StateError(
            f"the committed offset of {partition[0]}-{partition[1]} was not written by Penstock (a tool has reset it?): state "
            f"and offsets would not fit together. {RESET}"
        )
    return CommitMetadata.decode(text)


def _agreed(
    metadata: Mapping[Partition, CommitMetadata], newest: CommitMetadata, covered: Collection[str]
) -> dict[str, CommitMetadata]:
    """What is committed of each topic. Its partitions are committed together, and with all others of the same start."""
    topics: dict[str, CommitMetadata] = {}
    for (topic, partition), found in sorted(metadata.items(), key=lambda entry: (-entry[1].epoch, entry[0])):
        expected = newest if topic in covered else topics.setdefault(topic, found)
        topics.setdefault(topic, found)
        is_other_start = found.epoch == newest.epoch and found.incarnation != newest.incarnation
        if found.epoch != expected.epoch or found.incarnation != expected.incarnation or is_other_start:
            raise StateError(
                f"the committed offset of {topic}-{partition} is of epoch {found.epoch}, others are of epoch {expected.epoch}: "
                f"somebody else has committed for this group. {RESET}"
            )
    return topics


def _added(
    missing: Collection[Partition], topics: Mapping[str, CommitMetadata], covered: Collection[str], patterns: Mapping[str, str]
) -> frozenset[Partition]:
    """Those of the partitions without an offset that came after the last commit; refuses those that have lost theirs."""
    added = set()
    for topic, partition in missing:
        if topic in topics:
            count = topics[topic].partitions
            if partition < count or not count:
                raise TopicError(
                    f"partition {partition} of {topic!r} has no committed offset, others have one, and it was read before: its "
                    f"offset has expired or was deleted. {rewind(topic)}, or reset the application"
                )
            added.add((topic, partition))
        elif topic in covered:
            raise TopicError(
                f"topic {topic!r} was read up to the last commit and has no committed offset: it was deleted and created again, "
                f"or its offsets were deleted. {rewind(topic)}, or reset the application"
            )
        elif patterns.get(topic) in covered:
            added.add((topic, partition))
    return frozenset(added)


@dataclass(frozen=True, slots=True)
class Lost:
    """Input that is no longer there: the offset that comes next, and the one that can be gone on from."""

    topic: str
    partition: int
    offset: int
    goes_on_at: int

    @property
    def count(self) -> int:
        """How many offsets nobody will ever read."""
        return max(0, self.goes_on_at - self.offset)

    def __str__(self) -> str:
        place = f"{self.topic}-{self.partition}"
        if self.goes_on_at < self.offset:
            return f"{place} ends at offset {self.goes_on_at}, before the committed {self.offset}: it has lost records"
        return f"{place}: records from offset {self.offset} to {self.goes_on_at} were deleted before they were read"


def lost_input(
    offsets: Mapping[Partition, int], begins: Mapping[Partition, int], ends: Mapping[Partition, int]
) -> tuple[Lost, ...]:
    """Where a topic no longer has what comes next, or has less than was read."""
    lost = []
    for (topic, partition), offset in offsets.items():
        begin, end = begins.get((topic, partition), 0), ends.get((topic, partition), offset)
        if offset < begin or offset > end:
            lost.append(Lost(topic, partition, offset, begin if offset < begin else end))
    return tuple(lost)


def refuse_lost_input(lost: Collection[Lost]) -> None:
    """Refuse to go on without input that is gone."""
    if lost:
        raise TopicError(
            "; ".join(map(str, lost)) + ". Keep records for longer (retention.ms); to go on without these, set "
            "on_lost_input = continue, or move the offsets by `penstock reset --keep-state`"
        )
