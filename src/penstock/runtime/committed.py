"""What Kafka says is committed, read at a start and checked: the only truth there is about what has happened so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.epochs.program import lanes_topic
from penstock.epochs.restore import LOST_CHANGELOG, Committed
from penstock.errors import IncompatibleTopologyError, StateError, TopicError
from penstock.kafka.topics import InternalTopic
from penstock.plan import TopologyFacts, decode_facts, incompatibilities
from penstock.records import Partition
from penstock.runtime.past import RESET, Past
from penstock.state import EPOCH, last_registers

TOPOLOGY = b"topology"
"""The key of the record in the lanes' topic that keeps the topology's facts."""

_NOTES_OF_A_LANE = b"lane"
"""The key under which earlier versions kept what a lane remembered."""

FACTS_PARTITION = 0
"""The partition of the lanes' topic in which it is."""

LogRows = tuple[str, int, list[bytes], "list[bytes | None]"]
"""Rows of a topic: its name, the partition, keys and values."""


def refuse_state_without_offsets(application_id: str, begins: Mapping[Partition, int], ends: Mapping[Partition, int]) -> None:
    """Refuse to begin anew beside state: `begins` and `ends` are of the application's own topics."""
    if any(end > begins[place] for place, end in ends.items()):
        raise StateError(
            f"the group {application_id!r} has no committed offsets, but its changelogs are not empty: the offsets have expired, "
            f"were deleted, or went with the topics that were read. `penstock reset --keep-state` with where to go on keeps the "
            f"state; or reset the application, or give it another id"
        )


def refuse_lost_changelogs(
    application_id: str,
    committed: TopologyFacts | None,
    topic_ids: Mapping[str, str],
    topics: Iterable[InternalTopic],
    begins: Mapping[Partition, int],
) -> None:
    """Refuse to go on where changelogs were deleted, created again or emptied since offsets were committed.

    Lanes would be rebuilt without what is gone, and nobody would notice. Where records are deleted by age they may be gone.
    """
    if committed is None:
        raise TopicError(
            f"offsets are committed, but the topic {lanes_topic(application_id)!r}, which is part of each commit, is empty: "
            f"it was deleted or emptied. {LOST_CHANGELOG}"
        )
    for topic in topics:
        known = committed.topic_ids.get(topic.name)
        if known is not None and topic_ids.get(topic.name) != known:
            raise TopicError(
                f"topic {topic.name!r} was deleted and created again since offsets were committed, or is another cluster's: the "
                f"state that it held is gone. {LOST_CHANGELOG}"
            )
        if known is not None and topic.config.get("cleanup.policy") == "compact":
            for shard in range(topic.partitions):
                begin = begins.get((topic.name, shard), 0)
                if begin > 0:
                    raise TopicError(
                        f"{topic.name}-{shard}: records before offset {begin} were deleted, and with them state. {LOST_CHANGELOG}"
                    )


def last_epoch(rows: Iterable[LogRows]) -> int | None:
    """The last epoch that any shard has noted in the lanes' topic; None if nothing was."""
    noted = (last_registers(keys, values) for _, _, keys, values in rows)
    return max((registers[EPOCH] for registers in noted if registers is not None and EPOCH in registers), default=None)


def facts_in(rows: Iterable[LogRows]) -> TopologyFacts | None:
    """The topology's facts among rows of the lanes' topic; the last word counts."""
    facts: TopologyFacts | None = None
    for _, _, keys, values in rows:
        for key, value in zip(keys, values, strict=True):
            if value is not None and key == TOPOLOGY:
                facts = decode_facts(value)
    return facts


def refuse_state_of_lanes(rows: Iterable[LogRows]) -> None:
    """Refuse state of earlier versions, by what they wrote into the lanes' topic: nobody can tell what was which shard's."""
    for _, _, keys, values in rows:
        if any(key == _NOTES_OF_A_LANE and value is not None for key, value in zip(keys, values, strict=True)):
            raise StateError(f"the state was written by an earlier version of Penstock, by lanes and not by shards. {RESET}")


def refuse_incompatible(committed: TopologyFacts | None, now: TopologyFacts) -> None:
    """Refuse a topology that cannot use the committed state, with what changed."""
    complaints = [] if committed is None else incompatibilities(committed, now)
    if complaints:
        raise IncompatibleTopologyError(
            "the committed state belongs to another topology:\n  "
            + "\n  ".join(complaints)
            + "\nGive changed stores new names, use another application id, or reset the application"
        )


def committed_state(
    before: Past | None,
    begins: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    now_ms: int,
    topic_ids: Mapping[str, str],
) -> Committed:
    """What lanes are to be brought to; offsets and ids are of all changelogs."""
    if before is None:
        return Committed(-1, "", places(begins), places(ends), now_ms, topic_ids)
    return Committed(before.progress.epoch, before.incarnation, places(begins), places(ends), now_ms, topic_ids)


def places(offsets: Mapping[Partition, int]) -> dict[str, int]:
    """Offsets by `topic/partition`, as marks keep them."""
    return {f"{topic}/{partition}": offset for (topic, partition), offset in offsets.items()}
