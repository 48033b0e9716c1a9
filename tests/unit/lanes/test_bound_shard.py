"""A lane: the order of starting and closing, stores, clocks, errors, and that everything it needs can be pickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest

from penstock import (
    Processor,
    PunctuationType,
    Record,
    Serde,
    SessionWindowed,
    Store,
    StreamsBuilder,
    TimeWindowed,
    Topology,
    Windowed,
    key_value_store,
    otherwise,
    tumbling,
    until_time_limit,
    until_window_closes,
)
from penstock.errors import ProcessingError, TopologyError
from penstock.lanes.binder import fan_out
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.bound_shard import BoundShard, Surroundings
from penstock.lanes.outbox import RowKind
from penstock.lanes.stores import OwnShard
from penstock.operators.stateless import PassThrough
from penstock.records import RecordMetadata
from penstock.state import LaneState, StateOfStores, memory_engine
from penstock.testing import TopologyTestDriver
from penstock.topology import Line, ProcessorNode
from tests.golden.topologies import TOPOLOGIES
from tests.unit.lanes.feeding import Raw, batch, lane_of, values, walk


def lane_on(state: StateOfStores) -> BoundShard:
    """A lane without nodes."""
    return lane_of(Topology(), state)


class Silent(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


class TestTravelling:
    @pytest.mark.parametrize("name", TOPOLOGIES)
    def test_the_nodes_and_stores_of_a_topology_survive_pickling(self, name: str) -> None:
        topology = TOPOLOGIES[name]()
        nodes, stores = cloudpickle.loads(cloudpickle.dumps((list(topology.nodes.values()), dict(topology.stores))))
        assert [node.name for node in nodes] == list(topology.nodes)
        assert [node.line for node in nodes] == [node.line for node in topology.nodes.values()]
        assert stores == dict(topology.stores)
        blueprint = Blueprint(nodes, stores, global_stores=topology.global_stores)
        BoundShard(blueprint, OwnShard(LaneState(memory_engine())), Surroundings(lambda: 0))

    def test_pickled_lambdas_and_classes_still_run(self) -> None:
        suffix = "!"

        class Shout(Processor[str, str, str, str]):
            def process(self, record: Record[str, str]) -> None:
                self.context.forward(record.with_value(record.value + suffix))

        builder = StreamsBuilder()
        short, rest = builder.stream("in", value=str, name="in").split(lambda key, value: len(value) < 3, otherwise)
        short.merge(rest.map_values(lambda value: value[:2])).process(Shout, value=str).to("out", key=str)
        counted = rest.group_by(lambda key, value: value[0]).windowed_by(tumbling(10)).count()
        counted.suppress(until_window_closes()).to_stream(lambda key, value: key.key).to("counts", value=int)
        topology = builder.build()
        nodes, stores = cloudpickle.loads(cloudpickle.dumps((list(topology.nodes.values()), dict(topology.stores))))
        lane = BoundShard(Blueprint(nodes, stores), OwnShard(LaneState(memory_engine())), Surroundings(lambda: 0))
        walk(lane, [batch([Raw("in", 0, 1, b"k", b"ab"), Raw("in", 1, 2, b"k", b"abc")])])
        assert [(row.topic, row.value) for row in lane.outbox.drain() if row.topic == "out"] == [("out", b"ab!"), ("out", b"ab!")]


class TestOrder:
    def ordered(self, events: list[str]) -> Topology:
        def processor(name: str) -> Callable[[], Processor[Any, Any, Any, Any]]:
            class Named(Silent):
                def init(self, context: Any) -> None:
                    super().init(context)
                    events.append(f"init {name}")

                def process(self, record: Record[Any, Any]) -> None:
                    events.append(name)
                    super().process(record)

                def close(self) -> None:
                    events.append(f"close {name}")

            return Named

        topology = Topology().add_source("in", "in", value=bytes)
        for name, parent in (("a", "in"), ("b", "a"), ("c", "in"), ("d", "in")):
            topology.add_processor(name, processor(name), parent)
        return topology

    def test_processors_start_in_topological_order_and_children_are_called_in_it(self) -> None:
        events: list[str] = []
        lane = lane_of(self.ordered(events))
        assert events == ["init a", "init b", "init c", "init d"]
        events.clear()
        walk(lane, [batch([Raw("in", 0, 1, None, b"x")])])
        assert events == ["a", "b", "c", "d"]

    def test_every_processor_is_closed_once(self) -> None:
        events: list[str] = []
        lane = lane_of(self.ordered(events))
        events.clear()
        lane.close()
        assert sorted(events) == ["close a", "close b", "close c", "close d"]

    def test_processors_are_closed_in_topological_order(self) -> None:
        events: list[str] = []
        lane = lane_of(self.ordered(events))
        events.clear()
        lane.close()
        assert events == ["close a", "close b", "close c", "close d"]

    @pytest.mark.parametrize("children", range(4))
    def test_a_record_goes_to_all_children_in_order(self, children: int) -> None:
        seen: list[tuple[int, Any]] = []
        processes = [lambda *record, number=number: seen.append((number, record)) for number in range(children)]
        fan_out(processes)("k", "v", 1, ())
        assert seen == [(number, ("k", "v", 1, ())) for number in range(children)]


class TestStores:
    def test_the_error_for_an_unknown_store_lists_the_known_ones(self) -> None:
        topology = Topology().add_state_store(key_value_store("one")).add_state_store(key_value_store("two"))
        with pytest.raises(TopologyError, match=r"Unknown store 'three'. Stores of the topology: one, two"):
            lane_of(topology).stores.store("three")
        with pytest.raises(TopologyError, match=r"Unknown store 'three'. Stores of the topology: none"):
            lane_of(Topology()).stores.store("three")

    def test_only_tables_can_be_read_by_others(self) -> None:
        lane = lane_of(Topology().add_source("in", "in").add_processor("p", Silent, "in"))
        with pytest.raises(TopologyError, match="Node 'in' is not a table"):
            lane.circuit.hosts["p"].view("in")

    def test_an_operator_may_use_any_store_of_the_lane(self) -> None:
        class Writes(PassThrough):
            def bind(self, host: Any, forward: Any) -> Any:
                store = host.store("kept")
                assert host.spec("kept").name == "kept"
                return lambda key, value, timestamp, headers: store.put(key, value)

        topology = Topology().add_source("in", "in", value=str).add_state_store(key_value_store("kept", value=str))
        topology.add_node(ProcessorNode("write", ("in",), Writes(), (), Line("app.py", 1, "main")))
        lane = lane_of(topology)
        walk(lane, [batch([Raw("in", 0, 1, b"k", b"v")])])
        assert lane.stores.store("kept")["k"] == "v"


class TestClocks:
    def test_a_clock_never_goes_back_and_the_same_name_is_the_same_clock(self) -> None:
        lane = lane_of(Topology())
        clock = lane.clocks.clock("join")
        assert clock.time == -1
        assert [clock.observe(time) for time in (5, 3, 9)] == [5, 5, 9]
        assert lane.clocks.clock("join").time == 9
        assert lane.clocks.clock("other").time == -1

    def test_a_clock_lives_in_the_shards_state(self) -> None:
        state = LaneState(memory_engine())
        first = lane_on(state)
        first.clocks.clock("join").observe(9)
        assert lane_on(state).clocks.clock("join").time == 9
        first.stores.register("count", 5).value += 1
        assert lane_on(state).stores.register("count", 5).value == 6

    def test_stream_time_never_goes_back(self) -> None:
        lane = lane_of(Topology().add_source("in", "in", value=bytes).add_processor("p", Silent, "in"))
        walk(lane, [batch([Raw("in", 0, 10, None, b"x")])])
        walk(lane, [batch([Raw("in", 1, 5, None, b"x")])])
        assert lane.clocks.stream_time_of("p").value == 10

    def test_each_shard_of_a_lane_has_its_own_clocks(self) -> None:
        state = LaneState(memory_engine())
        topology = Topology().add_source("in", "in", value=bytes).add_processor("p", Silent, "in")
        one, other = (lane_of(topology, state.shard(number)) for number in (3, 4))
        one.clocks.clock("join").observe(9)
        walk(one, [batch([Raw("in", 0, 10, None, b"x")])])
        assert (one.clocks.clock("join").time, one.clocks.stream_time_of("p").value) == (9, 10)
        assert (other.clocks.clock("join").time, other.clocks.stream_time_of("p").value) == (-1, -1)
        state.commit(0)
        assert lane_on(state.shard(3)).clocks.clock("join").time == 9

    def test_each_sub_topology_has_its_own_stream_time(self) -> None:
        topology = Topology()
        for name in ("a", "b"):
            topology.add_source(name, name, value=bytes).add_processor(f"p{name}", Silent, name)
        groups = {name: group[0] for group in topology.groups() for name in group}
        lane = lane_of(topology, sub_topologies=groups)
        walk(lane, [batch([Raw("a", 0, 10, None, b"x"), Raw("b", 0, 5, None, b"x"), Raw("a", 1, 20, None, b"x")])])
        assert [lane.clocks.stream_time_of(name).value for name in ("a", "pa", "b", "pb")] == [20, 20, 5, 5]
        together = lane_of(topology)
        walk(together, [batch([Raw("a", 0, 10, None, b"x"), Raw("b", 0, 5, None, b"x")])])
        assert [together.clocks.stream_time_of(name).value for name in ("pa", "pb")] == [10, 10]

    def test_stream_time_is_kept_only_if_a_node_can_observe_it(self) -> None:
        state = LaneState(memory_engine())
        plain = lane_of(Topology().add_source("in", "in", value=bytes), state)
        walk(plain, [batch([Raw("in", 0, 10, None, b"x")])])
        assert list(state.commit(0)) == []
        assert plain.clocks.time_of("in") == 10  # of this epoch, for failures below a cache


def test_dropped_records_are_counted_by_node_and_reason() -> None:
    lane = lane_of(Topology())
    lane.outbox.drop("node", "late")
    lane.outbox.drop("node", "late")
    lane.outbox.drop("node", "null key")
    assert lane.outbox.dropped == {("node", "late"): 2, ("node", "null key"): 1}


def test_rows_are_drained_once_and_distinguish_topics_from_exchanges() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", value=str, name="in")
    stream.to("out", partitioner=lambda topic, key, value, partitions: partitions - 1)
    stream.repartition(name="by-key").to("again")
    topology = builder.build()
    lane = lane_of(topology, surroundings=Surroundings(lambda: 0, lambda topic: {"out": 7}[topic]))
    walk(lane, [batch([Raw("in", 0, 1, b"k", b"v")])])
    rows = lane.outbox.drain()
    sent = [(row.topic, row.partition, row.kind) for row in rows]
    assert sent == [("out", 6, RowKind.SINK), ("by-key-repartition", None, RowKind.EXCHANGE)]
    assert values(rows) == [b"v", b"v"]
    assert lane.outbox.drain() == []


TIMES, SESSION = TimeWindowed(str, 10), SessionWindowed(str)


@pytest.mark.parametrize(("key", "tail"), [(TIMES, 8), (SESSION, 16), (TimeWindowed(str, 10, changelog=True), 12)])
def test_the_times_of_a_windowed_key_do_not_decide_its_partition(key: Serde[Any], tail: int) -> None:
    builder = StreamsBuilder(value=str)
    stream = builder.stream("in", key=key, name="in")
    stream.to("plain")
    stream.to(lambda key, value, context: "chosen")
    stream.to("by-value", partitioner=lambda topic, key, value, count: None if value == "v" else 0)
    stream.select_key(lambda key, value: key.key).to("by-text", key=str)
    stream.repartition(name="by-key").to("again")
    lane = lane_of(builder.build())
    written = key.serialize(Windowed("k", 10, 20))
    walk(lane, [batch([Raw("in", 0, 1, written, b"v")])])
    found = {row.topic: row.partition for row in lane.outbox.drain()}
    # Kafka Streams, too, takes the whole key where a partitioner leaves the choice, and in repartition topics.
    assert found == {"plain": -tail, "chosen": -tail, "by-value": None, "by-text": None, "by-key-repartition": None}


def test_a_sink_of_the_processor_api_takes_the_whole_key() -> None:
    lane = lane_of(Topology().add_source("in", "in", key=TIMES).add_sink("sink", "out", "in", key=TIMES))
    walk(lane, [batch([Raw("in", 0, 1, TIMES.serialize(Windowed("k", 10, 20)), None)])])
    assert [row.partition for row in lane.outbox.drain()] == [None]


def test_a_failure_names_the_node_the_users_line_and_the_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=int, name="in").map_values(lambda value: 1 // value, name="divide").to("out")
    lane = lane_of(builder.build())
    zero = (0).to_bytes(8, "big")
    with pytest.raises(ProcessingError) as caught:
        walk(lane, [batch([Raw("in", 41, 1, b"k", zero, partition=3)])])
    message = str(caught.value)
    assert message.startswith("divide failed on the record from in-3 at offset 41 (key 'k'): ZeroDivisionError")
    assert "test_bound_shard.py" in message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_processor_may_request_an_early_commit() -> None:
    class Impatient(Silent):
        def process(self, record: Record[Any, Any]) -> None:
            self.context.commit()

    lane = lane_of(Topology().add_source("in", "in", value=bytes).add_processor("p", Impatient, "in"))
    assert not lane.outbox.commit_requested
    walk(lane, [batch([Raw("in", 0, 1, None, b"x")])])
    assert lane.outbox.commit_requested


def test_wall_clock_punctuators_wait_for_the_wall_clock() -> None:
    fired: list[int] = []

    class Waiting(Silent):
        def init(self, context: Any) -> None:
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, fired.append)

    now = [100]
    topology = Topology().add_source("in", "in").add_processor("p", Waiting, "in")
    lane = lane_of(topology, surroundings=Surroundings(lambda: now[0]))
    for now[0] in (105, 110, 112, 145, 150):
        lane.clocks.fire_punctuators()
    assert fired == [110, 145, 150]


class TestClosing:
    def test_all_processors_are_closed_and_the_first_failure_is_raised(self) -> None:
        closed: list[str] = []

        def failing(name: str) -> Callable[[], Processor[Any, Any, Any, Any]]:
            class Failing(Silent):
                def close(self) -> None:
                    closed.append(name)
                    raise RuntimeError(name)

            return Failing

        topology = Topology().add_source("in", "in").add_processor("a", failing("a"), "in").add_processor("b", failing("b"), "a")
        with pytest.raises(RuntimeError, match=r"^a$"):
            lane_of(topology).close()
        assert closed == ["a", "b"]


class TestPlaces:
    def test_a_record_that_was_held_back_keeps_its_origin(self) -> None:
        seen: list[RecordMetadata | None] = []

        class Look(Silent):
            def process(self, record: Record[Any, Any]) -> None:
                seen.append(self.context.record_metadata)
                if record.value == "fail":
                    raise RuntimeError("no")

        builder = StreamsBuilder()
        table = builder.table("in", value=str, name="in", store=Store("rows", caching=False)).suppress(until_time_limit(10))
        table.to_stream().process(Look, name="look")
        lane = lane_of(builder.build())
        walk(
            lane, [batch([Raw("in", 7, 0, b"a", b"x", source="in-source"), Raw("in", 8, 10, b"b", b"fail", source="in-source")])]
        )
        assert seen == [("in", 0, 7)]
        with pytest.raises(ProcessingError, match="look failed on the record from in-0 at offset 8"):
            walk(lane, [batch([Raw("in", 9, 30, b"c", b"x", source="in-source")])])

    def test_the_position_is_restored_even_after_a_failure(self) -> None:
        cursor = lane_of(Topology()).cursor
        first, second = RecordMetadata("in", 0, 1), RecordMetadata("in", 0, 2)
        with cursor.at(first):
            assert cursor.metadata() == first
            with pytest.raises(RuntimeError, match=r"offset=2"), cursor.at(second):
                raise RuntimeError(cursor.metadata())
            with cursor.at(None):
                assert cursor.metadata() is None
            assert cursor.metadata() == first
        assert cursor.metadata() is None


class TestFlushing:
    def test_the_last_node_that_shares_a_store_emits_each_change_once(self) -> None:
        topology = Topology().add_source("in", "in").add_processor("p", Silent, "in")
        lane = lane_of(topology.add_state_store(key_value_store("s"), "p"))
        flushed: list[str] = []
        first, second = lane.stores.pending("s"), lane.stores.pending("s")
        assert first is second
        first["k"] = 1
        lane.stores.on_flush("s", lambda: flushed.extend(f"last {first.popitem()[0]}" for _ in range(len(first))))
        lane.stores.on_flush("s", lambda: flushed.append("later still"))
        lane.flush()
        assert flushed == ["last k"]

    def test_a_processor_that_deletes_a_row_of_a_table_gives_its_time(self) -> None:
        class Delete(Silent):
            def process(self, record: Record[Any, Any]) -> None:
                self.context.store("n").delete(record.key, record.timestamp)

        builder = StreamsBuilder()
        builder.stream("in", value=str).group_by_key().count(store="n").to_stream().to("out", value=int)
        builder.stream("forget").process(Delete, stores=["n"])
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe("x", key="k", timestamp=5)
            driver.input("forget").pipe(1, key="k", timestamp=7)
            assert [(record.value, record.timestamp) for record in driver.output("out").records()] == [(1, 5), (None, 7)]
