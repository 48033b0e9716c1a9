"""The output of a stage: what a lane has sent and changed, as rows of a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.epochs.assignment import Assignment
from penstock.epochs.program import Program, lanes_topic
from penstock.epochs.shards import shard_of
from penstock.epochs.wire import Control, Kind, control_row, wire
from penstock.lanes.cursor import BEFORE_RECORDS
from penstock.lanes.epoch import FIRST, LAST, RECORDS, headers_array, in_turn
from penstock.lanes.outbox import Outbox, Row, RowKind
from penstock.records import NO_TIMESTAMP
from penstock.state import REGISTERS, StoreChanges
from penstock.topology.bindings import changelog_topic

_BITS = 20
_LEVELS = 3


RECORDS_BY_SHARD = pa.schema([*RECORDS, pa.field("shard", pa.int32())])
"""Records on their way into a lane, each with its shard."""

NO_RECORDS = pa.Table.from_batches([], RECORDS_BY_SHARD)
"""No records. (`empty_table` would load pandas.)"""

_MOST_ROWS = 10_000
"""How many rows of a lane are objects at a time: with more, they no longer fit into the processor's caches."""

ANY_SHARD = -1
"""Replaces the shard for a stage without state, which runs on no particular lane, and for one that has all shards."""


class OfShard(NamedTuple):
    """How many rows a shard sends, after how many others of the stage, and where the records begin to which its rows refer."""

    shard: int
    rows: int
    before: int
    first_record: int


class Sent(NamedTuple):
    """Rows that a lane sends in a stage, shard by shard, and the records that have caused them."""

    rows: list[Row]
    by_shard: list[OfShard]
    walked: list[pa.Table]


class Output:
    """What a lane sends in a stage, as tables: rows become columns before they are many, and take little memory from then on."""

    def __init__(self, program: Program, level: int) -> None:
        self._program = program
        self._level = level
        self._tables: list[pa.Table] = []
        self._sent = Sent([], [], [])
        self._converted = 0
        self._rows_of: Counter[int] = Counter()
        self.records: int = 0
        """How many records were processed."""

    def add(self, shard: int, rows: list[Row], walked: pa.Table) -> None:
        """Add rows that a shard sends after those it has sent so far; their causes are among the records `walked`, or none."""
        self._sent.rows.extend(rows)
        self._sent.by_shard.append(OfShard(shard, len(rows), self._rows_of[shard], self.records - self._converted))
        self._rows_of[shard] += len(rows)
        self._sent.walked.append(walked)
        self.records += walked.num_rows
        if len(self._sent.rows) >= _MOST_ROWS:
            self._convert()

    def tables(self) -> list[pa.Table]:
        """Return all rows."""
        self._convert()
        return self._tables

    def _convert(self) -> None:
        table = rows_sent(self._program, self._sent, self._level)
        if table is not None:
            self._tables.append(table)
        self._sent = Sent([], [], [])
        self._converted = self.records


def rows_sent(program: Program, sent: Sent, level: int) -> pa.Table | None:
    """Return rows for topics, and for later stages on the shards of their new keys, each with the place of its cause."""
    if not sent.rows:
        return None
    topics, keys, values, timestamps, headers, partitions, kinds, causes = zip(*sent.rows, strict=True)
    exchange, names = _destinations(program, topics, kinds)
    caused = _Caused(sent, np.array(causes, np.int64))
    return wire(
        len(sent.rows),
        shard=_targets(program, caused.senders, topics, keys, exchange),
        kind=_kinds(kinds, exchange),
        stage=np.full(len(sent.rows), level, np.int8),
        name=names,
        topic=[topic if code < 0 else None for code, topic in zip(names, topics, strict=True)] if -1 in names else None,
        partition=partitions if any(partition is not None for partition in partitions) else None,
        timestamp=timestamps,
        key=keys,
        value=values,
        headers=headers_array(headers),
        **caused.places(level, program.has_watermarks, _is_later_turn(program, level, topics, exchange)),
    )


