"""`walk`: an epoch of Arrow batches through a lane."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import Cancellable, Processor, PunctuationType, Record, RecordMetadata, Topology, key_value_store
from penstock.dsl import StreamsBuilder
from penstock.errors import ProcessingError
from penstock.lanes.epoch import RECORDS, in_order
from tests.unit.lanes.feeding import Raw, batch, lane_of, shuffled, values, walk


class Trace(Processor[Any, Any, Any, Any]):
    """Forwards where each record came from."""

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record.with_value(list(self.context.record_metadata or ())))


def traced(*topics: str) -> Topology:
    topology = Topology()
    for topic in topics:
        topology.add_source(topic, topic, key=bytes, value=bytes)
    return topology.add_processor("trace", Trace, *topics).add_sink("out", "out", "trace", key=bytes)


def places(topology: Topology, *batches: Any) -> list[bytes | None]:
    lane = lane_of(topology)
    walk(lane, batches)
    return values(lane.outbox.drain())


def test_rows_of_one_cause_keep_their_order_beside_rows_from_topics() -> None:
    long_way = 1 << 59  # a floating-point number cannot represent its neighbours
    rows = [
        {"source": 0, "origin": 0, "offset": 7, "place": 5, "path": long_way + number, "timestamp": 5, "value": b"%d" % number}
        for number in (1, 0)
    ]
    rows.append({"source": 0, "origin": 1, "offset": 0, "place": None, "path": None, "timestamp": 9, "value": b"topic"})
    merged = in_order(pa.Table.from_pylist(rows, schema=RECORDS))
    assert merged.column("value").to_pylist() == [b"0", b"1", b"topic"]


class TestMerging:
    def test_records_of_one_partition_go_in_the_order_of_their_offsets(self) -> None:
        records = [Raw("a", offset, time, None, b"x") for offset, time in ((3, 30), (1, 40), (2, 5))]
        assert places(traced("a"), batch(records)) == [b'["a",0,1]', b'["a",0,2]', b'["a",0,3]']

    def test_partitions_are_merged_by_time(self) -> None:
        left = [Raw("a", 0, 10, None, b"x"), Raw("a", 1, 30, None, b"x")]
        right = [Raw("a", 7, 20, None, b"x", partition=1), Raw("a", 8, 40, None, b"x", partition=1)]
        expected = [b'["a",0,0]', b'["a",1,7]', b'["a",0,1]', b'["a",1,8]']
        assert places(traced("a"), batch(left), batch(right)) == expected
        assert places(traced("a"), batch(right), batch(left)) == expected

    def test_a_record_that_is_late_in_its_partition_does_not_overtake_the_one_before_it(self) -> None:
        records = [Raw("a", 0, 10, None, b"x"), Raw("a", 1, 1, None, b"x"), Raw("a", 0, 5, None, b"x", partition=1)]
        assert places(traced("a"), batch(records)) == [b'["a",1,0]', b'["a",0,0]', b'["a",0,1]']

    def test_equal_times_go_by_topic_and_partition(self) -> None:
        records = [Raw(topic, 0, 10, None, b"x", partition=partition) for topic in ("b", "a") for partition in (1, 0)]
        assert places(traced("a", "b"), batch(records)) == [b'["a",0,0]', b'["a",1,0]', b'["b",0,0]', b'["b",1,0]']

    @settings(deadline=None, max_examples=40)
    @given(
        st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 20)), min_size=1, max_size=20),
        st.integers(0, 1000),
    )
    def test_the_order_of_blocks_does_not_matter(self, drawn: list[tuple[str, int, int]], seed: int) -> None:
        records = [Raw(topic, n, time, None, b"x", partition=partition) for n, (topic, partition, time) in enumerate(drawn)]
        topology = traced("a", "b")
        assert places(topology, *shuffled(records, seed)) == places(topology, batch(records))

    @settings(deadline=None, max_examples=40)
    @given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 20)), min_size=1, max_size=20))
    def test_the_partition_with_the_lowest_next_time_is_always_next(self, drawn: list[tuple[int, int]]) -> None:
        records = [Raw("a", n, time, None, b"x", partition=partition) for n, (partition, time) in enumerate(drawn)]
        queues = {partition: [record for record in records if record.partition == partition] for partition in range(3)}
        lane = lane_of(traced("a"))
        walk(lane, [batch(records)])
        for row in lane.outbox.drain():
            heads = [queue[0] for queue in queues.values() if queue]
            taken = next(head for head in heads if row.value == f'["a",{head.partition},{head.offset}]'.encode())
            assert taken.timestamp == row.timestamp == min(head.timestamp for head in heads)
            queues[taken.partition].pop(0)


class TestDecoding:
    def test_keys_values_and_headers_arrive_and_nulls_stay_nulls(self) -> None:
        topology = Topology().add_source("a", "a", value=int).add_sink("out", "out", "a", value=int)
        one = (1).to_bytes(8, "big")
        lane = lane_of(topology)
        records = [
            Raw("a", 0, 1, b"k", one, (("h", b"1"), ("h", None))),
            Raw("a", 1, 2, None, None),
            Raw("a", 2, 3, b"k", None, ()),
        ]
        walk(lane, [batch(records)])
        assert [(row.key, row.value, row.timestamp, row.headers) for row in lane.outbox.drain()] == [
            (b"k", one, 1, (("h", b"1"), ("h", None))),
            (None, None, 2, ()),
            (b"k", None, 3, ()),
        ]

    def test_an_empty_epoch_changes_nothing(self) -> None:
        lane = lane_of(traced("a"))
        walk(lane, [])
        walk(lane, [batch([])])
        assert lane.outbox.drain() == []
        assert lane.clocks.stream_time_of("trace").value == -1

    def test_two_sources_of_two_types_take_turns(self) -> None:
        topology = Topology().add_source("a", "a", value=int).add_source("b", "b", value=str)
        topology.add_sink("numbers", "numbers", "a", value=int).add_sink("texts", "texts", "b", value=str)
        lane = lane_of(topology)
        one = (1).to_bytes(8, "big")
        walk(lane, [batch([Raw("a", 0, 1, None, one), Raw("b", 0, 2, None, b"x"), Raw("a", 1, 3, None, one)])])
        assert [(row.topic, row.value) for row in lane.outbox.drain()] == [("numbers", one), ("texts", b"x"), ("numbers", one)]

    def test_a_source_of_several_topics_knows_which_one_a_record_came_from(self) -> None:
        topology = Topology().add_source("in", "a", "b", key=bytes, value=bytes)
        topology.add_processor("trace", Trace, "in").add_sink("out", "out", "trace", key=bytes)
        records = [Raw("b", 4, 1, None, b"x", source="in"), Raw("a", 9, 2, None, b"x", source="in")]
        assert places(topology, batch(records)) == [b'["b",0,4]', b'["a",0,9]']


class Ticking(Processor[Any, Any, Any, Any]):
    """Forwards every record, and every tick of stream time with the metadata at that moment."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.STREAM_TIME, self.tick)

    def process(self, record: Record[Any, Any]) -> None:
        place = self.context.record_metadata
        self.context.forward(record.with_value(None if place is None else place.offset))

    def tick(self, timestamp: int) -> None:
        assert self.context.record_metadata is None
        self.context.forward(Record(None, f"tick {timestamp}", timestamp))


