"""Every stage of a plan can be bound as its own lane, as Spark runs it."""

from __future__ import annotations

from typing import Any

from penstock import StreamsBuilder, Topology
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.bound_shard import BoundShard, Surroundings
from penstock.lanes.stores import OwnShard
from penstock.state import LaneState, memory_engine
from penstock.topology import SourceNode
from penstock.topology.plan import plan


def foreign_key_join() -> Topology:
    builder = StreamsBuilder(value=str)
    orders, customers = builder.table("orders"), builder.table("customers")
    joined = orders.join(customers, lambda order, customer: order + customer, on=lambda order: order[:1], value=str)
    joined.to_stream().to("joined")
    return builder.build()


def test_each_stage_of_a_foreign_key_join_is_a_lane() -> None:
    topology = foreign_key_join()
    stages = plan(topology).stages
    assert len(stages) == 3
    state = LaneState(memory_engine())
    arrived: dict[str, list[Any]] = {"orders": [("o1", "a book")], "customers": [("a", "nn")]}
    for stage in stages:
        nodes = [topology.nodes[name] for name in stage.nodes]
        blueprint = Blueprint(nodes, topology.stores, tables=topology.nodes)
        lane = BoundShard(blueprint, OwnShard(state), Surroundings(lambda: 0))
        for source in stage.sources:
            intake = lane.intakes[source]
            for topic in intake.node.topics:
                for key, value in arrived.pop(topic, []):
                    intake.process(key, value, 1, ())
        lane.flush()
        state.commit(stage.depth)
        for row in lane.outbox.drain():
            reader = next(
                (node for node in topology.nodes.values() if isinstance(node, SourceNode) and node.reads(row.topic)),
                None,
            )
            if reader is None:
                assert (row.topic, row.key, row.value) == ("joined", b"o1", b"a booknn")
                arrived["result"] = []
            else:
                value = None if row.value is None else reader.value.deserialize(row.value)
                arrived.setdefault(row.topic, []).append((row.key and reader.key.deserialize(row.key), value))
    assert "result" in arrived
