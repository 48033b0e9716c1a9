"""The entry of records: event times from extractors, and the watermarks of each partition, across epochs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamsBuilder, Topology, dead_letter, log_and_continue, log_and_fail, shared_store, tumbling
from penstock.epochs.assignment import Assignment
from penstock.epochs.entry import enter, needs_entry
from penstock.epochs.hops import INPUT, from_topics
from penstock.epochs.program import Epoch
from penstock.epochs.wire import Control, Kind, decode_control
from penstock.errors import ProcessingError
from penstock.handlers import Decision, ErrorHandler, ErrorHandlers, Failure
from penstock.records import LAST_TIMESTAMP, SourceRecord
from penstock.timing import Watermark, bounded_disorder, monotonous, watermark_from
from tests.unit.epochs.application import Application, Raw, by_key, every_kind_of_store

ORIGINS = (("in", 0), ("in", 1))
Entered = tuple[list[dict[str, Any]], list[dict[str, Any]], Control]


def windowed(timestamp: Any = None, watermark: Watermark | None = None) -> Topology:
    builder = StreamsBuilder()
    records = builder.stream("in", value=int, timestamp=timestamp, watermark=watermark)
    records.group_by_key().windowed_by(tumbling("1s", grace="0s")).count(store="windows")
    return builder.build()


def entered(
    tmp_path: Path,
    topology: Topology,
    rows: Sequence[tuple[int, int, int, bytes | None]],
    high_times: tuple[int, ...] = (-1, -1),
    handler: ErrorHandler | None = None,
    watermarks: tuple[int, ...] = (-1, -1),
) -> Entered:
    """Rows by origin, offset, timestamp and value: the records, the rows out, and the reports."""
    handlers = ErrorHandlers() if handler is None else ErrorHandlers(deserialization=handler)
    program = Application(tmp_path, lambda: topology, handlers=handlers).program(2, "one")
    names = ("origin", "offset", "timestamp", "value")
    named = [{"name": 0, "key": b"k", **dict(zip(names, row, strict=True))} for row in rows]
    table = from_topics([pa.RecordBatch.from_pylist(named, schema=INPUT)])
    epoch = Epoch(3, 2, 0, ORIGINS, high_times, watermarks=watermarks)
    found = pa.concat_tables(enter(Assignment(program, epoch), table)).to_pylist()
    told = [decode_control(row["value"]) for row in found if row["kind"] == Kind.CONTROL]
    records = [row for row in found if row["kind"] == Kind.RECORD]
    others = [row for row in found if row["kind"] not in {Kind.RECORD, Kind.CONTROL}]
    high = {origin: time for control in told for origin, time in control.high_times.items()}
    reached = {origin: time for control in told for origin, time in control.watermarks.items()}
    return records, others, Control(high, dropped=[drop for control in told for drop in control.dropped], watermarks=reached)


def _echo() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=bytes).filter(lambda key, value: True).to("out", value=bytes)
    return builder.build()


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def columns(rows: list[dict[str, Any]], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


class TestStreamTime:
    """It belongs to each shard: records do not carry it."""

    def test_nothing_is_attached_without_watermarks(self, tmp_path: Path) -> None:
        rows = [(0, 1, 50, None), (0, 2, 40, None), (1, 1, 5, None)]
        records, others, told = entered(tmp_path, windowed(), rows)
        assert columns(records, "origin", "timestamp", "stream_time") == [(0, 50, None), (0, 40, None), (1, 5, None)]
        assert (others, told) == ([], Control())

    def test_the_highest_event_times_are_reported_for_extractors(self, tmp_path: Path) -> None:
        topology = windowed(lambda record: record.timestamp)
        rows = [(0, 1, 50, None), (0, 2, 90, None), (0, 3, 70, None), (1, 1, 5, None)]
        assert entered(tmp_path, topology, rows)[2].high_times == {0: 90, 1: 5}
        assert entered(tmp_path, topology, rows, (60, 8))[2].high_times == {0: 90, 1: 8}

    def test_a_source_without_watermarks_beside_one_that_has_some_shows_its_highest_event_time(self, tmp_path: Path) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=int).group_by_key().windowed_by(tumbling("1s", grace="0s")).count(store="windows")
        builder.stream("other", value=int, watermark=monotonous()).to("out")
        rows = [(0, 1, 50, None), (0, 2, 40, None), (0, 3, 70, None), (0, 4, 60, None), (1, 1, 5, None)]
        records, _, told = entered(tmp_path, builder.build(), rows, (-1, 3))
        assert columns(records, "origin", "stream_time") == [(0, -1), (0, 50), (0, 50), (0, 70), (1, 3)]
        assert (told.high_times, told.watermarks) == ({0: 70, 1: 5}, {})

    def test_the_order_of_blocks_does_not_matter(self, tmp_path: Path) -> None:
        topology = windowed(watermark=monotonous())
        rows = [(0, 1, 50, None), (0, 2, 40, None), (1, 1, 9, None), (1, 2, 8, None)]
        expected = entered(tmp_path, topology, rows)
        assert entered(tmp_path, topology, rows[::-1]) == expected
        assert entered(tmp_path, topology, [rows[1], rows[3], rows[0], rows[2]]) == expected

    def test_an_epoch_without_records_reports_nothing(self, tmp_path: Path) -> None:
        assert entered(tmp_path, windowed(), []) == ([], [], Control())


class TestWatermarks:
    def test_a_record_brings_its_partitions_watermark_before_it(self, tmp_path: Path) -> None:
        rows = [(0, 1, 50, None), (0, 2, 40, None), (0, 3, 70, None), (0, 4, 60, None), (1, 1, 5, None)]
        records, _, told = entered(tmp_path, windowed(watermark=bounded_disorder(10)), rows)
        assert columns(records, "origin", "stream_time") == [(0, -1), (0, 40), (0, 40), (0, 60), (1, -1)]
        assert (told.watermarks, told.high_times) == ({0: 60, 1: -1}, {0: 70, 1: 5})

    def test_it_continues_from_the_watermark_of_earlier_epochs(self, tmp_path: Path) -> None:
        rows = [(0, 5, 50, None), (0, 6, 90, None), (1, 1, 5, None)]
        records, _, told = entered(tmp_path, windowed(watermark=monotonous()), rows, (99, 99), watermarks=(60, 3))
        assert columns(records, "stream_time") == [(60,), (60,), (3,)]
        assert told.watermarks == {0: 90, 1: 5}

    def test_records_may_carry_the_watermark(self, tmp_path: Path) -> None:
        topology = windowed(watermark=watermark_from(lambda record: record.value or None))
        rows = [(0, 1, 50, number(30)), (0, 2, 51, number(0)), (0, 3, 52, number(45)), (0, 4, 53, number(20))]
        records, _, told = entered(tmp_path, topology, rows)
        assert columns(records, "timestamp", "stream_time") == [(50, -1), (51, 30), (52, 30), (53, 45)]
        assert (told.watermarks, told.high_times) == ({0: 45}, {0: 53})

    def test_a_dropped_record_does_not_move_the_watermark(self, tmp_path: Path) -> None:
        topology = windowed(lambda record: -1 if record.value == 7 else 50, watermark_from(lambda record: record.value))
        records, _, told = entered(tmp_path, topology, [(0, 1, 0, number(5)), (0, 2, 0, number(7)), (0, 3, 0, number(6))])
        assert columns(records, "offset", "stream_time") == [(1, -1), (3, 5)]
        assert told.watermarks == {0: 6}

    def test_a_function_that_fails_names_the_record(self, tmp_path: Path) -> None:
        topology = windowed(watermark=watermark_from(lambda record: 1 // record.value))
        with pytest.raises(ProcessingError, match=r"watermark function of .* failed on the record from in-1 at offset 7"):
            entered(tmp_path, topology, [(1, 7, 5, number(0))])


class TestExtractors:
    def test_the_event_time_is_what_the_extractor_says(self, tmp_path: Path) -> None:
        topology = windowed(lambda record: record.value * 10)
        records, _, told = entered(tmp_path, topology, [(0, 1, 999, number(5)), (0, 2, 999, number(7))])
        assert columns(records, "timestamp", "stream_time") == [(50, None), (70, None)]
        assert told.high_times == {0: 70}

    def test_it_sees_the_record_and_its_partitions_time_so_far(self, tmp_path: Path) -> None:
        seen: list[SourceRecord] = []

        def note(record: SourceRecord) -> int:
            seen.append(record)
            return int(record.value)

        rows = [(0, 8, 900, number(50)), (0, 9, 901, number(40)), (0, 10, 902, number(60)), (1, 4, 903, number(1))]
        entered(tmp_path, windowed(note), rows, (30, -1))
        assert [(record.topic, record.partition, record.offset, record.timestamp, record.value) for record in seen] == [
            ("in", 0, 8, 900, 50),
            ("in", 0, 9, 901, 40),
            ("in", 0, 10, 902, 60),
            ("in", 1, 4, 903, 1),
        ]
        assert [record.partition_time for record in seen] == [30, 50, 50, -1]

    def test_a_negative_time_drops_the_record_and_does_not_count(self, tmp_path: Path) -> None:
        topology = windowed(lambda record: record.value)
        rows = [(0, 1, 5, number(50)), (0, 2, 5, (-1).to_bytes(8, "big", signed=True)), (0, 3, 5, number(40))]
        records, others, told = entered(tmp_path, topology, rows)
        assert columns(records, "offset", "timestamp") == [(1, 50), (3, 40)]
        assert (others, told.high_times) == ([], {0: 50})
        assert told.dropped == [("KSTREAM-SOURCE-0000000000", "invalid timestamp", 1)]

    def test_an_epoch_whose_records_are_all_dropped_reports_no_times(self, tmp_path: Path) -> None:
        told = Control(dropped=[("KSTREAM-SOURCE-0000000000", "invalid timestamp", 1)])
        assert entered(tmp_path, windowed(lambda record: -1), [(0, 1, 5, number(1))], (60, 3)) == ([], [], told)

    def test_an_extractor_that_fails_names_the_record(self, tmp_path: Path) -> None:
        topology = windowed(lambda record: 1 // record.value)
        with pytest.raises(ProcessingError, match=r"timestamp extractor of .* failed on the record from in-1 at offset 7"):
            entered(tmp_path, topology, [(1, 7, 5, number(0))])

    def test_sources_without_one_keep_the_records_timestamps(self, tmp_path: Path) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=int).to("out")
        builder.stream("other", value=int, timestamp=lambda record: 1).to("out")
        records, _, _ = entered(tmp_path, builder.build(), [(0, 1, 5, b"not read here"), (0, 2, 6, None)])
        assert columns(records, "timestamp") == [(5,), (6,)]


class TestUnreadable:
    ROWS: tuple[tuple[int, int, int, bytes | None], ...] = ((0, 1, 5, number(50)), (0, 2, 6, b"bad"), (0, 3, 7, number(60)))
    TOPOLOGY = staticmethod(lambda: windowed(lambda record: record.value))

    def test_a_record_that_cannot_be_read_ends_the_epoch_by_default(self, tmp_path: Path) -> None:
        with pytest.raises(ProcessingError, match="cannot read the record from in-0 at offset 2"):
            entered(tmp_path, self.TOPOLOGY(), self.ROWS)
        with pytest.raises(ProcessingError, match="cannot read the record from in-0 at offset 2"):
            entered(tmp_path, self.TOPOLOGY(), self.ROWS, handler=log_and_fail())

    def test_it_is_skipped_if_the_handler_says_so(self, tmp_path: Path) -> None:
        records, others, told = entered(tmp_path, self.TOPOLOGY(), self.ROWS, handler=log_and_continue())
        assert columns(records, "offset", "timestamp") == [(1, 50), (3, 60)]
        assert (others, told.high_times) == ([], {0: 60})
        assert [(reason, count) for _, reason, count in told.dropped] == [("deserialization error", 1)]

    def test_it_becomes_a_dead_letter_if_the_handler_says_so(self, tmp_path: Path) -> None:
        records, others, told = entered(tmp_path, self.TOPOLOGY(), self.ROWS, handler=dead_letter("dead"))
        assert [(reason, count) for _, reason, count in told.dropped] == [("dead letter", 1)]
        assert columns(records, "offset") == [(1,), (3,)]
        assert columns(others, "kind", "topic", "key", "value", "timestamp") == [(Kind.DEAD_LETTER, "dead", b"k", b"bad", 6)]
        headers = {header["name"]: header["value"] for header in others[0]["headers"]}
        assert headers["__streams.errors.offset"] == b"2"
        assert headers["__penstock.errors.epoch"] == b"3"

    def test_a_function_decides_record_by_record(self, tmp_path: Path) -> None:
        rows = [*self.ROWS, (1, 4, 8, b"worse")]

        def decide(failure: Failure) -> Decision:
            return dead_letter("dead") if failure.value == b"worse" else log_and_continue()

        _, others, _ = entered(tmp_path, self.TOPOLOGY(), rows, handler=decide)
        assert columns(others, "value") == [(b"worse",)]


def test_records_that_need_no_entry_go_straight_to_their_lanes(tmp_path: Path) -> None:
    def enters(make: Callable[[], Topology]) -> bool:
        return needs_entry(Application(tmp_path, make).program(1, "one"))

    assert not enters(windowed)
    assert enters(lambda: windowed(lambda record: 0))
    assert enters(lambda: windowed(watermark=monotonous()))
    builder = StreamsBuilder()
    builder.stream("in", key=dict, value=str).group_by_key().count(store="counts")
    assert enters(builder.build)
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("words", value=str))
    builder.stream("in", value=str).to("out")
    assert enters(builder.build)


NANOSECONDS = 1_794_778_322_590_913_092


class TestTimestampsThatAreNone:
    @pytest.mark.parametrize("topology", [windowed, every_kind_of_store, _echo])
    @pytest.mark.parametrize("lanes", [1, 3])
    def test_such_records_go_to_the_error_handler_and_move_no_clock(
        self, topology: Callable[[], Topology], lanes: int, tmp_path: Path
    ) -> None:
        handlers = ErrorHandlers(deserialization=dead_letter("dead"))
        app, clean = (Application(tmp_path / name, topology, handlers=handlers) for name in ("app", "clean"))
        for one in (app, clean):
            one.start(lanes)
        good = [Raw(b"k%d" % (n % 4), number(n), 100 + 40 * n) for n in range(12)]
        poison = [Raw(b"k1", number(99), time) for time in (-1, NANOSECONDS, LAST_TIMESTAMP + 1)]
        app.step([*good[:3], *poison, *good[3:6]])
        app.step([*good[6:], poison[1]])
        clean.step(good[:6])
        clean.step(good[6:])
        letters = [row for row in app.sent if row[0] == "dead"]
        assert [row[2] for row in letters] == [number(99)] * 4
        assert by_key([row for row in app.sent if row[0] != "dead"]) == by_key(clean.sent)
        assert app.high_time == clean.high_time

    def test_by_default_the_record_is_named(self, tmp_path: Path) -> None:
        app = Application(tmp_path, _echo)
        app.start(2)
        with pytest.raises(ProcessingError, match=r"record from in-0 at offset 1 has the invalid timestamp 1794778322590913092"):
            app.step([Raw(b"a", b"1", 5), Raw(b"a", b"2", NANOSECONDS)])

    def test_skipped_records_are_counted(self, tmp_path: Path) -> None:
        app = Application(tmp_path, _echo, handlers=ErrorHandlers(deserialization=log_and_continue()))
        app.start(2)
        told = [
            decode_control(row["value"])
            for row in app.run([Raw(b"a", b"1", -1), Raw(b"b", b"2", 5)]).to_pylist()
            if row["kind"] == Kind.CONTROL
        ]
        assert [drop for control in told for drop in control.dropped] == [
            ("KSTREAM-SOURCE-0000000000", "deserialization error", 1)
        ]

    def test_an_extractor_receives_the_invalid_timestamp(self, tmp_path: Path) -> None:
        app = Application(tmp_path, lambda: windowed(lambda record: record.timestamp // 10**6))
        app.start(2)
        app.step([Raw(b"a", number(1), NANOSECONDS)])
        assert app.high_time == NANOSECONDS // 10**6
