"""Rows between hops: columns, control rows, and the order in which rows leave an epoch."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from penstock.epochs.hops import INPUT, from_topics
from penstock.epochs.wire import (
    OUT,
    WIRE,
    Control,
    Kind,
    control_row,
    decode_control,
    in_order_of_causes,
    in_order_of_stages,
    out,
    out_rows,
    wire,
)
from penstock.lanes.epoch import FIRST, LAST, headers_array


def test_columns_that_are_not_given_are_null() -> None:
    table = wire(2, kind=[Kind.SINK, Kind.SINK], key=[b"a", None])
    assert table.schema == WIRE
    assert table.column("key").to_pylist() == [b"a", None]
    assert table.column("value").null_count == 2


def test_a_control_row_can_be_decoded() -> None:
    control = Control({0: 5, 3: -1}, 77, [("node", "late", 2)])
    [row] = control_row(control, 4).to_pylist()
    assert (row["kind"], row["shard"]) == (Kind.CONTROL, 4)
    assert decode_control(row["value"]) == control


def test_missing_headers_are_null() -> None:
    assert headers_array([(), ()]).null_count == 2
    mixed = headers_array([(), (("a", b"1"), ("b", None))]).to_pylist()
    assert mixed == [None, [{"name": "a", "value": b"1"}, {"name": "b", "value": None}]]


def test_no_records_are_an_empty_table() -> None:
    assert from_topics([]).schema == WIRE
    assert from_topics([]).num_rows == 0


def test_headers_survive_a_batch_that_is_a_slice_of_another() -> None:
    rows = [{"headers": [{"name": "a", "value": b"1"}]}, {}, {"headers": [{"name": "b", "value": b"2"}]}, {}]
    column = from_topics([pa.RecordBatch.from_pylist(rows, schema=INPUT).slice(1, 2)]).column("headers")
    assert column.to_pylist() == [None, [{"name": "b", "value": b"2"}]]


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
    assert table.schema == WIRE
    [entered] = table.to_pylist()
    assert {name: found for name, found in entered.items() if found is not None} == {
        "kind": Kind.RECORD,
        "stage": 0,
        **{name: said for name, said in row.items() if said is not None},
    }


def test_rows_leave_without_what_only_hops_need() -> None:
    assert out(wire(1, shard=[3], kind=[Kind.SINK], name=[0], stream_time=[9])).schema == OUT
    [row] = out_rows(Kind.CHANGELOG, 2, 5, 6, b"k", b"v").to_pylist()
    assert row == {
        "kind": 2,
        "stage": 0,
        "name": 2,
        "topic": None,
        "partition": 5,
        "timestamp": 6,
        "key": b"k",
        "value": b"v",
        "headers": None,
        **dict.fromkeys(("origin", "offset", "place", "path")),
    }


def row(kind: Kind, value: bytes, **columns: int | None) -> dict[str, Any]:
    return {"kind": int(kind), "value": value, "timestamp": 0, "stage": 0, **columns}


def ordered(*rows: dict[str, Any]) -> list[bytes]:
    """The values of rows in the order in which they leave an epoch."""
    values: list[bytes] = in_order_of_causes(pa.Table.from_pylist(list(rows), schema=OUT)).column("value").to_pylist()
    return values


def sent(
    value: bytes, origin: int, offset: int, place: int, path: int = 0, kind: Kind = Kind.SINK, stage: int = 0
) -> dict[str, Any]:
    return row(kind, value, origin=origin, offset=offset, place=place, path=path, stage=stage)


class TestOrderOfCauses:
    def test_results_of_one_partition_leave_in_its_order_whatever_their_lanes(self) -> None:
        one = [sent(b"0", 0, 0, 100), sent(b"2", 0, 2, 100), sent(b"5", 0, 5, 105)]
        other = [sent(b"1", 0, 1, 50), sent(b"3", 0, 3, 103), sent(b"4", 0, 4, 103)]  # each shard knows its own times
        assert ordered(*one, *other) == ordered(*other, *one) == [b"0", b"1", b"2", b"3", b"4", b"5"]

    def test_partitions_are_merged_by_time(self) -> None:
        one, other = [sent(b"a", 0, 0, 10), sent(b"c", 0, 1, 30)], [sent(b"b", 1, 7, 20), sent(b"d", 1, 8, 30)]
        assert ordered(*other, *one) == ordered(*one, *other) == [b"a", b"b", b"c", b"d"]

    def test_rows_of_one_record_leave_in_the_order_of_their_paths(self) -> None:
        assert ordered(sent(b"1", 0, 5, 9, path=2**40), sent(b"0", 0, 5, 9, path=0), sent(b"2", 0, 5, 9, path=2**41)) == [
            b"0",
            b"1",
            b"2",
        ]

    def test_dead_letters_are_in_the_same_order(self) -> None:
        rows = [sent(b"1", 0, 1, 9), sent(b"0", 0, 0, 9, kind=Kind.DEAD_LETTER), sent(b"2", 0, 2, 9, kind=Kind.DEAD_LETTER)]
        assert ordered(*rows) == [b"0", b"1", b"2"]

    def test_rows_of_timers_are_first_and_rows_of_flushed_caches_are_last(self) -> None:
        rows = [
            sent(b"record", 0, 0, 9),
            sent(b"flush 2", -1, 2, LAST),
            sent(b"flush 1", -1, 1, LAST),
            sent(b"timer", -2, 0, FIRST),
        ]
        assert ordered(*rows) == [b"timer", b"record", b"flush 1", b"flush 2"]

    def test_all_other_rows_keep_their_order_before_them(self) -> None:
        rows = [
            sent(b"sink 1", 0, 1, 9),
            row(Kind.CHANGELOG, b"a", partition=3),
            sent(b"sink 0", 0, 0, 9),
            row(Kind.CONTROL, b"b"),
            row(Kind.CHANGELOG, b"c", partition=1),
            row(Kind.REPORT, b"d"),
        ]
        assert ordered(*rows) == [b"a", b"b", b"c", b"d", b"sink 0", b"sink 1"]

    def test_changelog_rows_of_later_stages_come_after_those_of_earlier_ones(self) -> None:
        rows = [
            row(Kind.CHANGELOG, b"section", partition=3, stage=2),
            row(Kind.CHANGELOG, b"first", partition=3),
            sent(b"sink 1", 0, 1, 9),
            row(Kind.CHANGELOG, b"second", partition=3),
            row(Kind.CONTROL, b"told"),
            sent(b"sink 0", 0, 0, 9),
        ]
        assert ordered(*rows) == [b"first", b"second", b"told", b"section", b"sink 0", b"sink 1"]
        kept = in_order_of_stages(pa.Table.from_pylist(rows, schema=OUT)).column("value").to_pylist()
        assert kept == [b"sink 1", b"told", b"sink 0", b"first", b"second", b"section"]

    def test_what_an_earlier_stage_sends_comes_before_what_a_later_one_does(self) -> None:
        rows = [sent(b"later", 0, 0, 5, stage=1), sent(b"1", 0, 1, 9), sent(b"0", 0, 0, 5), sent(b"last", 0, 1, 9, stage=1)]
        assert ordered(*rows) == [b"0", b"1", b"later", b"last"]

    def test_rows_that_are_in_order_are_not_copied(self) -> None:
        rows = [row(Kind.CHANGELOG, b"a", partition=3), sent(b"0", 0, 0, 9), sent(b"1", 0, 1, 9)]
        table = pa.Table.from_pylist(rows, schema=OUT)
        assert in_order_of_causes(table) is table
        assert in_order_of_causes(table.slice(0, 2)).num_rows == 2
        assert in_order_of_causes(OUT.empty_table()).num_rows == 0
