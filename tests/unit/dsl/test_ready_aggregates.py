"""Aggregates that keep more than their result: users see results, wherever they look; stores keep what results follow from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import (
    KTable,
    MsgPack,
    Store,
    StreamsBuilder,
    Windowed,
    agg,
    col,
    hopping,
    log_and_continue,
    session,
    sliding,
    struct,
    tumbling,
    until_window_closes,
)
from penstock.errors import SerializationError, TopologyError
from penstock.queries.forms import json_of
from penstock.serdes import serde_of
from penstock.testing import TopologyTestDriver
from penstock.topology.plan import facts, incompatibilities
from tests.unit.dsl.running import run

GAP_MS = 10
NAMED: dict[str, Any] = {
    "n": agg.count(),
    "mean": agg.mean(col("a")),
    "top": agg.top(col("a"), 2),
    "distinct": agg.count_distinct(col("a")),
}
NUMBERS = st.integers(-5, 5) | st.sampled_from((0.5, 0.25, 1e9))
RECORDS = st.lists(
    st.tuples(st.sampled_from("ab"), st.fixed_dictionaries({}, optional={"a": NUMBERS | st.none()}), st.integers(0, 60)),
    max_size=12,
)


def expected(values: list[Any]) -> dict[str, Any]:
    """The results of these values, by plain Python."""
    known = [value["a"] for value in values if value.get("a") is not None]
    return {
        "n": len(values),
        "mean": sum(known) / len(known) if known else None,
        "top": sorted(known, reverse=True)[:2],
        "distinct": len(set(known)),
    }


@pytest.mark.parametrize("caching", [True, False])
@given(RECORDS)
@settings(max_examples=50)
def test_results_are_those_of_all_records_of_a_key(caching: bool, records: list[Any]) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().agg(**NAMED, store="kept").to_stream().to("out")
    results = run(builder, *(("in", *record) for record in records), caching=caching)
    so_far = [[value for key, value, _ in records[: place + 1] if key == own] for place, (own, _, _) in enumerate(records)]
    assert results == [(key, expected(values)) for (key, _, _), values in zip(records, so_far, strict=True)]


@pytest.mark.parametrize("caching", [True, False])
@given(RECORDS)
@settings(max_examples=50)
def test_merged_sessions_have_the_results_of_all_their_records(caching: bool, records: list[Any]) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key().windowed_by(session(f"{GAP_MS}ms", grace="1h"))
    grouped.agg(**NAMED, store="kept")
    with TopologyTestDriver(builder.build(), caching=caching) as driver:
        for key, value, timestamp in records:
            driver.input("in").pipe(value, key=key, timestamp=timestamp)
        found = {window: results for key in "ab" for window, results in driver.store("kept").fetch(key)}
    assert found == {window: expected(values) for window, values in sessions_of(records).items()}


def sessions_of(records: list[Any]) -> dict[Windowed[str], list[Any]]:
    found: dict[Windowed[str], list[Any]] = {}
    for own in "ab":
        window: Windowed[str] | None = None
        for key, value, timestamp in sorted(records, key=lambda record: record[2]):
            if key != own:
                continue
            before = [] if window is None or timestamp - window.end > GAP_MS else found.pop(window)
            window = Windowed(own, window.start if window is not None and before else timestamp, timestamp)
            found[window] = [*before, value]
    return found


@pytest.mark.parametrize("windows", [tumbling("10ms"), hopping("20ms", advance="10ms"), sliding("10ms"), session("10ms")])
@pytest.mark.parametrize("caching", [True, False])
def test_results_per_window(windows: Any, caching: bool) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(windows).agg(**NAMED, store="kept").to_stream().to("out")
    results = [value for _, value in run(builder, ("in", "k", {"a": 5}, 11), ("in", "k", {"a": 2}, 12), caching=caching)]
    assert {"n": 2, "mean": 3.5, "top": [5, 2], "distinct": 2} in results


WRITTEN: dict[str, Callable[[StreamsBuilder], KTable[Any, Any]]] = {
    "a stream": lambda b: b.stream("in").group_by_key().agg(mean=agg.mean(col("a"))),
    "windows": lambda b: b.stream("in").group_by_key().windowed_by(tumbling("10ms")).agg(mean=agg.mean(col("a"))),
    "sessions": lambda b: b.stream("in").group_by_key().windowed_by(session("10ms")).agg(mean=agg.mean(col("a"))),
    "closed windows": lambda b: (
        b.stream("in")
        .group_by_key()
        .windowed_by(tumbling("10ms", grace="0ms"))
        .agg(mean=agg.mean(col("a")))
        .suppress(until_window_closes())
    ),
    "a table": lambda b: b.table("in").group_by(lambda key, value: ("k", value)).agg(mean=agg.mean(col("a"))),
}


@pytest.mark.parametrize("table", WRITTEN)
def test_what_is_written_to_a_topic_has_no_state(table: str) -> None:
    builder = StreamsBuilder()
    WRITTEN[table](builder).to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        for timestamp, key in ((1, "k"), (2, "l" if table == "a table" else "k"), (90, "other")):
            driver.input("in").pipe({"a": 5}, key=key, timestamp=timestamp)
        written = driver.output("out", key=bytes, value=bytes).values()
    assert set(written) - {None} == {b'{"mean":5.0}'}


@given(st.lists(st.tuples(st.sampled_from("1234"), st.none() | st.tuples(st.sampled_from("ab"), st.none() | st.integers(-5, 5)))))
@settings(max_examples=50)
def test_the_mean_of_a_grouped_table_follows_its_entries(changes: list[Any]) -> None:
    builder = StreamsBuilder()
    builder.table("in").group_by(col("group", str)).agg(mean=agg.mean(col("a")), store="kept")
    entries: dict[str, Any] = {}
    with TopologyTestDriver(builder.build()) as driver:
        for key, change in changes:
            entries[key] = change
            driver.input("in").pipe(None if change is None else {"group": change[0], "a": change[1]}, key=key)
        for group in {change[0] for _, change in changes if change is not None}:
            numbers = [entry[1] for entry in entries.values() if entry is not None and entry[0] == group and entry[1] is not None]
            assert driver.store("kept")[group] == {"mean": sum(numbers) / len(numbers) if numbers else None}


def test_a_group_that_has_become_empty_keeps_nothing_of_its_floats() -> None:
    builder = StreamsBuilder()
    builder.table("in").group_by(lambda key, value: ("all", value)).agg(mean=agg.mean(col("a")), store="kept")
    with TopologyTestDriver(builder.build()) as driver:
        for number, amount in enumerate((1e16, 0.1, 1.0)):
            driver.input("in").pipe({"a": amount}, key=str(number))
        for number in range(3):
            driver.input("in").pipe(None, key=str(number))
        driver.input("in").pipe({"a": 0.1}, key="9")
        assert driver.store("kept")["all"] == {"mean": 0.1}


@dataclass
class Amounts:
    mean: float | None
    best: list[int]


def test_verbs_below_and_stores_see_results_only() -> None:
    builder = StreamsBuilder()
    table = builder.stream("in").group_by_key().agg(**NAMED, store="kept")
    table.map_values(struct(into=Amounts, mean=col("mean"), best=col("top"))).to_stream().to("classes")
    table.filter(col("mean") > 3, store="large").to_stream().to("large")
    builder.stream("other").join(table, lambda left, right: right).to("joined")
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe_pairs([("k", {"a": 2}), ("k", {"a": 8})])
        driver.input("other").pipe({}, key="k")
        result = {"n": 2, "mean": 5.0, "top": [8, 2], "distinct": 2}
        assert driver.output("classes").values() == [Amounts(2.0, [2]), Amounts(5.0, [8, 2])]
        assert driver.output("large").values()[-1] == result
        assert driver.output("joined").values() == [result]
        assert driver.store("kept")["k"] == result
        assert driver.store("large")["k"] == result
        assert table.queryable_store_name == "kept"


@pytest.mark.parametrize("value", [dict, MsgPack()])
def test_a_store_keeps_states_and_shows_results(value: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().agg(**NAMED, store=Store("kept", value=value))
    serde = builder.build().stores["kept"].serdes[1]
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe_pairs([("k", {"a": 2}), ("k", {"a": 8}), ("k", {"a": 2})])
        data = serde.serialize(driver.store("kept")["k"])
    assert serde_of(value).deserialize(data) == {
        "n": 3,
        "mean": [3, 12],
        "top": [8, 2],
        "distinct": [2, 8],
    }
    assert orjson.loads(json_of(serde)(data)) == {"n": 3, "mean": 4.0, "top": [8, 2], "distinct": 2}


def test_the_states_belong_to_the_layout_of_the_store() -> None:
    def keeping(n: int) -> Any:
        builder = StreamsBuilder()
        builder.stream("in").group_by_key().agg(x=agg.top(col("a"), n), store="kept")
        return builder.build()

    assert incompatibilities(facts(keeping(2), "1"), facts(keeping(2), "2")) == []
    assert incompatibilities(facts(keeping(2), "1"), facts(keeping(3), "2")) == [
        "store 'kept': aggregates was agg(x=top(col('a'), 2)) and is agg(x=top(col('a'), 3))"
    ]


def test_only_the_aggregates_can_write_their_store() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().agg(mean=agg.mean(col("a")), store=Store("kept", caching=False))
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(SerializationError, match=r"Only agg can write .*: mean"):
        driver.store("kept").put("k", {"mean": 1.5}, 0)


def test_a_value_that_cannot_be_kept_is_an_error_of_its_record() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().agg(**NAMED, store="kept")
    with TopologyTestDriver(builder.build(), processing_errors=log_and_continue()) as driver:
        driver.input("in").pipe_pairs([("k", {"a": 2}), ("k", {"a": [1]}), ("k", {"a": "x"}), ("k", {"a": 4})])
        assert driver.store("kept")["k"] == {"n": 2, "mean": 3.0, "top": [4, 2], "distinct": 2}


mean: Any = agg.mean


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (
            lambda s, t: s.agg(mean=agg.mean(col("a")), best=agg.top(col("a"), 2), into=Amounts),
            r"mean=mean\(col\('a'\)\) keeps more .*struct\(into=Amounts, mean=",
        ),
        (lambda s, t: s.agg(x=agg.mean(col("a", str))), "adds values of type str, which are no numbers"),
        (lambda s, t: s.agg(x=agg.top(col("a"), 2), store=Store("kept", value=str)), r"Store 'kept' is of String\(\), but x can"),
        (lambda s, t: s.agg(x=agg.top(col("a"), 0)), "agg.top takes how many values to keep, 1 or more, not 0"),
        (lambda s, t: s.agg(x=agg.top(col("a"), True)), "1 or more, not True"),
        (lambda s, t: s.agg(x=mean("a")), "agg.mean takes an expression"),
        (lambda s, t: t.agg(x=agg.top(col("a"), 2)), r"cannot have x=top\(col\('a'\), 2\).* only count, sum and mean can do"),
        (lambda s, t: t.agg(x=agg.count_distinct(col("a"))), "only count, sum and mean can do"),
    ],
)
def test_a_mistake_is_found_when_the_topology_is_declared(declare: Callable[[Any, Any], Any], message: str) -> None:
    builder = StreamsBuilder()
    stream, table = builder.stream("in").group_by_key(), builder.table("table").group_by(col("b"))
    with pytest.raises(TopologyError, match=message) as caught:
        declare(stream, table)
    assert Path(__file__).name in str(caught.value)
