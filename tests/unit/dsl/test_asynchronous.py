"""The asynchronous verbs as users write them: what they call, where results and failures go, what is refused."""

from __future__ import annotations

import asyncio
import functools
import time
from typing import Any, cast

import pytest

from penstock import (
    CallContext,
    CircuitBreaker,
    Failure,
    Record,
    ResultCache,
    SideOutput,
    StreamsBuilder,
    Topology,
    dead_letter,
    log_and_continue,
    retry,
)
from penstock.errors import CircuitOpenError, ProcessingError, TopologyError
from penstock.testing import FakeAsync, TopologyTestDriver
from penstock.topology.plan import plan


async def shout(value: str) -> str:
    await asyncio.sleep(0.02)
    return value.upper()


def built(verb: str, function: Any, value: Any = str, **options: Any) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", value=str)
    getattr(stream, verb)(function, value=value, name="asked", **options).to("out", value=value)
    return builder.build()


def run(topology: Topology, *pairs: tuple[Any, Any], **options: Any) -> list[tuple[Any, Any]]:
    with TopologyTestDriver(topology, **options) as driver:
        driver.input("in").pipe_pairs(pairs)
        return driver.output("out").pairs()


class TestVerbs:
    def test_values(self) -> None:
        assert run(built("map_values_async", shout), ("a", "x"), (None, "y")) == [("a", "X"), (None, "Y")]

    def test_values_with_their_keys(self) -> None:
        async def both(key: str, value: str) -> str:
            return key + value

        assert run(built("map_values_async", both, with_key=True), ("a", "x")) == [("a", "ax")]

    def test_keys_and_values(self) -> None:
        async def swap(key: str, value: str) -> tuple[str, str]:
            return value, key

        builder = StreamsBuilder()
        swapped = builder.stream("in", value=str).map_async(swap, key=str, value=str)
        swapped.group_by_key().count(store="counts")
        topology = builder.build()
        assert len(topology.exchanges) == 1  # answers are on the lanes of their new keys already
        with TopologyTestDriver(topology) as driver:
            driver.input("in").pipe_pairs([("a", "x"), ("b", "x")])
            assert driver.store("counts")["x"] == 2

    def test_any_number_of_records(self) -> None:
        async def spread(record: Record[str, str], context: CallContext) -> None:
            assert context.record_metadata is not None
            for letter in record.value:
                context.forward(record.with_key(letter).with_value(f"{letter}@{context.record_metadata.offset}"))

        assert run(built("process_async", spread), ("a", "xy"), ("b", ""), ("c", "z")) == [
            ("x", "x@0"),
            ("y", "y@0"),
            ("z", "z@2"),
        ]

    def test_batches(self) -> None:
        async def joined(requests: list[tuple[str, str]], client: str) -> list[str]:
            return [f"{client} {key}{value}" for key, value in requests]

        topology = built("map_values_async", joined, batch=10, setup=lambda: "c")
        assert run(topology, ("a", "x"), ("b", "y")) == [("a", "c ax"), ("b", "c by")]

    def test_blocking_functions_of_every_verb(self) -> None:
        def swap(key: str, value: str) -> tuple[str, str]:
            return value, key

        def twice(record: Record[str, str], context: CallContext, client: int) -> None:
            for _ in range(client):
                context.forward(record)

        assert run(built("map_values_async", str.upper), ("a", "x")) == [("a", "X")]
        assert run(built("map_async", swap), ("a", "x")) == [("x", "a")]
        assert run(built("process_async", twice, setup=lambda: 2), ("a", "x")) == [("a", "x"), ("a", "x")]

    def test_a_blocking_process_that_gives_something_to_await_is_refused(self) -> None:
        async def forgotten(record: Record[str, str], context: CallContext) -> None: ...

        topology = built("process_async", lambda record, context: forgotten(record, context=context))
        with pytest.raises(ProcessingError, match="define it with async def"):
            run(topology, ("a", "x"))

    def test_a_partial_and_an_object_are_asynchronous_if_what_they_call_is(self) -> None:
        async def add(more: str, value: str) -> str:
            return value + more

        class Adds:
            async def __call__(self, value: str) -> str:
                return value + "?"

        assert run(built("map_values_async", functools.partial(add, "!"), timeout="1s"), ("a", "x")) == [("a", "x!")]
        assert run(built("map_values_async", Adds(), timeout="1s"), ("a", "x")) == [("a", "x?")]

    def test_timestamps_and_headers_stay(self) -> None:
        with TopologyTestDriver(built("map_values_async", shout)) as driver:
            driver.input("in").pipe("x", key="a", timestamp=77, headers=(("h", b"1"),))
            assert driver.output("out").records() == [Record("a", "X", 77, (("h", b"1"),))]


