"""The committed state according to Kafka, read and checked at a start: the only source of truth about earlier runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from penstock.epochs.program import lanes_topic
from penstock.epochs.standing import LOST_CHANGELOG, Committed
from penstock.errors import IncompatibleTopologyError, StateError, TopicError
from penstock.history.past import RESET, Past
from penstock.kafka.topics import InternalTopic
from penstock.records import Partition
from penstock.state import EPOCH, last_registers
from penstock.topology.plan import TopologyFacts, decode_facts, incompatibilities

TOPOLOGY = b"topology"
"""The key of the record in the lanes' topic that has the topology's facts."""

ACTIVE = b"active"
"""The key of the record in the lanes' topic by which an instance announces itself to standbys."""

_NOTES_OF_A_LANE = b"lane"
"""The key under which earlier versions wrote the registers of a lane."""

FACTS_PARTITION = 0
"""The partition of the lanes' topic that has the facts."""

LogRows = tuple[str, int, list[bytes], "list[bytes | None]"]
"""Rows of a topic: its name, the partition, keys and values."""


def refuse_state_without_offsets(application_id: str, rows: Iterable[LogRows]) -> None:
    """Refuse to start without offsets if there is state; `rows` are committed rows of the application's own topics.

    Offsets of the topics do not say it: those of an instance that was killed in its first transaction have moved, too.
    """
    if has_state(rows):
        raise StateError(
            f"Group {application_id!r} has no committed offsets, but its changelogs are not empty: the offsets have expired, or "
            f"were deleted, perhaps with their topics. Set new offsets with `penstock reset --keep-state` to keep the state, "
            f"reset the application, or use another application id."
        )


def has_state(rows: Iterable[LogRows]) -> bool:
    """Whether rows of the application's own topics are more than an announcement: that comes before the first commit."""
    return any(key != ACTIVE for _, _, keys, _ in rows for key in keys)


def refuse_lost_changelogs(
    application_id: str,
    committed: TopologyFacts | None,
    topic_ids: Mapping[str, str],
    topics: Iterable[InternalTopic],
    begins: Mapping[Partition, int],
) -> None:
    """Refuse to start if changelogs were deleted, recreated or truncated since offsets were committed.

    Lanes would be rebuilt without the lost records, and nobody would notice. A changelog with retention may lose records.
    """
    if committed is None:
        raise TopicError(
            f"Offsets are committed, but topic {lanes_topic(application_id)!r}, which is part of each commit, is empty: it was "
            f"deleted or truncated. {LOST_CHANGELOG}"
        )
    for topic in topics:
        known = committed.topic_ids.get(topic.name)
        if known is not None and topic_ids.get(topic.name) != known:
            raise TopicError(
                f"Topic {topic.name!r} was deleted and created again since offsets were committed, or belongs to another "
                f"cluster: its state is lost. {LOST_CHANGELOG}"
            )
        if known is not None and topic.config.get("cleanup.policy") == "compact":
            for shard in range(topic.partitions):
                begin = begins.get((topic.name, shard), 0)
                if begin > 0:
                    raise TopicError(
                        f"{topic.name}-{shard}: records before offset {begin} were deleted, so state is lost. {LOST_CHANGELOG}"
                    )


def last_epoch(rows: Iterable[LogRows]) -> int | None:
    """Return the last epoch that any shard has written to the lanes' topic; None if there is none."""
    noted = (last_registers(keys, values) for _, _, keys, values in rows)
    return max((registers[EPOCH] for registers in noted if registers is not None and EPOCH in registers), default=None)


def facts_in(rows: Iterable[LogRows]) -> TopologyFacts | None:
    """Return the topology's facts from rows of the lanes' topic; the last ones count."""
    facts: TopologyFacts | None = None
    for _, _, keys, values in rows:
        for key, value in zip(keys, values, strict=True):
            if value is not None and key == TOPOLOGY:
                facts = decode_facts(value)
    return facts


def refuse_state_of_lanes(rows: Iterable[LogRows]) -> None:
    """Refuse state of earlier versions, recognised by their lanes' topic: it does not say which shard a value belongs to."""
    for _, _, keys, values in rows:
        if any(key == _NOTES_OF_A_LANE and value is not None for key, value in zip(keys, values, strict=True)):
            raise StateError(f"The state was written by an earlier version of Penstock, by lane instead of by shard. {RESET}")


def refuse_incomplete_restore(application_id: str, committed: TopologyFacts | None) -> None:
    """Refuse state of which only a part was restored from a savepoint."""
    if committed is not None and committed.restoring:
        raise StateError(
            f"A restore of {application_id!r} from savepoint {committed.restoring} was interrupted: its state is not complete. "
            f"Run `penstock restore` again, or reset the application."
        )


def refuse_incompatible(
    committed: TopologyFacts | None,
    now: TopologyFacts,
    can: Collection[str] = (),
    declared: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse a topology that cannot use the committed state, and say what changed.

    Stores in `can` can be converted, and those in `declared` take over another one's content.
    """
    complaints = [] if committed is None else incompatibilities(committed, now, can, declared)
    if complaints:
        raise IncompatibleTopologyError(
            "The committed state belongs to another topology:\n  "
            + "\n  ".join(complaints)
            + "\nGive changed stores new names, use another application id, or reset the application."
        )


def committed_state(
    before: Past | None,
    begins: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    now_ms: int,
    topic_ids: Mapping[str, str],
) -> Committed:
    """Return the state that lanes are restored to; offsets and ids are those of all changelogs."""
    if before is None:
        return Committed(-1, "", places(begins), places(ends), now_ms, topic_ids)
    return Committed(before.progress.epoch, before.incarnation, places(begins), places(ends), now_ms, topic_ids)


def places(offsets: Mapping[Partition, int]) -> dict[str, int]:
    """Return offsets by `topic/partition`, as in marks."""
    return {f"{topic}/{partition}": offset for (topic, partition), offset in offsets.items()}
