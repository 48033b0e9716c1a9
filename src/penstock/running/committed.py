"""What Kafka says is committed, read at a start and checked: the only truth there is about what has happened so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from penstock.barrier import CommitMetadata
from penstock.epochs.program import lanes_topic
from penstock.epochs.restoring import Committed, registers_of_lanes
from penstock.epochs.sending import decode_notes
from penstock.epochs.shards import lane_of, shards_of
from penstock.errors import IncompatibleTopologyError, StateError, TopicError
from penstock.plan import TopologyFacts, decode_facts, incompatibilities
from penstock.running.epochs import Progress
from penstock.running.taking import Partition

TOPOLOGY = b"topology"
"""The key of the record in the lanes' topic that keeps the topology's facts."""

FACTS_PARTITION = 0
"""The partition of the lanes' topic in which it is."""

RESET = "Reset the application"
"""The cure where offsets and state no longer fit together."""

FoundOffsets = Mapping[Partition, "tuple[int, str] | None"]


@dataclass(frozen=True)
class Past:
    """How far the application had come: None of it is of this start."""

    progress: Progress
    incarnation: str
    lanes: int


def past(offsets: FoundOffsets, topic_ids: Mapping[str, str], shards: int) -> Past | None:
    """What the committed offsets and their metadata say; None if nothing has ever been committed."""
    known = {partition: found for partition, found in offsets.items() if found is not None}
    if not known:
        return None
    texts = {partition: text for partition, (_, text) in known.items()}
    metadata = {partition: _metadata(partition, text) for partition, text in texts.items()}
    newest = max(metadata.values(), key=lambda found: found.epoch)
    for (topic, partition), found in metadata.items():
        if found.epoch != newest.epoch or found.incarnation != newest.incarnation:
            raise StateError(
                f"the committed offset of {topic}-{partition} is of epoch {found.epoch}, others are of epoch {newest.epoch}: "
                f"somebody else has committed for this group. {RESET}"
            )
        if found.topic_id is not None and topic_ids.get(topic, found.topic_id) != found.topic_id:
            raise TopicError(f"topic {topic!r} was deleted and created again since offsets were committed. {RESET}")
    if newest.shards != shards:
        raise StateError(f"the application was started with shards={newest.shards} and cannot go on with shards={shards}")
    _refuse_partly_known(offsets)
    high_times = {partition: found.high_time for partition, found in metadata.items()}
    watermarks = {partition: found.watermark for partition, found in metadata.items()}
    offsets_known = {partition: offset for partition, (offset, _) in known.items()}
    progress = Progress(newest.epoch, offsets_known, high_times, watermarks, newest.application_watermark)
    return Past(progress, newest.incarnation, newest.lanes)


def _metadata(partition: Partition, text: str) -> CommitMetadata:
    if not text:
        raise StateError(
            f"the committed offset of {partition[0]}-{partition[1]} was not written by Penstock (a tool has reset it?): state "
            f"and offsets would not fit together. {RESET}"
        )
    return CommitMetadata.decode(text)


def _refuse_partly_known(offsets: FoundOffsets) -> None:
    """Every partition is committed at every barrier: one without an offset beside others is new, or has been lost."""
    topics: dict[str, list[int]] = {}
    for (topic, partition), found in offsets.items():
        if found is not None:
            topics.setdefault(topic, []).append(partition)
    for (topic, partition), found in offsets.items():
        if found is None and topic in topics:
            raise TopicError(
                f"partition {partition} of {topic!r} has no committed offset, others have one: partitions were added, which "
                f"moves keys, or the offset has expired. {RESET}"
            )


def refuse_lost_records(progress: Progress, begins: Mapping[Partition, int], ends: Mapping[Partition, int]) -> None:
    """Refuse to go on where the topic no longer has what comes next, or has less than was read."""
    for (topic, partition), offset in progress.offsets.items():
        begin, end = begins.get((topic, partition), 0), ends.get((topic, partition), offset)
        if offset < begin:
            raise TopicError(
                f"{topic}-{partition}: records from offset {offset} to {begin} were deleted before they were read. "
                f"Keep them for longer (retention.ms), and reset the application"
            )
        if offset > end:
            raise TopicError(f"{topic}-{partition} ends at offset {end}, before the committed {offset}: it has lost records")


def refuse_state_without_offsets(application_id: str, begins: Mapping[Partition, int], ends: Mapping[Partition, int]) -> None:
    """Refuse to begin anew beside state: `begins` and `ends` are of the application's own topics."""
    if any(end > begins[place] for place, end in ends.items()):
        raise StateError(
            f"the group {application_id!r} has no committed offsets, but its changelogs are not empty: the offsets have expired "
            f"or were deleted. Reset the application, or give it another id"
        )


@dataclass(frozen=True)
class LanesLog:
    """The content of the lanes' topic: the topology's facts, and the registers of each lane that wrote it."""

    facts: TopologyFacts | None
    registers: Mapping[int, Mapping[str, int]]


def lanes_log(
    application_id: str, rows: Iterable[tuple[str, int, list[bytes], list[bytes | None]]], lanes: int, shards: int
) -> LanesLog:
    """Read the rows of the lanes' topic; those that were written under another number of lanes are history."""
    facts: TopologyFacts | None = None
    registers: dict[int, Mapping[str, int]] = {}
    for topic, partition, keys, values in rows:
        assert topic == lanes_topic(application_id)
        for key, value in zip(keys, values, strict=True):
            if value is None:
                continue
            if key == TOPOLOGY:
                facts = decode_facts(value)
                continue
            notes = decode_notes(value)
            lane = lane_of(partition, shards, lanes)
            if notes.lanes == lanes and shards_of(lane, shards, lanes).start == partition:
                registers[lane] = notes.registers
    return LanesLog(facts, registers)


def facts_in(rows: Iterable[tuple[str, int, list[bytes], list[bytes | None]]]) -> TopologyFacts | None:
    """The topology's facts among rows of the lanes' topic; the last word counts."""
    known = (value for _, _, keys, values in rows for key, value in zip(keys, values, strict=True) if key == TOPOLOGY)
    found = [value for value in known if value is not None]
    return decode_facts(found[-1]) if found else None


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
    log: LanesLog,
    lanes: int,
    shards: int,
    begins: Mapping[Partition, int],
    ends: Mapping[Partition, int],
    now_ms: int,
) -> Committed:
    """What lanes are to be brought to."""
    registers = registers_of_lanes(log.registers, before.lanes, lanes, shards) if before else {}
    return Committed(
        before.progress.epoch if before else -1,
        before.incarnation if before else "",
        places(begins),
        places(ends),
        registers,
        now_ms,
    )


def places(offsets: Mapping[Partition, int]) -> dict[str, int]:
    """Offsets by `topic/partition`, as marks keep them."""
    return {f"{topic}/{partition}": offset for (topic, partition), offset in offsets.items()}