class TestSideOutputs:
    @staticmethod
    def topology(verb: str, function: Any) -> Topology:
        builder = StreamsBuilder()
        stream = getattr(builder.stream("in", value=str), verb)(function, value=str, name="asked")
        stream.to("out", value=str)
        stream.side_output("short", value=int).to("short", value=int)
        return builder.build()

    def test_a_mapper_returns_what_goes_aside(self) -> None:
        async def values(value: str) -> str | SideOutput:
            return value if len(value) > 1 else SideOutput("short", len(value))

        async def pairs(key: str, value: str) -> tuple[str, str] | SideOutput:
            return (key, value) if len(value) > 1 else SideOutput("short", len(value))

        for verb, function in (("map_values_async", values), ("map_async", pairs)):
            with TopologyTestDriver(self.topology(verb, function)) as driver:
                driver.input("in").pipe_pairs([("a", "xy"), ("b", "z")])
                assert driver.output("out").pairs() == [("a", "xy")]
                assert driver.output("short").pairs() == [("b", 1)]

    def test_what_an_attempt_that_fails_has_sent_does_not_go_on(self) -> None:
        attempts = 0

        async def sends(record: Record[str, str], context: CallContext) -> None:
            nonlocal attempts
            attempts += 1
            context.forward(record)
            context.side_output("short", record.with_value(attempts))
            if attempts < 3:
                raise ConnectionError

        builder = StreamsBuilder()
        stream = builder.stream("in", value=str).process_async(sends, retries=3, value=str)
        stream.to("out", value=str)
        stream.side_output("short", value=int).to("short", value=int)
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe("x", key="a")
            assert driver.output("out").pairs() == [("a", "x")]
            assert driver.output("short").pairs() == [("a", 3)]

    def test_one_that_nobody_declared_is_an_error_that_no_handler_hides(self) -> None:
        topology = built("map_values_async", FakeAsync(SideOutput("typo", 1)))
        with pytest.raises(
            TopologyError, match=r"asked sends .* side output 'typo', .*test_asynchronous\.py.*Declared side outputs: none"
        ):
            run(topology, ("a", "x"), processing_errors=log_and_continue())

    def test_a_negative_timestamp_is_refused(self) -> None:
        async def early(record: Record[str, str], context: CallContext) -> None:
            context.forward(record.with_timestamp(-1))

        with pytest.raises(ProcessingError, match="Invalid record timestamp -1: it must be 0 or later"):
            run(built("process_async", early), ("a", "x"))


