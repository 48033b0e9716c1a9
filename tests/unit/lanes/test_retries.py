"""Retries: which functions are retried, how often, after which waits, and that no effect is repeated."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

import penstock.operators
from penstock import (
    Failure,
    Processor,
    Record,
    Store,
    StreamsBuilder,
    Topology,
    ValueTransformer,
    dead_letter,
    hopping,
    key_value_store,
    log_and_continue,
    otherwise,
    retry,
    timestamped_key_value_store,
)
from penstock.errors import ProcessingError
from penstock.handlers import ErrorHandlers
from penstock.lanes.failures import FailurePolicy
from penstock.lanes.retries import READS, retrying
from penstock.operators.stateless import Branch
from penstock.processor import Operator
from penstock.state import keyvalue, sessions, timestamped, ttl, versioned, windows
from penstock.testing import TopologyTestDriver
from tests.unit.lanes.feeding import lane_of

DEAD = dead_letter("dead")


class Flaky:
    """A function that fails on some of its calls, counted from 1."""

    def __init__(self, function: Callable[..., Any], fails_on: set[int]) -> None:
        self.function = function
        self.fails_on = fails_on
        self.calls = 0

    def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        if self.calls in self.fails_on:
            raise ConnectionError(f"call {self.calls}")
        return self.function(*arguments)


class TestFunctions:
    def test_a_mapper_is_called_until_it_succeeds(self) -> None:
        flaky = Flaky(str.upper, fails_on={1, 2})
        builder = StreamsBuilder(value=str)
        builder.stream("in").map_values(flaky).to("out")
        with TopologyTestDriver(builder.build(), processing_errors=retry(2)) as driver:
            driver.input("in").pipe("a")
            assert driver.output("out").values() == ["A"]
            assert driver.dropped() == {}
        assert flaky.calls == 3

    def test_when_all_attempts_fail_the_next_handler_gets_the_last_error(self) -> None:
        flaky = Flaky(str.upper, fails_on={1, 2, 3})
        builder = StreamsBuilder(value=str)
        builder.stream("in").map_values(flaky, name="map").to("out")
        with TopologyTestDriver(builder.build(), processing_errors=retry(2, then=DEAD)) as driver:
            driver.input("in").pipe_values(["a", "b"])
            [letter] = driver.output("dead").records()
            assert letter.value == b"a"
            assert dict(letter.headers)["__streams.errors.message"] == b"call 3"
            assert driver.output("out").values() == ["B"]
            assert driver.dropped() == {("map", "dead letter"): 1}
        assert flaky.calls == 4

    def test_the_lane_waits_twice_as_long_each_time(self) -> None:
        waits: list[float] = []
        builder = StreamsBuilder()
        builder.stream("in", name="in").map_values(Flaky(str, fails_on={1, 2, 3, 4}))
        topology = builder.build()
        lane = lane_of(topology, policy=FailurePolicy(ErrorHandlers(processing=retry(4, "50ms")), sleep=waits.append))
        lane.intakes["in"].process("k", "v", 0, ())
        assert waits == [0.05, 0.1, 0.2, 0.4]

    def test_a_handler_function_may_return_a_retry_and_is_called_once(self) -> None:
        errors: list[str] = []

        def choose(failure: Failure) -> Any:
            errors.append(str(failure.error))
            return retry(1, then=log_and_continue()) if isinstance(failure.error, ConnectionError) else DEAD

        flaky = Flaky(lambda value: 1 / value, fails_on={1, 3, 4})
        builder = StreamsBuilder()
        builder.stream("in", value=int).map_values(flaky).to("out", value=float)
        with TopologyTestDriver(builder.build(), processing_errors=choose) as driver:
            driver.input("in").pipe_values([1, 2, 0])
            assert driver.output("out").values() == [1.0]
            assert len(driver.output("dead", key=bytes, value=bytes)) == 1
        assert errors == ["call 1", "call 3", "division by zero"]

    def test_an_error_that_already_names_its_node_is_not_retried(self) -> None:
        def refuse(key: Any, value: Any) -> Any:
            calls.append(value)
            raise ProcessingError("as it is")

        calls: list[Any] = []
        builder = StreamsBuilder()
        builder.stream("in").filter(refuse)
        driver = TopologyTestDriver(builder.build(), processing_errors=retry(then=log_and_continue()))
        with pytest.raises(ProcessingError, match=r"^as it is"):
            driver.input("in").pipe("a")
        assert calls == ["a"]

    def test_a_later_error_that_names_its_node_ends_the_retries(self) -> None:
        errors: list[Exception] = [ValueError("first"), ProcessingError("second")]

        def fail(key: Any, value: Any) -> Any:
            raise errors.pop(0)

        builder = StreamsBuilder()
        builder.stream("in").filter(fail)
        driver = TopologyTestDriver(builder.build(), processing_errors=retry(then=log_and_continue()))
        with pytest.raises(ProcessingError, match=r"^second"):
            driver.input("in").pipe("a")


class TestNothingIsDoneTwice:
    @pytest.mark.parametrize("with_key", [False, True])
    def test_by_a_generator(self, with_key: bool) -> None:
        tries: list[int] = []

        def words(*arguments: Any) -> Iterator[str]:
            tries.append(1)
            yield "a"
            if len(tries) < 3:
                raise ConnectionError
            yield "b"

        builder = StreamsBuilder(value=str)
        stream = builder.stream("in")
        (stream.flat_map_values(words, with_key=True) if with_key else stream.flat_map_values(words)).to("out")
        stream.flat_map(lambda key, value: ((key, word) for word in words())).to("pairs")
        with TopologyTestDriver(builder.build(), processing_errors=retry()) as driver:
            driver.input("in").pipe("x")
            assert driver.output("out").values() == ["a", "b"]
            assert driver.output("pairs").values() == ["a", "b"]

    @pytest.mark.parametrize("caching", [False, True])
    def test_by_an_aggregator_that_fails_on_the_second_of_two_windows(self, caching: bool) -> None:
        add = Flaky(lambda key, value, so_far: so_far + value, fails_on={2})
        builder = StreamsBuilder()
        windows = builder.stream("in", value=int).group_by_key().windowed_by(hopping(10, 5))
        windows.aggregate(int, add, store=Store("sums", value=int))
        with TopologyTestDriver(builder.build(), caching=caching, processing_errors=retry()) as driver:
            driver.input("in").pipe(1, key="k", timestamp=7)
            assert [total for _, total in driver.store("sums").all()] == [1, 1]
        assert add.calls == 3

    def test_by_a_join_that_fails_on_the_second_of_two_partners(self) -> None:
        joiner = Flaky(lambda left, right: left + right, fails_on={2})
        builder = StreamsBuilder(value=str)
        builder.stream("left").join(builder.stream("right"), joiner, within="1m").to("out")
        with TopologyTestDriver(builder.build(), processing_errors=retry()) as driver:
            driver.input("right").pipe_pairs([("k", "1"), ("k", "2")], start=0)
            driver.input("left").pipe("a", key="k", timestamp=1)
            assert driver.output("out").values() == ["a1", "a2"]

    def test_by_a_split_or_a_table_that_is_read(self) -> None:
        keep = Flaky(lambda key, value: True, fails_on={1})
        mapper = Flaky(str.upper, fails_on={2})
        builder = StreamsBuilder(value=str)
        chosen, rest = builder.stream("in").split(keep, otherwise)
        chosen.join(builder.table("names").map_values(mapper), lambda value, name: f"{value} {name}").to("chosen")
        rest.to("rest")
        with TopologyTestDriver(builder.build(), processing_errors=retry()) as driver:
            driver.input("names").pipe("ann", key="k")
            driver.input("in").pipe("hello", key="k")
            assert driver.output("chosen").values() == ["hello ANN"]
            assert driver.output("rest").is_empty
        assert keep.calls == 2

    def test_a_failure_while_a_table_is_read_names_the_table(self) -> None:
        builder = StreamsBuilder(value=str)
        names = builder.table("names").map_values(Flaky(str.upper, fails_on={2, 3}), name="upper")
        builder.stream("in").join(names, lambda value, name: f"{value} {name}").to("out")
        with TopologyTestDriver(builder.build(), processing_errors=retry(1, then=DEAD)) as driver:
            driver.input("names").pipe("ann", key="k")
            driver.input("in").pipe("hello", key="k")
            [letter] = driver.output("dead").records()
            assert dict(letter.headers)["__penstock.errors.node"] == b"upper"


class Calling(Processor[Any, Any, Any, Any]):
    """Calls something that fails, before or after its effects."""

    steps: tuple[str, ...]
    flaky: Flaky

    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.store("kept")
        self.put = self.store.put

    def process(self, record: Record[Any, Any]) -> None:
        for step in self.steps:
            getattr(self, step)(record)

    def read(self, record: Record[Any, Any]) -> None:
        assert (self.store.get("k"), "k" in self.store, list(self.store), bool(self.store)) == (None, False, [], False)
        assert len(self.store) == 0

    def call(self, record: Record[Any, Any]) -> None:
        self.flaky(record)

    def set(self, record: Record[Any, Any]) -> None:
        self.store["k"] = 1

    def put_bound(self, record: Record[Any, Any]) -> None:
        self.put("k", 1)

    def delete(self, record: Record[Any, Any]) -> None:
        assert self.store["k"] == 7
        del self.store["k"]

    def send(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


def calling(*its_steps: str, fails_on: set[int]) -> tuple[Topology, Flaky]:
    class Configured(Calling):
        steps = its_steps
        flaky = Flaky(lambda record: None, fails_on)

    topology = Topology().add_source("in", "in", value=str).add_processor("p", Configured, "in")
    topology = topology.add_state_store(key_value_store("kept", value=int), "p")
    return topology.add_sink("out", "out", "p", value=str), Configured.flaky


class TestProcessors:
    def test_a_processor_without_effects_is_retried(self) -> None:
        topology, flaky = calling("read", "call", "set", "send", fails_on={1, 2})
        with TopologyTestDriver(topology, processing_errors=retry()) as driver:
            driver.input("in").pipe("x")
            assert driver.output("out").values() == ["x"]
            assert driver.store("kept")["k"] == 1
        assert flaky.calls == 3

    @pytest.mark.parametrize("effect", ["send", "set", "put_bound", "delete"])
    def test_a_processor_with_effects_is_not_retried(self, effect: str) -> None:
        topology, flaky = calling(effect, "call", fails_on={1})
        with TopologyTestDriver(topology, processing_errors=retry(then=DEAD)) as driver:
            driver.store("kept")["k"] = 7
            driver.input("in").pipe("x")
            assert driver.output("dead").values() == [b"x"]
            assert driver.output("out").values() == (["x"] if effect == "send" else [])
            driver.store("kept")["k"] = 7
            driver.input("in").pipe("y")
            assert driver.output("dead").is_empty
        assert flaky.calls == 2

    def test_effects_for_the_previous_record_do_not_count(self) -> None:
        topology, flaky = calling("call", "send", fails_on={2})
        with TopologyTestDriver(topology, processing_errors=retry()) as driver:
            driver.input("in").pipe_values(["x", "y"])
            assert driver.output("out").values() == ["x", "y"]
        assert flaky.calls == 3

    def test_retries_end_after_an_attempt_with_effects(self) -> None:
        topology, flaky = calling("call", "send", "call", fails_on={1, 3})
        with TopologyTestDriver(topology, processing_errors=retry(then=DEAD)) as driver:
            driver.input("in").pipe("x")
            assert driver.output("out").values() == ["x"]
            assert driver.output("dead").values() == [b"x"]
        assert flaky.calls == 3

    def test_a_watched_processor_starts_and_closes_as_usual(self) -> None:
        events: list[str] = []

        class Living(Processor[Any, Any, Any, Any]):
            def init(self, context: Any) -> None:
                super().init(context)
                events.append(f"init {self.context.current_stream_time_ms()} {self.context.record_metadata}")

            def process(self, record: Record[Any, Any]) -> None:
                self.context.forward(record.with_value("to out"), "out")

            def close(self) -> None:
                events.append("close")

        topology = Topology().add_source("in", "in").add_processor("p", Living, "in")
        topology = topology.add_sink("out", "out", "p", value=str).add_sink("other", "other", "p", value=str)
        with TopologyTestDriver(topology, processing_errors=retry()) as driver:
            driver.input("in").pipe("x")
            assert driver.output("out").values() == ["to out"]
            assert driver.output("other").is_empty
        assert events == ["init -1 None", "close"]

    def test_a_supplier_of_something_else_is_refused_as_usual(self) -> None:
        topology = Topology().add_source("in", "in").add_processor("p", lambda: 5, "in")  # type: ignore[arg-type,return-value]
        with pytest.raises(Exception, match="p: the supplier must return a Processor, not a int"):
            TopologyTestDriver(topology, processing_errors=retry())

    def test_an_error_that_already_names_its_node_is_not_retried(self) -> None:
        class Refusing(Processor[Any, Any, Any, Any]):
            def process(self, record: Record[Any, Any]) -> None:
                raise ProcessingError("as it is")

        topology = Topology().add_source("in", "in").add_processor("p", Refusing, "in")
        driver = TopologyTestDriver(topology, processing_errors=retry(then=log_and_continue()))
        with pytest.raises(ProcessingError, match=r"^as it is"):
            driver.input("in").pipe("x")


class TestTransformers:
    @pytest.mark.parametrize(("writes", "calls", "letters"), [(False, 2, 0), (True, 1, 1)])
    def test_a_transformer_that_has_written_is_not_retried(self, writes: bool, calls: int, letters: int) -> None:
        flaky = Flaky(str.upper, fails_on={1})
        closed: list[bool] = []

        class Upper(ValueTransformer[str, str, str]):
            def transform(self, key: str, value: str) -> str:
                if writes:
                    self.context.store("kept").put(key, value, 0)
                return str(flaky(value))

            def close(self) -> None:
                closed.append(True)

        builder = StreamsBuilder(value=str)
        builder.add_state_store(timestamped_key_value_store("kept", value=str))
        builder.table("in").transform_values(Upper, stores=["kept"], value=str).to_stream().to("out")
        with TopologyTestDriver(builder.build(), processing_errors=retry(then=DEAD)) as driver:
            driver.input("in").pipe("a", key="k")
            assert len(driver.output("dead")) == letters
            assert driver.output("out").values() == ([] if letters else ["A"])
        assert flaky.calls == calls
        assert closed


def operators() -> list[Any]:
    for module in pkgutil.iter_modules(penstock.operators.__path__, "penstock.operators."):
        importlib.import_module(module.name)
    found: list[Any] = [Operator]
    for kind in found:
        found += kind.__subclasses__()
    ours: list[Any] = [kind for kind in found if is_dataclass(kind) and kind.__module__.startswith("penstock.")]
    return [
        kind for kind in ours if getattr(sys.modules[kind.__module__], kind.__name__) is kind
    ]  # without classes that were replaced to add slots


RETRIED_WITH_READS = {
    *("ApplyWrites", "SessionAggregate", "SlidingAggregate", "StreamAggregate", "TableAggregate", "TableReduce"),
    "WindowAggregate",
}
"""Operators whose functions get what is stored: `tests/unit/epochs/test_by_value.py` has each of them."""


def test_functions_that_get_what_is_stored_are_retried_with_the_read() -> None:
    assert {kind.__name__ for kind in operators() if kind.retries_what_it_reads} == RETRIED_WITH_READS


@pytest.mark.parametrize("kind", [kind for kind in operators() if not kind.retries_what_it_reads], ids=lambda kind: kind.__name__)
def test_every_other_function_of_every_operator_can_be_retried(kind: Any) -> None:
    """Every field with a user's function is wrapped, and no other field is changed."""
    functions = {
        field.name for field in fields(kind) if any(word in field.type for word in ("Callable", "Joiner", "OfPair", "Supplier"))
    }
    given: dict[str, Any] = {field.name: (lambda: None) if field.name in functions else None for field in fields(kind)}
    if kind is Branch:
        functions, given = {"branches"}, {"branches": ((lambda: None, "child"),)}
    operator = kind(**given)
    again = retrying(operator, lambda error, attempt, is_clean: None)
    assert {field.name for field in fields(kind) if getattr(again, field.name) is not getattr(operator, field.name)} == functions


def test_every_store_method_that_is_not_a_known_read_counts_as_a_write() -> None:
    stores = [
        *(keyvalue.KeyValueStore, timestamped.TimestampedKeyValueStore, ttl.ExpiringKeyValueStore),
        *(windows.WindowStore, windows.TimestampedWindowStore, sessions.SessionStore, versioned.VersionedKeyValueStore),
    ]
    users = {name for store in stores for name in dir(store) if not name.startswith("_")}
    lanes = {"before_commit", "discard", "restore", "observe", "follow_watermark", "fetch_kept_session", "find_kept_sessions"}
    lanes |= {"around_key", "held_entry", "hold", "settle"}
    assert users - READS - lanes == {"put", "put_all", "put_if_absent", "delete", "pop", "remove"}