def test_punctuators_fire_between_the_records_of_an_epoch() -> None:
    topology = Topology().add_source("a", "a", value=bytes).add_processor("tick", Ticking, "a").add_sink("out", "out", "tick")
    lane = lane_of(topology)
    walk(lane, [batch([Raw("a", offset, time, None, b"x") for offset, time in enumerate((3, 4, 12, 11, 30))])])
    assert values(lane.outbox.drain()) == [b"0", b'"tick 3"', b"1", b"2", b'"tick 12"', b"3", b"4", b'"tick 30"']


@pytest.mark.parametrize("punctuating", [False, True])
def test_stream_time_is_the_highest_time_of_all_epochs(punctuating: bool) -> None:
    topology = Topology().add_source("a", "a", value=bytes)
    topology.add_processor("p", Ticking if punctuating else Trace, "a")
    lane = lane_of(topology)
    walk(lane, [batch([Raw("a", 0, 50, None, b"x"), Raw("a", 1, 7, None, b"x")])])
    assert lane.clocks.stream_time_of("p").value == 50
    walk(lane, [batch([Raw("a", 2, 20, None, b"x")])])
    assert lane.clocks.stream_time_of("p").value == 50


def test_a_record_sees_the_stream_time_that_it_advanced() -> None:
    class Look(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None:
            self.context.forward(record.with_value(self.context.current_stream_time_ms()))

    topology = Topology().add_source("a", "a", value=bytes).add_processor("look", Look, "a").add_sink("out", "out", "look")
    lane = lane_of(topology)
    walk(lane, [batch([Raw("a", 0, 5, None, b"x"), Raw("a", 1, 9, None, b"x"), Raw("a", 2, 7, None, b"x")])])
    assert values(lane.outbox.drain()) == [b"5", b"9", b"9"]


def test_later_records_keep_their_origin_after_a_punctuator_is_cancelled() -> None:
    class Once(Processor[Any, Any, Any, Any]):
        def init(self, context: Any) -> None:
            scheduled: Cancellable = context.schedule(10, PunctuationType.STREAM_TIME, lambda now: scheduled.cancel())

        def process(self, record: Record[Any, Any]) -> None:
            pass

    topology = traced("b").add_source("a", "a", value=bytes).add_processor("once", Once, "a")
    assert places(topology, batch([Raw("a", 0, 1, None, b"x"), Raw("b", 7, 2, None, b"x")])) == [b'["b",0,7]']


def test_bytes_the_serde_cannot_read_name_the_source_and_the_record() -> None:
    lane = lane_of(Topology().add_source("a", "a", value=int))
    with pytest.raises(ProcessingError, match=r"a cannot read the record from a.* at offset 7"):
        walk(lane, [batch([Raw("a", 7, 1, None, b"no number")])])


def test_an_extractor_is_not_blamed_for_bytes_the_serde_cannot_read() -> None:
    timed = (("at", b"1"),)
    lane = lane_of(Topology().add_source("a", "a", value=int, timestamp=lambda record: int(record.headers[0][1] or 0)))
    with pytest.raises(ProcessingError, match=r"a cannot read the record from a.* at offset 8"):
        walk(lane, [batch([Raw("a", 7, 1, None, bytes(8), timed), Raw("a", 8, 1, None, b"no number", timed)])])


def test_caches_emit_once_per_epoch_without_an_origin() -> None:
    builder = StreamsBuilder()
    seen: list[RecordMetadata | None] = []

    class Origin(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None:
            seen.append(self.context.record_metadata)
            self.context.forward(record)

    builder.stream("a", value=str, name="a").group_by_key().count(store="n").to_stream().process(Origin).to("out", value=int)
    lane = lane_of(builder.build())
    walk(lane, [batch([Raw("a", offset, offset, b"k", b"x") for offset in range(3)])])
    walk(lane, [batch([Raw("a", 3, 3, b"k", b"x")])])
    assert values(lane.outbox.drain()) == [(3).to_bytes(8, "big"), (4).to_bytes(8, "big")]
    assert seen == [None, None]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 30)), min_size=1, max_size=25), st.integers(0, 1000))
def test_a_stateful_topology_ends_in_the_same_state_whatever_the_blocks(drawn: list[tuple[str, int]], seed: int) -> None:
    topology = Topology().add_source("a", "a", value=str).add_processor("keep", Keep, "a")
    topology.add_state_store(key_value_store("kept", value=list), "keep")
    records = [Raw("a", n, time, key.encode(), str(n).encode(), partition=n % 2) for n, (key, time) in enumerate(drawn)]
    contents = []
    for batches in ([batch(records)], shuffled(records, seed)):
        lane = lane_of(topology)
        walk(lane, batches)
        contents.append(dict(lane.stores.store("kept").items()))
    assert contents[0] == contents[1]


class Keep(Processor[str, str, Any, Any]):
    def process(self, record: Record[str, str]) -> None:
        store = self.context.store("kept")
        store[record.key] = [*(store.get(record.key) or []), record.value]
