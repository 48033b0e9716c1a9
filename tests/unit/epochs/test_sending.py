"""The way out of a stage: what goes to which topic, partition and lane, and how rows keep their order through exchanges."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamsBuilder, Topology, tumbling
from penstock.epochs.program import Program, changelog_topic, lanes_topic
from penstock.epochs.sending import decode_notes, lanes_of_keys, row_of_notes, rows_of_changes, rows_out, rows_to_exchanges
from penstock.epochs.shards import lane_of, shard_of, shards_of
from penstock.epochs.wire import Kind
from penstock.lanes.epoch import LAST, RECORDS
from penstock.lanes.outbox import Row
from penstock.records import NO_HEADERS
from penstock.state import StoreChanges
from tests.unit.epochs.application import program_of


def topology(is_windowed: bool = False) -> Topology:
    builder = StreamsBuilder()
    records = builder.stream("in", value=str)
    records.to("out")
    by_value = records.select_key(lambda key, value: value).repartition(name="by-value")
    by_value.group_by_key().count(store="counts").to_stream().to("counted", value=int)
    if is_windowed:
        by_value.group_by_key().windowed_by(tumbling("1s", grace="0s")).count(store="windows")
    return builder.build()


@pytest.fixture
def program() -> Program:
    return program_of(topology(), lanes=3)


def walked(*rows: tuple[int, int, int, int]) -> pa.Table:
    """Records by origin, offset, place and path."""
    named = [dict(zip(("origin", "offset", "place", "path"), row, strict=True)) for row in rows]
    return pa.Table.from_pylist(named, schema=RECORDS)


def exchanged(key: bytes | None, value: bytes = b"") -> Row:
    return Row("by-value-repartition", key, value, 7, NO_HEADERS, exchange=True)


def columns(table: pa.Table | None, *names: str) -> list[tuple[Any, ...]]:
    assert table is not None
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


class TestRowsOut:
    def test_a_row_names_its_topic_by_a_code(self, program: Program) -> None:
        rows = [Row("counted", b"k", b"v", 5, NO_HEADERS), Row("out", None, None, 6, (("h", b"1"),), 3)]
        table = rows_out(program, rows, 2)
        assert columns(table, "lane", "kind", "name", "topic", "partition", "timestamp", "key", "value", "headers") == [
            (2, Kind.SINK, program.topic_codes["counted"], None, None, 5, b"k", b"v", None),
            (2, Kind.SINK, program.topic_codes["out"], None, 3, 6, None, None, [{"name": "h", "value": b"1"}]),
        ]

    def test_a_topic_that_was_chosen_for_the_record_goes_by_its_name(self, program: Program) -> None:
        rows = [Row("out", b"k", b"v", 5, NO_HEADERS), Row("chosen", b"k", b"v", 5, NO_HEADERS)]
        assert columns(rows_out(program, rows, 0), "name", "topic") == [(program.topic_codes["out"], None), (-1, "chosen")]

    def test_a_dead_letter_says_that_it_is_one(self, program: Program) -> None:
        rows = [Row("out", b"k", b"v", 5, NO_HEADERS), Row("dead", b"k", b"v", 5, (("why", b"x"),), dead_letter=True)]
        assert columns(rows_out(program, rows, 0), "kind", "name", "topic") == [
            (Kind.SINK, program.topic_codes["out"], None),
            (Kind.DEAD_LETTER, -1, "dead"),
        ]

    def test_rows_for_exchanges_stay_inside(self, program: Program) -> None:
        assert rows_out(program, [exchanged(b"k")], 0) is None
        assert rows_to_exchanges(program, [Row("out", b"k", b"v", 5, NO_HEADERS)], [], walked(), 0, 0) is None


class TestExchanges:
    def test_a_row_goes_to_the_lane_of_its_new_key(self, program: Program) -> None:
        keys = [b"key-%d" % number for number in range(30)]
        table = rows_to_exchanges(program, [exchanged(key) for key in keys], [0] * 30, walked((0, 1, 2, 0)), 1, 0)
        expected = [lane_of(shard_of(key, program.shards), program.shards, 3) for key in keys]
        assert columns(table, "lane", "name") == [(lane, program.exchange_source["by-value-repartition"]) for lane in expected]
        assert set(expected) == {0, 1, 2}

    def test_a_row_without_a_key_can_be_anywhere(self, program: Program) -> None:
        assert lanes_of_keys(program, [None, b"a"])[0] in range(3)

    def test_a_row_keeps_the_place_of_the_record_it_follows_from(self, program: Program) -> None:
        rows = [exchanged(b"a"), exchanged(b"b"), exchanged(b"c")]
        table = rows_to_exchanges(program, rows, [0, 0, 1], walked((4, 10, 99, 0), (2, 11, 100, 0)), 0, 0)
        assert columns(table, "origin", "offset", "place") == [(4, 10, 99), (4, 10, 99), (2, 11, 100)]

    def test_rows_of_one_record_are_told_apart_by_their_path(self, program: Program) -> None:
        first = rows_to_exchanges(program, [exchanged(b"a")] * 3, [0, 0, 0], walked((0, 1, 5, 0)), 0, 0)
        paths = [path for (path,) in columns(first, "path")]
        assert paths == sorted(set(paths))
        second = rows_to_exchanges(program, [exchanged(b"a")] * 2, [0, 0], walked((0, 1, 5, paths[1])), 0, 1)
        below = [path for (path,) in columns(second, "path")]
        assert paths[1] <= below[0] < below[1] < paths[2]
        third = rows_to_exchanges(program, [exchanged(b"a")] * 2, [0, 0], walked((0, 1, 5, below[0])), 0, 2)
        last = [path for (path,) in columns(third, "path")]
        assert below[0] <= last[0] < last[1] < below[1]

    def test_numbers_begin_anew_with_each_record(self, program: Program) -> None:
        rows = [exchanged(b"a")] * 4
        table = rows_to_exchanges(program, rows, [0, 0, 1, 1], walked((0, 1, 5, 0), (0, 2, 6, 0)), 0, 0)
        paths = [path for (path,) in columns(table, "path")]
        assert paths[:2] == paths[2:]

    def test_what_follows_from_no_record_comes_last_by_lane_and_number(self, program: Program) -> None:
        table = rows_to_exchanges(program, [exchanged(b"a")] * 3, [0, -1, -1], walked((4, 10, 99, 0)), 2, 0)
        assert columns(table, "origin", "offset", "place", "path")[1:] == [(-1, 2, LAST, 1), (-1, 2, LAST, 2)]

    def test_what_follows_from_a_flush_comes_last_in_later_stages_too(self, program: Program) -> None:
        table = rows_to_exchanges(program, [exchanged(b"a")], [0], walked((-1, 1, LAST, 3)), 2, 1)
        assert columns(table, "origin", "offset", "place") == [(-1, 2, LAST)]

    def test_timers_send_without_any_records(self, program: Program) -> None:
        table = rows_to_exchanges(program, [exchanged(b"a")], [-1], walked(), 1, 0)
        assert columns(table, "origin", "offset", "place", "stream_time") == [(-1, 1, LAST, None)]

    def test_stream_time_travels_on_where_somebody_asks_for_it(self) -> None:
        timed = program_of(topology(is_windowed=True))
        records = walked((0, 1, 5, 0), (0, 2, 6, 0)).set_column(
            RECORDS.get_field_index("stream_time"), "stream_time", pa.array([40, None], pa.int64())
        )
        table = rows_to_exchanges(timed, [exchanged(b"a")] * 3, [0, 1, -1], records, 0, 0)
        assert columns(table, "stream_time") == [(40,), (-1,), (-1,)]  # a flush stands for no single record
        nothing = rows_to_exchanges(timed, [exchanged(b"a")], [-1], walked(), 0, 0)
        assert columns(nothing, "stream_time") == [(-1,)]

    def test_headers_and_values_go_along(self, program: Program) -> None:
        row = Row("by-value-repartition", b"a", None, 9, (("h", None),), exchange=True)
        table = rows_to_exchanges(program, [row], [0], walked((0, 1, 5, 0)), 0, 0)
        assert columns(table, "timestamp", "value", "headers", "kind") == [(9, None, [{"name": "h", "value": None}], Kind.RECORD)]


class TestChanges:
    def test_a_changelog_row_goes_to_the_partition_of_its_shard(self, program: Program) -> None:
        keys = [key for key in (b"key-%d" % number for number in range(30)) if lane_of(shard_of(key, 8), 8, 3) == 1]
        [table] = rows_of_changes(program, [StoreChanges("counts", keys, [b"v", *[None] * (len(keys) - 1)])], 1, 0, 77)
        code = program.topic_codes[changelog_topic("app", "counts")]
        assert columns(table, "lane", "kind", "name", "partition", "timestamp", "key") == [
            (1, Kind.CHANGELOG, code, shard_of(key, 8), 77, key) for key in keys
        ]
        assert columns(table, "value")[:2] == [(b"v",), (None,)]

    def test_notes_are_kept_in_the_partition_of_the_lanes_first_shard(self, program: Program) -> None:
        table = row_of_notes(program, {"clock": 5}, 2, 9, 77)
        [(lane, kind, name, partition, key, value)] = columns(table, "lane", "kind", "name", "partition", "key", "value")
        assert (lane, kind, program.topics[name]) == (2, Kind.CHANGELOG, lanes_topic("app"))
        assert (partition, key) == (shards_of(2, 8, 3).start, b"lane")
        notes = decode_notes(value)
        assert (notes.lanes, notes.epoch, notes.registers) == (3, 9, {"clock": 5})
