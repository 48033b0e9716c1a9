"""Mistakes with builders, verbs and test drivers."""

from __future__ import annotations

import pytest

from penstock import App, StreamsBuilder, session, until_window_closes
from penstock.errors import TopologyError
from penstock.testing import TopologyTestDriver
from tests.unit.mistakes.teaching import teaches, wrong


def test_a_builder_in_place_of_its_topology() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with teaches(TopologyError, "App takes a Topology, not a StreamsBuilder", "pass what build() of the StreamsBuilder returns"):
        App("shop", wrong(builder))
    app = App("shop", builder.build())
    with teaches(TopologyError, "TopologyTestDriver takes a Topology, not a App", "the topology of the App"):
        TopologyTestDriver(wrong(app))


def test_one_topic_read_in_two_ways() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).to("out", value=str)
    builder.stream("in", value=int).to("other", value=int)
    with teaches(TopologyError, "are read with different value=", "or read them once and use that stream twice"):
        builder.build()


def test_two_nodes_with_one_name() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("in")
    orders.filter(lambda key, value: True, name="valid")
    orders.filter(lambda key, value: False, name="valid")
    with teaches(TopologyError, "Node 'valid' already exists", "Give it another name"):
        builder.build()


def test_a_join_of_streams_without_within() -> None:
    builder = StreamsBuilder()
    with teaches(TopologyError, "join with a stream needs within=", "the largest time between two records"):
        builder.stream("orders").join(wrong(builder.stream("payments")), lambda order, payment: order)


def test_a_join_across_two_builders() -> None:
    customers = StreamsBuilder().table("customers")
    with teaches(TopologyError, "belongs to another StreamsBuilder", "create both with the same one"):
        StreamsBuilder().stream("orders").join(customers, lambda order, customer: order)


def test_suppress_without_a_window() -> None:
    with teaches(TopologyError, "until_window_closes() needs a windowed table", "call windowed_by(...) before the aggregation"):
        StreamsBuilder().stream("in").group_by_key().count().suppress(until_window_closes())


def test_a_session_aggregate_without_a_merger() -> None:
    sessions = StreamsBuilder().stream("in").group_by_key().windowed_by(session("30s"))
    with teaches(TopologyError, "An aggregation over session windows", "needs a merger(key, one, two)"):
        sessions.aggregate(int, lambda key, value, count: count + 1)


def test_a_size_in_place_of_windows() -> None:
    with teaches(TopologyError, "windowed_by takes windows", "such as tumbling('5m'), not '5m'"):
        StreamsBuilder().stream("in").group_by_key().windowed_by(wrong("5m"))


def test_an_invalid_topic_name() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("my results")
    with teaches(TopologyError, "Invalid topic name 'my results'", "letters, digits, '.', '_' and '-'"):
        builder.build()


def test_a_change_after_build() -> None:
    topology = StreamsBuilder().build()
    with teaches(TopologyError, "this topology is built and cannot change any more", "declare all of it before build()"):
        topology.add_source("in", "in")


def test_an_unknown_topic_in_a_test() -> None:
    builder = StreamsBuilder()
    builder.stream("orders").to("valid-orders")
    with TopologyTestDriver(builder.build()) as driver:
        with teaches(TopologyError, "The topology reads no topic 'order'", "It reads: orders", line=False):
            driver.input("order", key=str, value=dict).pipe({})
        with teaches(TopologyError, "The topology writes no topic 'valid'", "It writes: valid-orders", line=False):
            driver.output("valid")


def test_a_store_of_another_name_in_a_test() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(store="counts")
    with (
        TopologyTestDriver(builder.build()) as driver,
        teaches(TopologyError, "Unknown store 'count'", "Stores of the topology: counts", line=False),
    ):
        driver.store("count")


def test_a_result_that_is_not_there() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        pytest.raises(LookupError, match=r"The topic has no more records\. Check is_empty first"),
    ):
        driver.output("out").read()