def _destinations(program: Program, topics: Sequence[str], kinds: Sequence[RowKind]) -> tuple[list[bool], list[int]]:
    """Return whether each row goes to an exchange, and the index of the source that reads it there, or of its topic."""
    codes, sources = program.topic_codes, program.exchange_source
    count = len(topics)
    if topics.count(topics[0]) == kinds.count(kinds[0]) == count:
        inside = kinds[0] is RowKind.EXCHANGE
        return [inside] * count, [sources[topics[0]] if inside else codes.get(topics[0], -1)] * count
    exchange = [kind is RowKind.EXCHANGE for kind in kinds]
    return exchange, [sources[topic] if inside else codes.get(topic, -1) for topic, inside in zip(topics, exchange, strict=True)]


def _is_later_turn(program: Program, level: int, topics: Sequence[str], exchange: Sequence[bool]) -> Any:
    """Return which rows go to an exchange that an earlier stage has also written; None if none can."""
    first = program.scattered_exchanges
    if not first:
        return None
    return np.array([inside and first.get(topic, level) < level for topic, inside in zip(topics, exchange, strict=True)])


def letters_sent(program: Program, letters: list[Row]) -> pa.Table | None:
    """Return the rows of dead letters that were sent outside a stage, while records were read."""
    return rows_sent(program, Sent(letters, [OfShard(0, len(letters), 0, 0)], []), 0)


def _kinds(kinds: Sequence[RowKind], exchange: Sequence[bool]) -> Any:
    on_wire = np.where(exchange, np.int8(Kind.RECORD), np.int8(Kind.SINK))
    if RowKind.DEAD_LETTER not in kinds:
        return on_wire
    return np.where([kind is RowKind.DEAD_LETTER for kind in kinds], np.int8(Kind.DEAD_LETTER), on_wire)


def _targets(
    program: Program, senders: Any, topics: Sequence[str], keys: Sequence[bytes | None], exchange: Sequence[bool]
) -> Any:
    """Return the shard of each row: that of its key, the sender's without a key, the first for an atomic section."""
    if not any(exchange):
        return senders
    shards, serial = program.shards, program.serial_exchanges
    if all(exchange) and None not in keys:
        targets = [shard_of(key, shards) for key in keys if key is not None]
    else:
        targets = [
            sender if key is None or not inside else shard_of(key, shards)
            for key, inside, sender in zip(keys, exchange, senders.tolist(), strict=True)
        ]
    if serial:
        targets = [0 if topic in serial else target for topic, target in zip(topics, targets, strict=True)]
    return np.array(targets, np.int32)


