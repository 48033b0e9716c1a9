"""Verbs that take expressions: they do what the same verb does with a function, and know types where functions do not."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import (
    EmitStrategy,
    MsgPack,
    Store,
    StreamsBuilder,
    Topology,
    agg,
    col,
    hopping,
    left,
    log_and_continue,
    otherwise,
    right,
    session,
    sliding,
    struct,
    tumbling,
)
from penstock.errors import ProcessingError, TopologyError
from penstock.expressions.functions import computed_in
from penstock.serdes import Json, String
from penstock.testing import TopologyTestDriver
from penstock.topology import ProcessorNode, SinkNode
from penstock.topology.plan import facts, fingerprint, incompatibilities
from tests.unit.dsl.running import run


@dataclass
class Order:
    customer: str
    amount: int
    note: str | None = None


@dataclass
class Named:
    total: int
    name: str | None


class Totals(msgspec.Struct):
    n: int
    total: int
    best: int | None


A, B = {"customer": "ann", "amount": 5}, {"customer": "bob", "amount": 200}


def orders(builder: StreamsBuilder, value: Any = None) -> Any:
    return builder.stream("in", value=value)


def test_filter_keeps_records_for_which_all_conditions_are_true() -> None:
    builder = StreamsBuilder()
    orders(builder).filter(col("amount") > 100, col("customer") == "bob").to("out")
    orders(builder).filter_not(col("amount") > 100).to("rest")
    records = [("in", None, A), ("in", None, B), ("in", None, {"customer": "bob"}), ("in", None, None)]
    assert run(builder, *records) == [(None, B)]
    assert run(builder, *records, out="rest") == [(None, A), (None, {"customer": "bob"}), (None, None)]


def test_split_by_conditions() -> None:
    builder = StreamsBuilder()
    branches = orders(builder).split(big=col("amount") > 100, small=otherwise)
    branches["big"].to("out")
    assert run(builder, ("in", None, A), ("in", None, B)) == [(None, B)]


def test_map_values_to_a_struct_a_class_and_a_single_value() -> None:
    builder = StreamsBuilder()
    stream = orders(builder)
    stream.map_values(struct(x=col("amount") * 2)).to("out")
    stream.map_values(struct(into=Named, total=col("amount"), name=col("customer"))).to("named")
    stream.map_values(col("customer", str)).to("names")
    sinks = {node.topic: node for node in builder.build().nodes.values() if isinstance(node, SinkNode)}
    assert [sinks[topic].value for topic in ("out", "named", "names")] == [Json(), Json(Named), String()]
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe(A)
        assert driver.output("out").values() == [{"x": 10}]
        assert driver.output("named").values() == [Named(5, "ann")]
        assert driver.output("names", value=str).values() == ["ann"]


def test_a_struct_is_json_where_the_default_is_no_document() -> None:
    builder = StreamsBuilder(value=str)
    builder.stream("in", value=dict).map_values(struct(x=col("amount"))).to("out")
    assert run(builder, ("in", None, A)) == [(None, {"x": 5})]


def test_a_new_key_has_the_type_of_its_expression() -> None:
    builder = StreamsBuilder(key=int)
    orders(builder, Order).select_key(col("customer")).to("out")
    assert run(builder, ("in", 1, Order("ann", 5))) == [("ann", Order("ann", 5))]


def test_joins_of_streams_and_tables() -> None:
    builder = StreamsBuilder()
    stream, table = orders(builder, Order), builder.table("customers")
    everyone = builder.global_table("everyone")
    named = struct(into=Named, total=left("amount"), name=right("name"))
    stream.join(table, named).to("inner")
    stream.left_join(table, named).to("left")
    stream.left_join(everyone, named, on=col("customer")).to("global")
    stream.outer_join(builder.stream("other"), named, within="1s").to("outer")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("everyone").pipe({"name": "Ann"}, key="ann")
        driver.input("in").pipe(Order("ann", 5), key="k")
        driver.input("customers").pipe({"name": "Bob"}, key="k")
        driver.input("in").pipe(Order("bob", 7), key="k")
        assert driver.output("inner").values() == [Named(7, "Bob")]
        assert driver.output("left").values() == [Named(5, None), Named(7, "Bob")]
        assert driver.output("global").values() == [Named(5, "Ann"), Named(7, None)]
        driver.input("other").pipe({"name": "X"}, key="k")
        assert driver.output("outer").values()[-2:] == [Named(5, "X"), Named(7, "X")]


def test_tables_are_filtered_mapped_and_joined() -> None:
    builder = StreamsBuilder()
    one, two = builder.table("one", value=Order), builder.table("two")
    one.filter(col("amount") > 6).to_stream().to("filtered")
    one.filter_not(col("amount") > 6, store="small").to_stream().to("small")
    one.map_values(struct(x=col("amount"))).to_stream(col("x", int)).to("mapped")
    one.join(two, struct(into=Named, total=left("amount"), name=right("name"))).to_stream().to("joined")
    one.left_join(two, struct(name=right("name")), on=col("customer")).to_stream().to("foreign")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("two").pipe({"name": "Ann"}, key="ann")
        driver.input("two").pipe({"name": "K"}, key="k")
        driver.input("one").pipe(Order("ann", 7), key="k")
        driver.input("one").pipe(Order("bob", 5), key="k")
        assert driver.output("filtered").values() == [Order("ann", 7), None]
        assert driver.output("small").values()[-1] == Order("bob", 5)
        assert driver.output("mapped", key=int).pairs() == [(7, {"x": 7}), (5, {"x": 5})]
        assert driver.output("joined").values() == [Named(7, "K"), Named(5, "K")]
        assert driver.output("foreign").values() == [{"name": "Ann"}, {"name": None}]


def test_agg_computes_a_dict_or_a_class() -> None:
    builder = StreamsBuilder()
    grouped = orders(builder).group_by(col("customer"))
    grouped.agg(n=agg.count(), total=agg.sum(col("amount")), store="totals").to_stream().to("out")
    grouped.agg(n=agg.count(), total=agg.sum(col("amount")), best=agg.max(col("amount")), into=Totals, store="typed")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe_values([A, B, A])
        assert driver.output("out").pairs() == [
            ("ann", {"n": 1, "total": 5}),
            ("bob", {"n": 1, "total": 200}),
            ("ann", {"n": 2, "total": 10}),
        ]
        assert driver.store("typed")["ann"] == Totals(2, 10, 5)


def test_agg_is_kept_with_the_serde_of_its_store() -> None:
    builder = StreamsBuilder()
    orders(builder).group_by_key().agg(n=agg.count(), store=Store("n", value=MsgPack()))
    assert builder.build().stores["n"].value == MsgPack()


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (tumbling("10ms"), {"n": 1, "total": 200, "first": 200}),
        (hopping("20ms", advance="10ms"), {"n": 2, "total": 205, "first": 5}),
        (sliding("10ms"), {"n": 2, "total": 205, "first": 5}),
        (session("10ms"), {"n": 2, "total": 205, "first": 5}),
    ],
)
@pytest.mark.parametrize("caching", [True, False])
def test_agg_per_window(windows: Any, expected: dict[str, Any], caching: bool) -> None:
    builder = StreamsBuilder()
    named = {"n": agg.count(), "total": agg.sum(col("amount")), "first": agg.first(col("amount"))}
    grouped = orders(builder).group_by_key().windowed_by(windows)
    grouped.agg(**named, store="w").to_stream().to("out")
    results = [value for _, value in run(builder, ("in", "k", A, 5), ("in", "k", B, 12), caching=caching)]
    assert expected in results


def test_agg_that_is_emitted_when_its_window_closes() -> None:
    builder = StreamsBuilder()
    windowed = orders(builder).group_by_key().windowed_by(tumbling("10ms", grace="0ms"))
    windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE).agg(total=agg.sum(col("amount"))).to_stream().to("out")
    assert [value for _, value in run(builder, ("in", "k", A, 1), ("in", "k", A, 2), ("in", "k", B, 30))] == [{"total": 10}]


@pytest.mark.parametrize("caching", [True, False])
def test_agg_of_a_grouped_table_subtracts(caching: bool) -> None:
    builder = StreamsBuilder()
    grouped = builder.table("in", value=Order).group_by(col("customer"))
    grouped.agg(n=agg.count(), total=agg.sum(col("amount")), notes=agg.count(col("note")), store="t").to_stream().to("out")
    with TopologyTestDriver(builder.build(), caching=caching) as driver:
        driver.input("in").pipe(Order("ann", 5, "x"), key="1")
        driver.input("in").pipe(Order("ann", 7), key="2")
        assert driver.store("t")["ann"] == {"n": 2, "total": 12, "notes": 1}
        driver.input("in").pipe(Order("bob", 6), key="1")
        assert driver.store("t")["ann"] == {"n": 1, "total": 7, "notes": 0}
        assert driver.store("t")["bob"] == {"n": 1, "total": 6, "notes": 0}


def test_a_mean_is_a_sum_divided_by_a_count() -> None:
    builder = StreamsBuilder()
    totals = orders(builder).group_by_key().agg(n=agg.count(col("amount")), total=agg.sum(col("amount")))
    totals.map_values(struct(mean=col("total") / col("n"))).to_stream().to("out")
    assert run(builder, ("in", "k", A), ("in", "k", B))[-1] == ("k", {"mean": 102.5})


def test_an_error_of_an_expression_is_a_processing_error_of_its_record() -> None:
    def failing() -> Topology:
        builder = StreamsBuilder()
        orders(builder).group_by_key().agg(total=agg.sum(col("amount")), store="t").to_stream().to("out")
        return builder.build()

    with TopologyTestDriver(failing()) as driver, pytest.raises(ProcessingError, match=r"KSTREAM-AGGREGATE.*more than 64 bits"):
        driver.input("in").pipe_pairs([("k", {"amount": 2**63 - 1}), ("k", {"amount": 1})])
    with TopologyTestDriver(failing(), processing_errors=log_and_continue()) as driver:
        driver.input("in").pipe_pairs([("k", {"amount": 2**63 - 1}), ("k", {"amount": 1}), ("k", {"amount": -7})])
        assert driver.store("t")["k"] == {"total": 2**63 - 8}


class Wrong(msgspec.Struct):
    n: int
    total: str = ""
    best: int = 0
    low: str | None = None
    tags: list[str] = []


def aggregated(stream: Any, into: type, **named: Any) -> Any:
    return stream.group_by_key().agg(n=agg.count(), **named, into=into)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda s, t: s.filter(col("amuont") > 1), "Order has no field 'amuont', .* it has customer, amount, note"),
        (lambda s, t: s.filter(col("amount", "x") > 1), "needs a value with fields, but the value is int"),
        (lambda s, t: s.filter(col("amount")), r"filter needs a condition, but col\('amount'\) is int"),
        (lambda s, t: s.filter(col("amount") > 1, lambda k, v: True), "takes one function, or any number of expressions"),
        (lambda s, t: s.filter(lambda k, v: True, lambda k, v: True), "takes one function, or any number of expressions"),
        (lambda s, t: s.filter(col("customer") > 1), "compares str with int"),
        (lambda s, t: s.filter(col("customer", int) > 1), "is declared as int, but it is str"),
        (lambda s, t: s.filter(~col("amount")), r"col\('amount'\) is int, where an expression needs conditions"),
        (lambda s, t: s.filter(col("customer") * 2 > 5), r"col\('customer'\) is str, where an expression needs numbers"),
        (lambda s, t: s.filter(left("amount") > 1), r"filter computes with col\(...\), so it cannot use left\('amount'\)"),
        (lambda s, t: s.join(t, struct(x=col("amount"))), r"join computes with left\(...\) and right\(...\)"),
        (lambda s, t: s.join(t, struct(x=left("y"))), "Order has no field 'y'"),
        (lambda s, t: s.join(t, struct(x=left("amount")), with_key=True), "join takes with_key= only with a function"),
        (lambda s, t: t.join(t, struct(x=right("y"))), "Order has no field 'y'"),
        (lambda s, t: s.map_values(col("amount"), with_key=True), "map_values takes with_key= only with a function"),
        (lambda s, t: s.select_key(struct(a=col("amount"))), "select_key needs a single value as the key"),
        (lambda s, t: s.group_by_key().agg(), "agg needs at least one aggregate"),
        (lambda s, t: s.group_by_key().agg(n=1), r"n= is an aggregate such as agg.sum\(col\('amount'\)\), not 1"),
        (lambda s, t: s.group_by_key().agg(n=col("amount")), "n= is an aggregate"),
        (lambda s, t: s.group_by_key().agg(name=agg.last(col("customer"))), "no aggregate can be called 'name'"),
        (lambda s, t: s.group_by_key().agg(n=agg.sum(col("customer"))), "adds values of type str, which are no numbers"),
        (lambda s, t: s.group_by_key().agg(n=agg.sum(col("price"))), "Order has no field 'price'"),
        (lambda s, t: s.group_by_key().agg(n=agg.first(col())), "is over values of type Order"),
        (lambda s, t: s.group_by_key().agg(m=agg.count(), into=Totals), "Totals has no field 'm'"),
        (lambda s, t: aggregated(s, Totals), "cannot create Totals from n"),
        (lambda s, t: aggregated(s, Wrong, total=agg.sum(col("amount"))), "Wrong.total is str, but the sum is int"),
        (lambda s, t: aggregated(s, Wrong, best=agg.max(col("amount"))), "best must accept None .*int | None"),
        (lambda s, t: aggregated(s, Wrong, low=agg.min(col("amount"))), "Wrong.low is str, but the min is int"),
        (lambda s, t: aggregated(s, Wrong, tags=agg.last(col("note"))), r"tags is list\[str\], but an aggregate is"),
        (lambda s, t: t.group_by(col("customer")).agg(m=agg.max(col("amount"))), r"grouped table cannot have m=max"),
    ],
)  # fmt: skip
def test_a_mistake_is_found_when_the_topology_is_declared(declare: Callable[[Any, Any], Any], message: str) -> None:
    builder = StreamsBuilder()
    stream, table = builder.stream("in", value=Order), builder.table("table", value=Order)
    with pytest.raises(TopologyError, match=message) as caught:
        declare(stream, table)
    assert Path(__file__).name in str(caught.value)


def counting(**named: Any) -> Topology:
    builder = StreamsBuilder()
    orders(builder).filter(col("amount") > 1).group_by_key().agg(**named, store="totals")
    return builder.build()


def test_a_change_of_the_aggregates_is_a_change_of_the_stores_layout() -> None:
    before, after = counting(x=agg.sum(col("amount"))), counting(x=agg.max(col("amount")))
    assert fingerprint(before) != fingerprint(after)
    assert fingerprint(before) == fingerprint(counting(x=agg.sum(col("amount"))))
    assert incompatibilities(facts(before, "1"), facts(after, "2")) == [
        "store 'totals': aggregates was agg(x=sum(col('amount'))) and is agg(x=max(col('amount')))"
    ]


def test_a_change_of_another_expression_is_only_a_change_of_the_fingerprint() -> None:
    builder = StreamsBuilder()
    orders(builder).filter(col("amount") > 2).group_by_key().agg(x=agg.count(), store="totals")
    before, after = counting(x=agg.count()), builder.build()
    assert fingerprint(before) != fingerprint(after)
    assert incompatibilities(facts(before, "1"), facts(after, "2")) == []


def test_operators_with_expressions_are_equal_and_can_be_pickled() -> None:
    one, two = counting(x=agg.sum(col("amount"))), counting(x=agg.sum(col("amount")))
    for node in one.nodes.values():
        if isinstance(node, ProcessorNode) and computed_in(node.operator):
            same = two.nodes[node.name]
            assert isinstance(same, ProcessorNode)
            assert node.operator == same.operator == pickle.loads(pickle.dumps(node.operator))
            assert hash(node.operator) == hash(same.operator)
