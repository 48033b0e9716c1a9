"""Rows between hops: what Spark hands over is what was given to it, and control rows say what they were told."""

from __future__ import annotations

import pyarrow as pa

from penstock.epochs.hops import INPUT, from_topics, out
from penstock.epochs.wire import (
    OUT,
    WIRE,
    Control,
    Kind,
    arrived,
    control_row,
    decode_control,
    headers_array,
    out_rows,
    records_of,
    wire,
)
from penstock.lanes.epoch import HEADERS, RECORDS

SPARKS_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_columns_that_are_not_given_are_null() -> None:
    table = wire(2, kind=[Kind.SINK, Kind.SINK], key=[b"a", None])
    assert table.schema == WIRE
    assert table.column("key").to_pylist() == [b"a", None]
    assert table.column("value").null_count == 2


def test_a_control_row_says_what_it_was_told() -> None:
    control = Control({0: 5, 3: -1}, 77, [("node", "late", 2)])
    [row] = control_row(control, 4).to_pylist()
    assert (row["kind"], row["lane"]) == (Kind.CONTROL, 4)
    assert decode_control(row["value"]) == control


def test_headers_are_null_where_there_are_none() -> None:
    assert headers_array([(), ()]).null_count == 2
    mixed = headers_array([(), (("a", b"1"), ("b", None))]).to_pylist()
    assert mixed == [None, [{"name": "a", "value": b"1"}, {"name": "b", "value": None}]]


def test_headers_of_sparks_are_read_by_place_not_by_name() -> None:
    rows = [None, [], [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], [{"key": "a", "value": b"2"}]]
    one, other = (pa.RecordBatch.from_arrays([pa.array(part, SPARKS_HEADERS)], ["headers"]) for part in (rows[:3], rows[3:]))
    column = arrived([one, other], pa.schema([("headers", HEADERS)])).column("headers")
    assert column.to_pylist() == [
        None,
        [],
        [{"name": "a", "value": b"1"}, {"name": "b", "value": None}],
        [{"name": "a", "value": b"2"}],
    ]


def test_headers_survive_a_batch_that_is_a_slice_of_another() -> None:
    rows = [[{"key": "a", "value": b"1"}], None, [{"key": "b", "value": b"2"}, {"key": "c", "value": b"3"}], None]
    batch = pa.RecordBatch.from_arrays([pa.array(rows, SPARKS_HEADERS)], ["headers"])
    column = arrived([batch.slice(1, 2)], pa.schema([("headers", HEADERS)])).column("headers")
    assert column.to_pylist() == [None, [{"name": "b", "value": b"2"}, {"name": "c", "value": b"3"}]]


def test_no_headers_at_all_are_null_whatever_spark_calls_them() -> None:
    batch = pa.RecordBatch.from_arrays([pa.nulls(2, SPARKS_HEADERS)], ["headers"])
    assert arrived([batch], pa.schema([("headers", HEADERS)])).column("headers").to_pylist() == [None, None]


def test_nothing_arrives_as_an_empty_table() -> None:
    assert arrived([], WIRE).schema == WIRE
    assert from_topics([]).num_rows == 0


def test_records_keep_what_topics_say_about_them() -> None:
    row = {
        "name": 1,
        "origin": 2,
        "offset": 3,
        "timestamp": 4,
        "key": b"k",
        "value": None,
        "headers": [{"name": "a", "value": b"1"}],
    }
    table = from_topics([pa.RecordBatch.from_pylist([row], schema=INPUT)])
    [entered] = records_of(table).to_pylist()
    assert records_of(table).schema == RECORDS
    assert entered == {"source": 1, "place": None, "path": None, "stream_time": None, **{k: row[k] for k in row if k != "name"}}
    assert table.column("kind").to_pylist() == [Kind.RECORD]


def test_rows_leave_without_what_only_hops_need() -> None:
    assert out(wire(1, lane=[3], kind=[Kind.SINK], name=[0], place=[9])).schema == OUT
    [row] = out_rows(Kind.CHANGELOG, 2, 5, 6, b"k", b"v").to_pylist()
    assert row == {
        "kind": 2,
        "name": 2,
        "topic": None,
        "partition": 5,
        "timestamp": 6,
        "key": b"k",
        "value": b"v",
        "headers": None,
    }
