"""`on_record`: functions of records do in every verb what functions of key and value do, and fail in the same way."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import KStream, Record, StreamsBuilder, col, dead_letter, log_and_continue, on_record, otherwise, retry
from penstock.errors import ProcessingError, TopologyError
from penstock.testing import TopologyTestDriver
from tests.unit.dsl.running import HEADERS, outputs, run

Stream = KStream[Any, Any]
Verb = tuple[Callable[[Stream, Any], Stream], Callable[..., Any]]


def branches(stream: Stream, *predicates: Any) -> Stream:
    chosen, *others = (
        branch.map_values(plus(100 * number)) for number, branch in enumerate(stream.split(*predicates, otherwise))
    )
    return reduce(KStream.merge, others, chosen)


def plus(number: int) -> Callable[[int], int]:
    return lambda value: value + number


OF_PAIR: dict[str, Verb] = {
    "filter": (lambda s, f: s.filter(f), lambda key, value: value > 2),
    "filter_not": (lambda s, f: s.filter_not(f), lambda key, value: value > 2),
    "select_key": (lambda s, f: s.select_key(f, key=str), lambda key, value: f"{key}{value}"),
    "map": (lambda s, f: s.map(f), lambda key, value: (key * 2, value + 1)),
    "flat_map": (lambda s, f: s.flat_map(f), lambda key, value: [(key, n) for n in range(value)]),
    "flat_map of a generator": (lambda s, f: s.flat_map(f), lambda key, value: ((key, n) for n in range(value))),
    "split": (branches, lambda key, value: value > 2),
    "split by both": (lambda s, f: branches(s, lambda key, value: key == "a", f), lambda key, value: value > 2),
    "group_by": (lambda s, f: s.group_by(f, key=str).count().to_stream(), lambda key, value: key * value),
}
OF_VALUE: dict[str, Verb] = {
    "map_values": (lambda s, f: s.map_values(f), lambda value: value * 3),
    "flat_map_values": (lambda s, f: s.flat_map_values(f), range),
}


def of_pair(function: Callable[..., Any]) -> Callable[[Record[Any, Any]], Any]:
    return lambda record: function(record.key, record.value)


def of_value(function: Callable[..., Any]) -> Callable[[Record[Any, Any]], Any]:
    return lambda record: function(record.value)


VERBS = {
    **{verb: (declare, function, of_pair(function)) for verb, (declare, function) in OF_PAIR.items()},
    **{verb: (declare, function, of_value(function)) for verb, (declare, function) in OF_VALUE.items()},
}
"""By name: a verb, a function that it takes, and the same function of a record."""

RECORDS = st.lists(st.tuples(st.just("in"), st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 9)), max_size=6)


def results(declare: Callable[[Stream, Any], Stream], function: Any, records: list[Any]) -> list[Record[Any, Any]]:
    builder = StreamsBuilder()
    declare(builder.stream("in", key=str, value=int), function).to("out", key=str, value=int)
    return outputs(builder, *records)


@pytest.mark.parametrize("verb", VERBS)
@given(RECORDS)
@settings(max_examples=40)
def test_a_verb_does_with_records_what_it_does_with_keys_and_values(verb: str, records: list[Any]) -> None:
    declare, function, of_record = VERBS[verb]
    assert results(declare, on_record(of_record), records) == results(declare, function, records)


@pytest.mark.parametrize("verb", ["peek", "foreach"])
@given(RECORDS)
@settings(max_examples=40)
def test_an_action_sees_every_record_whole(verb: str, records: list[Any]) -> None:
    seen: list[Record[Any, Any]] = []
    builder = StreamsBuilder()
    stream = builder.stream("in", key=str, value=int)
    stream.to("out")
    assert (getattr(stream, verb)(on_record(seen.append)) is None) is (verb == "foreach")
    outputs(builder, *records)
    assert seen == [Record(key, value, timestamp, HEADERS) for _, key, value, timestamp in records]


def test_headers_and_time_are_those_of_the_record_at_the_verb() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", value=int).filter(on_record(lambda r: dict(r.headers)["trace"] is None and r.timestamp > 1))
    stream.map_values(on_record(lambda r: [r.timestamp, len(r.headers)])).to("out")
    assert run(builder, ("in", "a", 1, 1), ("in", "b", 1, 2)) == [("b", [2, 2])]


def fails(record: Record[Any, Any]) -> Any:
    raise RuntimeError("no")


def half_fails(record: Record[Any, Any]) -> Any:
    yield record.key, record.value
    raise RuntimeError("no")


def failing(declare: Callable[[Stream, Any], Stream]) -> Callable[[Stream], Stream]:
    return lambda stream: declare(stream, on_record(fails))


FAILING: dict[str, Callable[[Stream], Any]] = {
    **{verb: failing(declare) for verb, (declare, _, _) in VERBS.items()},
    "peek": lambda s: s.peek(on_record(fails)),
    "foreach": lambda s: s.foreach(on_record(fails)),
    "map without a pair": lambda s: s.map(on_record(lambda r: r.value)),
    "flat_map while iterating": lambda s: s.flat_map(on_record(half_fails)),
}


@pytest.mark.parametrize("verb", FAILING)
def test_a_function_that_fails_names_its_node_its_line_and_the_record(verb: str) -> None:
    builder = StreamsBuilder()
    FAILING[verb](builder.stream("in", key=str, value=int))
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingError) as caught:
        driver.input("in").pipe(1, key="k")
    assert "failed on the record from in-0 at offset 0 (key 'k'): " in str(caught.value)
    assert f"{__file__}:" in str(caught.value)


@pytest.mark.parametrize("verb", VERBS)
def test_a_failure_below_is_not_reported_again(verb: str) -> None:
    def below(key: Any, value: Any) -> None:
        raise RuntimeError("no")

    declare, _, of_record = VERBS[verb]
    builder = StreamsBuilder()
    declare(builder.stream("in", key=str, value=int), on_record(of_record)).foreach(below, name="below")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingError, match=r"^below failed") as caught:
        driver.input("in").pipe_pairs([("k", 1), ("k", 5)])
    assert str(caught.value).count("failed") == 1


def test_a_record_whose_function_fails_is_dropped_or_becomes_a_dead_letter() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).filter(on_record(lambda r: 1 // r.value)).to("out")
    topology = builder.build()
    with TopologyTestDriver(topology, processing_errors=log_and_continue()) as driver:
        driver.input("in").pipe_pairs([("a", 0), ("b", 1)])
        assert driver.output("out").pairs() == [("b", 1)]
    with TopologyTestDriver(topology, processing_errors=dead_letter("dead")) as driver:
        driver.input("in").pipe_pairs([("a", 0), ("b", 1)])
        assert driver.output("out").pairs() == [("b", 1)]
        assert driver.output("dead", key=str, value=int).pairs() == [("a", 0)]


@pytest.mark.parametrize("verb", VERBS)
def test_a_function_of_a_record_is_retried(verb: str) -> None:
    declare, function, of_record = VERBS[verb]
    failed: list[Record[Any, Any]] = []

    def at_second(record: Record[Any, Any]) -> Any:
        if not failed:
            failed.append(record)
            raise ConnectionError
        return of_record(record)

    builder = StreamsBuilder()
    declare(builder.stream("in", key=str, value=int), on_record(at_second)).to("out", key=str, value=int)
    with TopologyTestDriver(builder.build(), processing_errors=retry(1, "1ms")) as driver:
        driver.input("in").pipe(5, key="k", timestamp=7, headers=HEADERS)
        found = driver.output("out").records()
    assert failed == [Record("k", 5, 7, HEADERS)]
    assert found == results(declare, function, [("in", "k", 5, 7)])


def test_a_generator_that_is_retried_sends_nothing_twice() -> None:
    attempts: list[int] = []

    def at_second(record: Record[Any, Any]) -> Any:
        yield record.key, 1
        attempts.append(1)
        if len(attempts) == 1:
            raise ConnectionError
        yield record.key, 2

    builder = StreamsBuilder()
    builder.stream("in", key=str, value=int).flat_map(on_record(at_second)).to("out")
    with TopologyTestDriver(builder.build(), processing_errors=retry(1, "1ms")) as driver:
        driver.input("in").pipe(5, key="k")
        assert driver.output("out").values() == [1, 2]


def test_a_marked_function_can_be_pickled_and_compared() -> None:
    assert pickle.loads(pickle.dumps(on_record(fails))) == on_record(fails) != on_record(half_fails)


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "filter": lambda s, t: t.filter(on_record(bool)),
    "filter_not": lambda s, t: t.filter_not(on_record(bool)),
    "map_values": lambda s, t: t.map_values(on_record(str)),
    "to_stream": lambda s, t: t.to_stream(on_record(str)),
    "group_by": lambda s, t: t.group_by(on_record(lambda r: (r.key, r.value))),
    "join": lambda s, t: s.join(t, on_record(str)),
    "left_join": lambda s, t: t.left_join(t, on_record(str)),
    "join's on=": lambda s, t: t.join(t, lambda a, b: a, on=on_record(str)),
    "reduce": lambda s, t: s.group_by_key().reduce(on_record(str)),
    "aggregate": lambda s, t: s.group_by_key().aggregate(int, on_record(hash)),
    "cogroup": lambda s, t: s.group_by_key().cogroup(on_record(hash)),
    "print": lambda s, t: s.print(mapper=on_record(str)),
    "deduplicate": lambda s, t: s.deduplicate(by=on_record(str), within="1s"),
    "map_values_async": lambda s, t: s.map_values_async(on_record(str)),
}


@pytest.mark.parametrize("verb", REFUSED)
def test_other_verbs_say_where_to_use_it(verb: str) -> None:
    builder = StreamsBuilder()
    with pytest.raises(TopologyError, match=f"^{verb} cannot take on_record .*verb of the stream before") as caught:
        REFUSED[verb](builder.stream("in"), builder.table("table"))
    assert Path(__file__).name in str(caught.value)


mark: Any = on_record


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda s: s.filter(mark(lambda key, value: True)), r"filter with on_record calls its function with \(record\)"),
        (lambda s: s.map_values(mark(5)), r"map_values with on_record needs a function of \(record\), not 5"),
        (lambda s: s.select_key(mark(col("a"))), "select_key with on_record needs a function"),
        (lambda s: s.map_values(on_record(str), with_key=True), "map_values takes no with_key= with on_record"),
        (lambda s: s.flat_map_values(on_record(str), with_key=True), "flat_map_values takes no with_key= with on_record"),
        (lambda s: s.filter(on_record(bool), on_record(bool)), "takes one function, or any number of expressions"),
    ],
)
def test_a_mistake_is_found_when_the_topology_is_declared(declare: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        declare(StreamsBuilder().stream("in"))
    assert Path(__file__).name in str(caught.value)