class TestFailures:
    def test_a_failed_record_ends_the_application_by_default_with_node_line_and_record(self) -> None:
        topology = built("map_values_async", FakeAsync(error=ConnectionError("down")))
        message = r"asked failed on the record from in-0 at offset 0 \(key 'a'\): ConnectionError: down\n.*test_asynchronous\.py"
        with pytest.raises(ProcessingError, match=message):
            run(topology, ("a", "x"))

    def test_or_is_left_out_or_becomes_a_dead_letter_with_its_origin(self) -> None:
        fails = FakeAsync(lambda value: value, error=lambda value: ValueError(value) if value == "bad" else None)
        topology = built("map_values_async", fails, retries=2)
        assert run(topology, ("a", "bad"), ("b", "y"), processing_errors=log_and_continue()) == [("b", "y")]
        with TopologyTestDriver(topology, processing_errors=dead_letter("failed")) as driver:
            driver.input("in").pipe_pairs([("a", "x"), ("b", "bad"), ("c", "z")])
            assert driver.output("out").values() == ["x", "z"]
            letter = driver.output("failed").read()
            told = dict(letter.headers)
            assert (letter.key, letter.value) == (b"b", b"bad")
            assert (told["__streams.errors.topic"], told["__streams.errors.offset"]) == (b"in", b"1")
            assert told["__streams.errors.exception"] == b"ValueError"
            assert b"fakes.py" in (told["__streams.errors.stacktrace"] or b"")
            assert told["__penstock.errors.node"] == b"asked"

    def test_a_function_that_decides_sees_the_error_itself(self) -> None:
        seen: list[Failure] = []

        def decide(failure: Failure) -> Any:
            seen.append(failure)
            return log_and_continue()

        topology = built("map_values_async", FakeAsync(error=OSError("down")), breaker=CircuitBreaker(1, "1m"))
        run(topology, ("a", "x"), ("b", "y"), processing_errors=decide)
        assert [type(failure.error) for failure in seen] == [OSError, CircuitOpenError]
        assert seen[1].value == b"y"

    def test_a_handler_that_says_retry_goes_straight_to_what_comes_then(self) -> None:
        fake = FakeAsync(error=OSError("down"))
        topology = built("map_values_async", fake, retries=1)
        assert run(topology, ("a", "x"), processing_errors=retry(5, then=log_and_continue())) == []
        assert len(fake.calls) == 2

    def test_a_result_of_the_wrong_form_fails_its_record(self) -> None:
        assert run(built("map_async", FakeAsync(5)), ("a", "x"), processing_errors=log_and_continue()) == []

    def test_a_question_that_cannot_be_told_fails_its_record(self) -> None:
        def by(key: Any, value: Any) -> Any:
            return [value] if value == "x" else value

        cache = ResultCache("1m", by)
        topology = built("map_values_async", shout, cache=cache)
        assert run(topology, ("a", "x"), ("b", "y"), processing_errors=log_and_continue()) == [("b", "Y")]

    def test_a_record_that_failed_is_not_asked_about_again_with_the_next(self) -> None:
        fake = FakeAsync(lambda value: value, error=[OSError("down")])
        with TopologyTestDriver(built("map_values_async", fake)) as driver:
            with pytest.raises(ProcessingError):
                driver.input("in").pipe("x")
            driver.input("in").pipe("y")
            assert driver.output("out").values() == ["y"]
        assert fake.calls == [("x",), ("y",)]


class TestTheTestDriver:
    def test_waiting_takes_no_time(self) -> None:
        async def slow(value: str) -> str:
            await asyncio.sleep(3_600)
            return value

        fake = FakeAsync("found", delay="10s", error=[OSError()] * 5)
        before = time.monotonic()
        assert run(built("map_values_async", slow, timeout=None), ("a", "x")) == [("a", "x")]
        assert run(built("map_values_async", fake, timeout="1m", retries=5, backoff="10s"), ("a", "x")) == [("a", "found")]
        with pytest.raises(ProcessingError, match="no answer within 60000 ms"):
            run(built("map_values_async", slow, timeout="1m"), ("a", "x"))
        assert time.monotonic() - before < 2

    def test_the_clock_of_calls_follows_the_drivers(self) -> None:
        def by(key: Any, value: Any) -> Any:
            return value

        fake = FakeAsync(lambda value: value)
        with TopologyTestDriver(built("map_values_async", fake, cache=ResultCache("10m", by))) as driver:
            for minutes, calls in ((0, 1), (9, 1), (2, 2)):
                driver.advance_wall_clock(f"{minutes}m")
                driver.input("in").pipe("x")
                assert len(fake.calls) == calls

    def test_a_fake_stands_in_for_a_function_or_for_a_client(self) -> None:
        def open_client() -> Any:
            raise AssertionError("a test opens no connection")

        async def ask(value: str, client: Any) -> str:
            return str(await client(value))

        topology = built("map_values_async", ask, setup=open_client)
        client = FakeAsync(lambda value: f"client's {value}")
        assert run(topology, ("a", "x"), fakes={open_client: lambda: client}) == [("a", "client's x")]
        function = FakeAsync(lambda value, client: f"{client}'s {value}")
        assert run(topology, ("a", "x"), fakes={ask: function, open_client: lambda: "fake"}) == [("a", "fake's x")]

    def test_a_fake_of_what_is_never_called_is_a_mistake(self) -> None:
        with pytest.raises(TopologyError, match=r"no asynchronous verb and no setup= uses\. They use: shout"):
            TopologyTestDriver(built("map_values_async", shout), fakes={print: FakeAsync()})

    def test_several_records_of_an_epoch_are_asked_together(self) -> None:
        fake = FakeAsync(lambda value: value, delay=lambda value: 10 - int(value))
        builder = StreamsBuilder()
        stream = builder.stream("in", value=str).flat_map_values(str.split)
        stream.map_values_async(fake, ordered=False, value=str).to("out", value=str)
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe("1 2 3 4 5", key="a")
            assert driver.output("out").values() == ["1", "2", "3", "4", "5"]
        assert fake.most_at_once == 5

    def test_a_client_is_closed_with_the_driver(self) -> None:
        events: list[str] = []

        class Client:
            def __enter__(self) -> str:
                events.append("opened")
                return "client"

            def __exit__(self, *_: object) -> None:
                events.append("closed")

        async def ask(value: str, client: str) -> str:
            return value

        run(built("map_values_async", ask, setup=Client), ("a", "x"), ("b", "y"))
        assert events == ["opened", "closed"]

    def test_within_a_running_loop_too(self) -> None:
        async def test() -> list[tuple[Any, Any]]:
            return run(built("map_values_async", shout), ("a", "x"))

        assert asyncio.run(test()) == [("a", "X")]


