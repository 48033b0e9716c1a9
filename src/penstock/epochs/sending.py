"""From what a lane has sent and changed to rows of a table: the way out of a stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from penstock.epochs.program import Program, changelog_topic, lanes_topic
from penstock.epochs.shards import lane_of, shard_of, shards_of
from penstock.epochs.wire import Kind, headers_array, wire
from penstock.errors import StateError
from penstock.lanes.epoch import FIRST, LAST
from penstock.lanes.lane import BEFORE_RECORDS
from penstock.lanes.outbox import Row
from penstock.records import NO_TIMESTAMP
from penstock.state import StoreChanges

_BITS = 20
_LEVELS = 3

_encode = msgspec.msgpack.Encoder().encode


class LaneNotes(msgspec.Struct, array_like=True, frozen=True):
    """What a lane remembers besides its stores, as the lanes' topic keeps it: who wrote it, and its registers."""

    lanes: int
    epoch: int
    registers: dict[str, int]


_decode_notes = msgspec.msgpack.Decoder(LaneNotes).decode


def decode_notes(data: bytes) -> LaneNotes:
    """A lane's notes from their bytes."""
    try:
        return _decode_notes(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise StateError(f"the lanes' topic has notes that this version cannot read ({error}): reset the application") from None


def rows_out(program: Program, rows: Sequence[Row], lane: int) -> pa.Table | None:
    """Rows for topics."""
    leaving = [row for row in rows if not row.exchange]
    if not leaving:
        return None
    topics, keys, values, timestamps, headers, partitions, _, dead = zip(*leaving, strict=True)
    codes = program.topic_codes
    names = [codes.get(topic, -1) for topic in topics]
    return wire(
        len(leaving),
        lane=np.full(len(leaving), lane, np.int32),
        kind=[Kind.DEAD_LETTER if is_dead else Kind.SINK for is_dead in dead] if any(dead) else _all(len(leaving), Kind.SINK),
        name=names,
        topic=[None if code >= 0 else topic for code, topic in zip(names, topics, strict=True)] if -1 in names else None,
        partition=partitions if any(partition is not None for partition in partitions) else None,
        timestamp=timestamps,
        key=keys,
        value=values,
        headers=headers_array(headers),
    )


def rows_to_exchanges(
    program: Program, rows: Sequence[Row], causes: list[int], walked: pa.Table, lane: int, level: int
) -> pa.Table | None:
    """Rows for later stages, each on the lane of its new key, with the place of the record it follows from."""
    leaving = [row for row in rows if row.exchange]
    if not leaving:
        return None
    topics, keys, values, timestamps, headers, *_ = zip(*leaving, strict=True)
    count = len(leaving)
    sources = program.exchange_source
    return wire(
        count,
        lane=_lanes_of_rows(program, topics, keys),
        kind=_all(count, Kind.RECORD),
        name=[sources[topic] for topic in topics],
        timestamp=timestamps,
        key=keys,
        value=values,
        headers=headers_array(headers),
        **_places(np.array(causes, np.int64), walked, lane, level, program.attaches_stream_time),
    )


def _lanes_of_rows(program: Program, topics: Sequence[str], keys: Sequence[bytes | None]) -> list[int]:
    """The lane of each row: that of its key, but the first for what goes into an atomic section."""
    lanes, serial = lanes_of_keys(program, keys), program.serial_exchanges
    return [0 if topic in serial else lane for topic, lane in zip(topics, lanes, strict=True)] if serial else lanes


def lanes_of_keys(program: Program, keys: Sequence[bytes | None]) -> list[int]:
    """The lane of each key; a record without one can be anywhere."""
    shards, lanes = program.shards, program.lanes
    owner = [lane_of(shard, shards, lanes) for shard in range(shards)]
    return [0 if key is None else owner[shard_of(key, shards)] for key in keys]


def _places(causes: Any, walked: pa.Table, lane: int, level: int, has_stream_time: bool) -> dict[str, Any]:
    """Where rows are in the merged order: that of their cause, told apart by a path of their numbers at each level.

    What a lane sends before its first record has an origin of its own, in front of all others.
    """
    numbers = np.arange(len(causes))
    number = _number_by_cause(causes)
    is_caused = causes >= 0
    rows = np.maximum(causes, 0)
    if walked.num_rows:
        column = {name: walked.column(name).fill_null(0).to_numpy()[rows] for name in ("origin", "offset", "place", "path")}
    else:
        column = dict.fromkeys(("origin", "offset", "place", "path"), np.zeros(len(causes), np.int64))
    is_before = causes == BEFORE_RECORDS
    for name, value in (("origin", BEFORE_RECORDS), ("offset", level << 32 | lane), ("place", FIRST), ("path", 0)):
        column[name] = np.where(is_before, value, column[name])
    step = np.minimum(number, (1 << _BITS) - 1) << (_BITS * max(0, _LEVELS - 1 - level)) if level < _LEVELS else 0 * number
    is_caused = (is_caused | is_before) & (column["place"] != LAST)  # what follows from a flush comes last in later stages too
    times = None
    if has_stream_time:
        times = np.full(len(causes), NO_TIMESTAMP)  # a flush or a timer stands for no single record
        if walked.num_rows:
            times = np.where(causes >= 0, walked.column("stream_time").fill_null(NO_TIMESTAMP).to_numpy()[rows], times)
    return {
        "origin": np.where(is_caused, column["origin"], -1).astype(np.int32),
        "offset": np.where(is_caused, column["offset"], lane),
        "place": np.where(is_caused, column["place"], LAST),
        "path": np.where(is_caused, column["path"] | step, numbers),
        "stream_time": times,
    }


def _number_by_cause(causes: Any) -> Any:
    """Which of its cause's rows each row is. Answers to calls come after all that was sent while records were in hand."""
    if (np.diff(causes) >= 0).all():
        return _number_in_run(causes)
    order = np.argsort(causes, kind="stable")
    number = np.empty(len(causes), np.int64)
    number[order] = _number_in_run(causes[order])
    return number


def _number_in_run(causes: Any) -> Any:
    starts = np.flatnonzero(np.diff(causes, prepend=BEFORE_RECORDS - 1))
    return np.arange(len(causes)) - np.repeat(starts, np.diff(np.append(starts, len(causes))))


def rows_of_changes(program: Program, changes: Sequence[StoreChanges], lane: int, stage: int, timestamp: int) -> list[pa.Table]:
    """Changelog rows, each for the partition of its shard.

    A store that atomic sections write is written by two tasks in an epoch: its rows say which stage they are of, so that
    `in_order_of_stages` can tell which come last.
    """
    tables = []
    for store, keys, values in changes:
        has_sections = store in program.section_stores
        code = program.topic_codes[changelog_topic(program.application_id, store)]
        tables.append(
            wire(
                len(keys),
                lane=_all(len(keys), lane, np.int32),
                kind=_all(len(keys), Kind.CHANGELOG),
                place=_all(len(keys), stage, np.int64) if has_sections else None,
                name=_all(len(keys), code, np.int16),
                partition=program.shards_of_rows(store, lane)(keys),
                timestamp=_all(len(keys), timestamp, np.int64),
                key=keys,
                value=values,
            )
        )
    return tables


def in_order_of_stages(passing: pa.Table) -> pa.Table:
    """Rows on their way through a lane, changelog rows behind those of earlier stages; all else stays as it is."""
    places = passing.column("place").fill_null(-1).to_numpy()
    stages = np.where(passing.column("kind").to_numpy() == Kind.CHANGELOG, places, -1)
    return passing if (np.diff(stages) >= 0).all() else passing.take(pa.array(np.argsort(stages, kind="stable")))


def row_of_notes(program: Program, registers: dict[str, int], lane: int, epoch: int, timestamp: int) -> pa.Table:
    """What the lane remembers besides its stores, in the partition of its first shard."""
    first = shards_of(lane, program.shards, program.lanes).start
    return wire(
        1,
        lane=[lane],
        kind=[Kind.CHANGELOG],
        name=[program.topic_codes[lanes_topic(program.application_id)]],
        partition=[first],
        timestamp=[timestamp],
        key=[b"lane"],
        value=[_encode(LaneNotes(program.lanes, epoch, registers))],
    )


def _all(count: int, value: int, kind: Any = np.int8) -> Any:
    return np.full(count, value, kind)