class _Caused:
    """The causes of rows: a record, or an event before or after all records of a shard."""

    def __init__(self, sent: Sent, causes: Any) -> None:
        counts = [each.rows for each in sent.by_shard]
        first_rows = np.cumsum([0, *counts[:-1]]) - [each.before for each in sent.by_shard]
        own = np.repeat(np.array([each.shard for each in sent.by_shard], np.int32), counts)
        self._shards = np.maximum(own, 0)
        self._numbers = np.arange(len(causes)) - np.repeat(first_rows, counts)  # of each row within its shard, in the whole stage
        self._walked = pa.concat_tables([NO_RECORDS, *sent.walked])
        self._is_before = causes == BEFORE_RECORDS
        self._is_by_record = causes >= 0
        first_records = np.repeat(np.array([each.first_record for each in sent.by_shard], np.int64), counts)
        self._records = np.where(self._is_by_record, causes + first_records, 0)
        # Rows that no record has caused differ by shard, and by whether they come before or after all records.
        others = -1 - 2 * self._shards.astype(np.int64) - self._is_before
        self._number = _number_by_cause(np.where(self._is_by_record, self._records, others))
        self.senders = self._shards
        if (own == ANY_SHARD).any() and self._walked.num_rows:
            of_cause = self._walked.column("shard").to_numpy()[self._records]
            self.senders = np.where((own == ANY_SHARD) & self._is_by_record, of_cause, self._shards).astype(np.int32)

    def places(self, level: int, has_watermarks: bool, is_later_turn: Any = None) -> dict[str, Any]:
        """Return the places of rows in the merged order: those of their causes, with a path of row numbers by level.

        What a shard sends before its first record has an origin of its own, before all others. Rows with `is_later_turn` come
        after everything that earlier stages have sent to the same exchange, whatever its cause, because that was sent before.
        """
        of_shard = level << 32 | self._shards.astype(np.int64)
        before: dict[str, Any] = {"origin": BEFORE_RECORDS, "offset": of_shard, "place": FIRST, "path": 0}
        column = {name: np.where(self._is_before, value, self._of_cause(name)) for name, value in before.items()}
        number = self._number
        step = np.minimum(number, (1 << _BITS) - 1) << (_BITS * max(0, _LEVELS - 1 - level)) if level < _LEVELS else 0 * number
        # Results of a flush come last in later stages, too.
        is_caused = (self._is_by_record | self._is_before) & (column["place"] != LAST)
        places = {
            "origin": np.where(is_caused, column["origin"], -1).astype(np.int32),
            "offset": np.where(is_caused, column["offset"], of_shard),
            "place": np.where(is_caused, column["place"], LAST),
            "path": np.where(is_caused, column["path"] | step, self._numbers),
        }
        if is_later_turn is not None and is_later_turn.any():
            by_clock = is_later_turn & (column["origin"] == BEFORE_RECORDS)
            places["offset"] = np.where(by_clock, of_shard, places["offset"])
            places["path"] = np.where(by_clock, self._numbers, places["path"])
            later = is_later_turn & ~by_clock & (places["place"] != LAST)
            places["place"] = np.where(later, in_turn(places["place"], level), places["place"])
        if has_watermarks:  # a flush or a timer belongs to no single record
            places["stream_time"] = np.where(self._is_by_record, self._of_cause("stream_time", NO_TIMESTAMP), NO_TIMESTAMP)
        return places

    def _of_cause(self, name: str, missing: int = 0) -> Any:
        if not self._walked.num_rows:
            return np.full(len(self._records), missing, np.int64)
        return self._walked.column(name).fill_null(missing).to_numpy()[self._records]


def _number_by_cause(causes: Any) -> Any:
    """Return the number of each row among those of its cause. Results of calls come after everything sent by records."""
    if (np.diff(causes) >= 0).all():
        return _number_in_run(causes)
    order = np.argsort(causes, kind="stable")
    number = np.empty(len(causes), np.int64)
    number[order] = _number_in_run(causes[order])
    return number


def _number_in_run(causes: Any) -> Any:
    starts = np.flatnonzero(np.diff(causes, prepend=causes[0] - 1))
    return np.arange(len(causes)) - np.repeat(starts, np.diff(np.append(starts, len(causes))))


def rows_of_changes(assigned: Assignment, changes: Sequence[StoreChanges], kind: Kind = Kind.CHANGELOG) -> pa.Table | None:
    """Return changelog rows, each for the partition of its shard.

    With atomic sections, two tasks write a shard in one epoch: the stage in each row determines their order.
    """
    if not changes:
        return None
    program = assigned.program
    sizes = [len(change.keys) for change in changes]
    shards = np.repeat(np.array([change.shard for change in changes], np.int32), sizes)
    names = [program.topic_codes[_changelog(program, change.store)] for change in changes]
    return wire(
        sum(sizes),
        shard=shards,
        kind=np.full(sum(sizes), kind, np.int8),
        stage=np.full(sum(sizes), assigned.stage, np.int8),
        name=np.repeat(np.array(names, np.int16), sizes),
        partition=shards,
        timestamp=np.full(sum(sizes), assigned.epoch.wall_clock, np.int64),
        key=list(chain.from_iterable(change.keys for change in changes)),
        value=list(chain.from_iterable(change.values for change in changes)),
    )


def _changelog(program: Program, store: str) -> str:
    application = program.application_id
    return lanes_topic(application) if store == REGISTERS else changelog_topic(application, store)


def rows_about_dropped(program: Program, outbox: Outbox) -> list[pa.Table]:
    """Return the rows about records that a reading lane has dropped: dead letters, and counts."""
    letters = letters_sent(program, outbox.drain())
    dropped = [(node, reason, count) for (node, reason), count in outbox.dropped.items()]
    outbox.dropped.clear()
    return [*([] if letters is None else [letters]), *([control_row(Control(dropped=dropped), 0)] if dropped else [])]
