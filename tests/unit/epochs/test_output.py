"""The output of a stage: topics, partitions and shards of rows, and how rows keep their order through exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock import Processor, StreamsBuilder, Topology, bounded_disorder, shared_store
from penstock.epochs import output
from penstock.epochs.assignment import Assignment
from penstock.epochs.output import ANY_SHARD, OfShard, Output, Sent, rows_of_changes, rows_sent
from penstock.epochs.program import Epoch, Program, lanes_topic
from penstock.epochs.shards import shard_of
from penstock.epochs.wire import Kind
from penstock.lanes.cursor import BEFORE_RECORDS
from penstock.lanes.epoch import FIRST, LAST, RECORDS
from penstock.lanes.outbox import Row, RowKind
from penstock.records import NO_HEADERS
from penstock.state import REGISTERS, StoreChanges
from penstock.topology.bindings import changelog_topic
from tests.unit.epochs.application import SHARDS, program_of

AT_77 = Epoch(5, 4, wall_clock=77)


def topology(is_watermarked: bool = False) -> Topology:
    builder = StreamsBuilder()
    records = builder.stream("in", value=str, watermark=bounded_disorder(0) if is_watermarked else None)
    records.to("out")
    by_value = records.select_key(lambda key, value: value).repartition(name="by-value")
    by_value.group_by_key().count(store="counts").to_stream().to("counted", value=int)
    return builder.build()


@pytest.fixture
def program() -> Program:
    return program_of(topology(), lanes=3)


def walked(*rows: tuple[int, int, int, int], shards: Sequence[int] | None = None) -> pa.Table:
    """Records by origin, offset, place and path."""
    named = [dict(zip(("origin", "offset", "place", "path"), row, strict=True)) for row in rows]
    table = pa.Table.from_pylist(named, schema=RECORDS)
    return table.append_column("shard", pa.array(shards or [0] * len(rows), pa.int32()))


def exchanged(key: bytes | None, cause: int = 0, value: bytes = b"") -> Row:
    return Row("by-value-repartition", key, value, 7, NO_HEADERS, kind=RowKind.EXCHANGE, cause=cause)


def sink(cause: int, topic: str = "out") -> Row:
    return Row(topic, b"k", b"v", 7, NO_HEADERS, cause=cause)


def sent_by(*shards: tuple[int, list[Row], pa.Table]) -> Sent:
    """What shards send, each with its processed records."""
    sent, first = Sent([], [], [records for _, _, records in shards]), 0
    for shard, rows, records in shards:
        sent.rows.extend(rows)
        sent.by_shard.append(OfShard(shard, len(rows), 0, first))
        first += records.num_rows
    return sent


def columns(table: pa.Table | None, *names: str) -> list[tuple[Any, ...]]:
    assert table is not None
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


class TestTopics:
    def test_a_row_names_its_topic_by_a_code(self, program: Program) -> None:
        rows = [Row("counted", b"k", b"v", 5, NO_HEADERS), Row("out", None, None, 6, (("h", b"1"),), 3)]
        table = rows_sent(program, sent_by((2, rows, walked())), 0)
        assert columns(table, "shard", "kind", "name", "topic", "partition", "timestamp", "key", "value", "headers") == [
            (2, Kind.SINK, program.topic_codes["counted"], None, None, 5, b"k", b"v", None),
            (2, Kind.SINK, program.topic_codes["out"], None, 3, 6, None, None, [{"name": "h", "value": b"1"}]),
        ]

    def test_a_topic_chosen_for_the_record_is_sent_by_name(self, program: Program) -> None:
        rows = [Row("out", b"k", b"v", 5, NO_HEADERS), Row("chosen", b"k", b"v", 5, NO_HEADERS)]
        table = rows_sent(program, sent_by((0, rows, walked())), 0)
        assert columns(table, "name", "topic") == [(program.topic_codes["out"], None), (-1, "chosen")]

    def test_a_dead_letter_has_its_own_kind(self, program: Program) -> None:
        rows = [Row("out", b"k", b"v", 5, NO_HEADERS), Row("dead", b"k", b"v", 5, (("why", b"x"),), kind=RowKind.DEAD_LETTER)]
        assert columns(rows_sent(program, sent_by((0, rows, walked())), 0), "kind", "name", "topic") == [
            (Kind.SINK, program.topic_codes["out"], None),
            (Kind.DEAD_LETTER, -1, "dead"),
        ]

    def test_rows_carry_the_stage_that_sends_them(self, program: Program) -> None:
        table = rows_sent(program, sent_by((2, [sink(0), exchanged(b"a")], walked((0, 1, 5, 0)))), 3)
        assert columns(table, "stage") == [(3,), (3,)]

    def test_without_sent_rows_there_is_no_table(self, program: Program) -> None:
        assert rows_sent(program, sent_by(), 0) is None
        assert rows_sent(program, sent_by((1, [], walked()), (2, [], walked((0, 1, 5, 0)))), 0) is None

    def test_rows_of_several_shards_go_together(self, program: Program) -> None:
        one = (1, [sink(0), exchanged(b"a")], walked((0, 1, 5, 0)))
        other = (4, [sink(1)], walked((0, 2, 6, 0), (3, 7, 9, 0)))
        table = rows_sent(program, sent_by(one, (2, [], walked()), other), 0)
        assert columns(table, "shard", "kind", "origin", "offset", "place") == [
            (1, Kind.SINK, 0, 1, 5),
            (shard_of(b"a", SHARDS), Kind.RECORD, 0, 1, 5),
            (4, Kind.SINK, 3, 7, 9),
        ]


class TestShards:
    def test_a_row_goes_to_the_shard_of_its_new_key(self, program: Program) -> None:
        keys = [b"key-%d" % number for number in range(30)]
        table = rows_sent(program, sent_by((1, [exchanged(key) for key in keys], walked((0, 1, 2, 0)))), 0)
        code = program.exchange_source["by-value-repartition"]
        assert columns(table, "shard", "name") == [(shard_of(key, SHARDS), code) for key in keys]
        assert {shard for (shard,) in columns(table, "shard")} == set(range(SHARDS))

    def test_a_row_without_a_key_stays_in_the_shard_that_sends_it(self, program: Program) -> None:
        one, other = ((shard, [exchanged(None), exchanged(b"a")], walked((0, 1, 2, 0))) for shard in (3, 6))
        found = columns(rows_sent(program, sent_by(one, other), 0), "shard", "key")
        own = shard_of(b"a", SHARDS)
        assert found == [(3, None), (own, b"a"), (6, None), (own, b"a")]

    def test_without_lanes_it_stays_in_the_shard_of_its_cause(self, program: Program) -> None:
        records = walked((0, 1, 2, 0), (0, 2, 2, 0), shards=[5, 2])
        rows = [exchanged(None, 0), exchanged(None, 1), sink(1), exchanged(None, -1), exchanged(b"a", 1)]
        table = rows_sent(program, sent_by((ANY_SHARD, rows, records)), 0)
        assert columns(table, "shard") == [(5,), (2,), (2,), (0,), (shard_of(b"a", SHARDS),)]

    def test_rows_for_an_atomic_section_go_to_the_first_shard(self) -> None:
        builder = StreamsBuilder()
        builder.add_state_store(shared_store("held", value=int))
        stream = builder.stream("in", value=str)
        stream.process_atomically(Processor, stores=["held"], name="move")
        stream.repartition(name="by-value").to("out")
        program = program_of(builder.build())
        [section] = program.serial_exchanges
        rows = [exchanged(b"a"), exchanged(b"a")._replace(topic=section), exchanged(None)._replace(topic=section)]
        table = rows_sent(program, sent_by((3, rows, walked((0, 1, 2, 0)))), 0)
        assert columns(table, "shard") == [(shard_of(b"a", SHARDS),), (0,), (0,)]


class TestPlaces:
    def places(self, program: Program, shard: int, level: int, rows: list[Row], records: pa.Table) -> list[tuple[Any, ...]]:
        return columns(rows_sent(program, sent_by((shard, rows, records)), level), "origin", "offset", "place", "path")

    def paths(self, program: Program, level: int, rows: list[Row], records: pa.Table) -> list[int]:
        return [path for _, _, _, path in self.places(program, 0, level, rows, records)]

    def test_a_row_keeps_the_place_of_its_cause(self, program: Program) -> None:
        rows = [exchanged(b"a", 0), exchanged(b"b", 0), exchanged(b"c", 1), sink(1)]
        places = self.places(program, 0, 0, rows, walked((4, 10, 99, 0), (2, 11, 100, 0)))
        assert [place[:3] for place in places] == [(4, 10, 99), (4, 10, 99), (2, 11, 100), (2, 11, 100)]

    def test_rows_of_one_record_are_told_apart_by_their_path(self, program: Program) -> None:
        paths = self.paths(program, 0, [exchanged(b"a")] * 3, walked((0, 1, 5, 0)))
        assert paths == sorted(set(paths))
        below = self.paths(program, 1, [exchanged(b"a")] * 2, walked((0, 1, 5, paths[1])))
        assert paths[1] <= below[0] < below[1] < paths[2]
        last = self.paths(program, 2, [exchanged(b"a")] * 2, walked((0, 1, 5, below[0])))
        assert below[0] <= last[0] < last[1] < below[1]

    def test_rows_for_topics_and_for_exchanges_are_numbered_together(self, program: Program) -> None:
        paths = self.paths(program, 0, [exchanged(b"a"), sink(0), exchanged(b"a"), sink(0)], walked((0, 1, 5, 0)))
        assert paths == sorted(set(paths))

    def test_numbers_start_over_with_each_record(self, program: Program) -> None:
        rows = [exchanged(b"a", cause) for cause in (0, 0, 1, 1)]
        paths = self.paths(program, 0, rows, walked((0, 1, 5, 0), (0, 2, 6, 0)))
        assert paths[:2] == paths[2:]

    def test_results_of_calls_come_after_what_their_record_has_sent_before(self, program: Program) -> None:
        rows = [exchanged(b"a", cause) for cause in (0, 1, 0, 1)]
        first, second, answer, other = self.paths(program, 0, rows, walked((0, 1, 5, 0), (0, 2, 6, 0)))
        assert (first, answer) == (second, other)
        assert first < answer

    def test_rows_without_a_record_come_last_by_shard_and_number(self, program: Program) -> None:
        rows = [exchanged(b"a", 0), exchanged(b"a", -1), exchanged(b"a", -1)]
        places = self.places(program, 2, 0, rows, walked((4, 10, 99, 0)))
        assert places[1:] == [(-1, 2, LAST, 1), (-1, 2, LAST, 2)]
        both = sent_by((2, rows, walked((4, 10, 99, 0))), (5, rows[1:], walked()))
        found = columns(rows_sent(program, both, 0), "origin", "offset", "place", "path")
        assert found == [*places, (-1, 5, LAST, 0), (-1, 5, LAST, 1)]

    def test_results_of_a_flush_come_last_in_later_stages_too(self, program: Program) -> None:
        earlier, later = (self.places(program, 2, level, [exchanged(b"a", 0)], walked((-1, 1, LAST, 3)))[0] for level in (0, 1))
        assert [(origin, place) for origin, _, place, _ in (earlier, later)] == [(-1, LAST)] * 2
        assert earlier[1] < later[1]

    @pytest.mark.parametrize("most_rows", [2, 10_000])
    def test_rows_of_a_flush_keep_their_order_however_their_records_are_walked(
        self, program: Program, most_rows: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(output, "_MOST_ROWS", most_rows)
        sent = Output(program, 1)
        for piece in range(3):
            rows = [exchanged(b"a", number, b"%d.%d" % (piece, number)) for number in range(2)]
            sent.add(2, rows, walked(*((-1, 1, LAST, 2 * piece + number) for number in range(2))))
        sent.add(2, [exchanged(b"a", -1, b"3.0")], walked())
        sent.add(5, [exchanged(b"a", -1, b"of another shard")], walked())
        found = [row for table in sent.tables() for row in columns(table, "place", "offset", "path", "value")]
        in_order = [b"%d.%d" % (piece, number) for piece in range(3) for number in range(2)]
        assert [value for *_, value in sorted(found)] == [*in_order, b"3.0", b"of another shard"]

    def test_timers_send_without_any_records(self, program: Program) -> None:
        [place] = self.places(program, 1, 0, [exchanged(b"a", -1)], walked())
        assert place[:3] == (-1, 1, LAST)

    def test_what_is_sent_before_the_first_record_comes_first_by_stage_and_shard(self, program: Program) -> None:
        found = []
        for level, shard in ((0, 2), (0, 5), (1, 2)):
            [place] = self.places(program, shard, level, [exchanged(b"a", BEFORE_RECORDS)], walked((0, 1, 5, 0)))
            assert (place[0], place[2]) == (BEFORE_RECORDS, FIRST)
            found.append(place[1])
        assert found == sorted(set(found))

    def test_rows_carry_watermarks_if_a_source_declares_one(self, program: Program) -> None:
        records = walked((0, 1, 5, 0), (0, 2, 6, 0)).set_column(
            RECORDS.get_field_index("stream_time"), "stream_time", pa.array([40, None], pa.int64())
        )
        rows = [exchanged(b"a", cause) for cause in (0, 1, -1)]
        timed = program_of(topology(is_watermarked=True))
        table = rows_sent(timed, sent_by((0, rows, records)), 0)
        assert columns(table, "stream_time") == [(40,), (-1,), (-1,)]  # a flush stands for no single record
        assert columns(rows_sent(timed, sent_by((0, rows[2:], walked())), 0), "stream_time") == [(-1,)]
        assert columns(rows_sent(program, sent_by((0, rows, records)), 0), "stream_time") == [(None,)] * 3

    def test_rows_carry_headers_and_values(self, program: Program) -> None:
        row = Row("by-value-repartition", b"a", None, 9, (("h", None),), kind=RowKind.EXCHANGE, cause=0)
        table = rows_sent(program, sent_by((0, [row], walked((0, 1, 5, 0)))), 0)
        assert columns(table, "timestamp", "value", "headers", "kind") == [(9, None, [{"name": "h", "value": None}], Kind.RECORD)]


class TestChanges:
    def test_a_changelog_row_goes_to_the_partition_of_its_shard(self, program: Program) -> None:
        changes = [StoreChanges("counts", [b"a", b"b"], [b"v", None], 5), StoreChanges("counts", [b"a"], [b"w"], 6)]
        table = rows_of_changes(Assignment(program, AT_77, 1), changes)
        code = program.topic_codes[changelog_topic("app", "counts")]
        assert columns(table, "shard", "kind", "name", "partition", "timestamp", "key", "value", "stage") == [
            (5, Kind.CHANGELOG, code, 5, 77, b"a", b"v", 1),
            (5, Kind.CHANGELOG, code, 5, 77, b"b", None, 1),
            (6, Kind.CHANGELOG, code, 6, 77, b"a", b"w", 1),
        ]

    def test_registers_go_to_the_lanes_topic(self, program: Program) -> None:
        changes = [StoreChanges("counts", [b"a"], [b"v"], 2), StoreChanges(REGISTERS, [b"registers"], [b"r"], 2)]
        table = rows_of_changes(Assignment(program, AT_77), changes)
        assert [(program.topics[name], *rest) for name, *rest in columns(table, "name", "partition", "key", "value")] == [
            (changelog_topic("app", "counts"), 2, b"a", b"v"),
            (lanes_topic("app"), 2, b"registers", b"r"),
        ]

    def test_nothing_changed_gives_no_rows(self, program: Program) -> None:
        assert rows_of_changes(Assignment(program, AT_77), []) is None