class TestPlans:
    def test_answers_go_through_one_exchange(self) -> None:
        topology = built("map_values_async", shout)
        assert list(topology.exchanges) == ["asked-answers"]
        assert plan(topology).exchanges == 1

    def test_requests_of_a_new_key_do_too_if_calls_are_ordered(self) -> None:
        for ordered, exchanges in ((True, ["asked-requests", "asked-answers"]), (False, ["asked-answers"])):
            builder = StreamsBuilder()
            stream = builder.stream("in", value=str).select_key(lambda _, value: value)
            stream.map_values_async(shout, ordered=ordered, value=str, name="asked").to("out", value=str)
            topology = builder.build()
            assert list(topology.exchanges) == exchanges
            assert run(topology, ("a", "x"), (None, "y")) == [("x", "X"), ("y", "Y")]

    def test_names_are_numbered_once_per_verb(self) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("in", value=str)
        stream.map_values_async(shout).filter(lambda *_: True)
        names = list(builder.build().nodes)
        assert names[0] == "KSTREAM-SOURCE-0000000000"
        assert names[1] == "KSTREAM-MAPVALUESASYNC-0000000001"
        assert names[-1] == "KSTREAM-FILTER-0000000002"


class TestMistakes:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"concurrency": 0}, "concurrency= of at least 1, not 0"),
            ({"retries": -1}, "retries= of at least 0, not -1"),
            ({"batch": 0}, "batch= of at least 1, not 0"),
            ({"timeout": 0}, "timeout= of at least 1 ms or None, not 0"),
            ({"with_key": True, "batch": 5}, "with_key= or batch=, not both"),
            ({"setup": lambda name: name}, r"setup= calls its function with \(\)"),
            ({"setup": list}, r"calls its function with \(value, client\), but shout\(value"),
            (
                {"cache": ResultCache("1m", by=cast("Any", lambda value: value))},
                r"cache by= calls its function with \(key, value\)",
            ),
        ],
    )
    def test_invalid_options_are_rejected_with_the_users_line(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(TopologyError, match=rf"{message}.*test_asynchronous\.py"):
            built("map_values_async", shout, **options)

    def test_a_blocking_function_takes_no_timeout(self) -> None:
        with pytest.raises(TopologyError, match=r"cannot apply timeout= to str\.upper, .*test_async.*a timeout in its client"):
            built("map_values_async", str.upper, timeout="2s")
        built("map_values_async", str.upper, timeout=None)

    @pytest.mark.parametrize("make", [lambda: CircuitBreaker(0), lambda: CircuitBreaker(1, 0)])
    def test_a_breaker_that_cannot_work(self, make: Any) -> None:
        with pytest.raises(TopologyError, match="must be at least 1"):
            make()

    @pytest.mark.parametrize("options", [{"ttl": 0}, {"ttl": "1s", "size": 0}])
    def test_a_cache_that_cannot_work(self, options: Any) -> None:
        with pytest.raises(TopologyError, match="must be at least 1"):
            ResultCache(by=lambda key, value: value, **options)
