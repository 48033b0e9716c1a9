"""The path from a source to one node, and what blocks it."""

from __future__ import annotations

import re

import pytest

from penstock import Processor, StreamsBuilder, Topology, otherwise
from penstock.errors import TopologyError
from penstock.topology.ways import source_of, way_to


def branching() -> Topology:
    builder = StreamsBuilder()
    numbers = builder.stream("in", value=int, name="in").map_values(abs, name="abs")
    numbers.to("echo", value=int, name="echo")
    counts = numbers.group_by_key().count(name="count", store="counts").to_stream(name="counted")
    counts.to("counts", value=int, name="counts-out")
    by = numbers.select_key(lambda key, value: str(value), name="rekey").repartition(name="by", value=int)
    by.map_values(lambda value: 1 / value, name="invert").to("out", value=float, name="out")
    return builder.build()


def test_the_path_leads_through_exchanges_and_nowhere_else() -> None:
    way = way_to(branching().nodes, "in", "invert")
    assert {"in", "abs", "rekey", "invert"} <= way
    assert way.isdisjoint({"echo", "count", "counted", "counts-out", "out"})


def test_it_may_lead_to_a_stateful_node_but_not_through_one() -> None:
    assert "count" in way_to(branching().nodes, "in", "count")
    with pytest.raises(TopologyError, match=r"(?s)'count', between 'in' and 'counted'.*test_ways\.py.*keeps state"):
        way_to(branching().nodes, "in", "counted")


def test_a_source_is_its_own_path() -> None:
    assert way_to(branching().nodes, "in", "in") == {"in"}


def test_an_unknown_node_and_an_unreachable_one_are_named() -> None:
    with pytest.raises(TopologyError, match="has no node 'nobody'"):
        way_to(branching().nodes, "in", "nobody")
    builder = StreamsBuilder()
    builder.stream("one", name="one").to("x", name="x")
    builder.stream("two", name="two").to("y", name="y")
    with pytest.raises(TopologyError, match="'y' cannot be reached from 'one'"):
        way_to(builder.build().nodes, "one", "y")


def test_a_node_that_produces_several_records_blocks_the_path() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="in").flat_map_values(lambda v: [v], name="flat").map_values(str, name="end")
    with pytest.raises(TopologyError, match="'flat', between"):
        way_to(builder.build().nodes, "in", "end")


def test_a_processor_blocks_the_path() -> None:
    topology = Topology().add_source("in", "in").add_processor("any", Processor, "in").add_sink("end", "out", "any")
    with pytest.raises(TopologyError, match="'any', between"):
        way_to(topology.nodes, "in", "end")


def test_two_paths_are_rejected_unless_a_branch_chooses() -> None:
    builder = StreamsBuilder()
    source = builder.stream("in", name="in")
    source.filter(lambda k, v: True, name="one").merge(source.filter(lambda k, v: True, name="two"), name="end")
    with pytest.raises(TopologyError, match=re.escape("several paths lead from 'in' to 'end', through one, two")):
        way_to(builder.build().nodes, "in", "end")
    builder = StreamsBuilder()
    one, two = builder.stream("in", name="in").split(lambda k, v: v, otherwise, name="split")
    one.merge(two, name="end")
    assert "split" in " ".join(way_to(builder.build().nodes, "in", "end"))


def test_a_topic_has_one_source() -> None:
    topology = Topology().add_source("some", re.compile("some-.*")).add_source("in", "in")
    assert source_of(topology.nodes, "some-topic").name == "some"
    assert source_of(topology.nodes, "in").name == "in"
    with pytest.raises(TopologyError, match="does not read 'other'"):
        source_of(topology.nodes, "other")
