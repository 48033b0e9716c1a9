"""What user code may raise: `sys.exit` and errors that cannot say what they are fail their record, and nothing else."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Failure,
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    Topology,
    dead_letter,
    log_and_continue,
    retry,
)
from penstock.errors import ProcessingError
from penstock.handlers import ErrorHandler
from penstock.serdes import Serde
from penstock.testing import TopologyTestDriver


class WordlessError(Exception):
    def __str__(self) -> str:
        raise TypeError("an error in the text of an error")

    __repr__ = __str__


class MuteError(Exception):
    def __str__(self) -> str:
        return str(leave(self))


def wordless(value: Any) -> Any:
    raise WordlessError


def mute(value: Any) -> Any:
    raise MuteError


def leave(value: Any) -> Any:
    sys.exit(3)


async def leave_async(value: Any) -> Any:
    sys.exit(3)


class Bad(Serde[str]):
    """Cannot read, or write, a bad value."""

    def serialize(self, value: str, /) -> bytes:
        return (leave if value == "bad" else str.encode)(value)

    def deserialize(self, data: bytes, /) -> str:
        return str((leave if data == b"unreadable" else bytes.decode)(data))


class Leaves(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        (leave if record.value == "bad" else self.context.forward)(record)


def bad_only(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: function(value) if value == "bad" else value


VERBS: dict[str, Callable[[Any], Any]] = {
    "map_values": lambda stream: stream.map_values(bad_only(leave)),
    "filter": lambda stream: stream.filter(lambda key, value: leave(value) if value == "bad" else True),
    "flat_map_values": lambda stream: stream.flat_map_values(lambda value: [bad_only(leave)(value)]),
    "process": lambda stream: stream.process(Leaves, key=str, value=str),
    "reduce": lambda stream: stream.group_by_key().reduce(lambda so_far, value: bad_only(leave)(value)).to_stream(),
    "asynchronous": lambda stream: stream.map_values_async(bad_only_async, value=str),
    "blocking": lambda stream: stream.map_values_async(bad_only(leave), value=str),
    "to a topic that it chooses": lambda stream: stream.filter(lambda key, value: True),
}


async def bad_only_async(value: str) -> str:
    return str(await leave_async(value)) if value == "bad" else value


def topology_of(verb: str) -> Topology:
    builder = StreamsBuilder(key=str, value=str)
    stream = VERBS[verb](builder.stream("in"))
    if verb == "to a topic that it chooses":
        stream.to(lambda key, value, context: leave(value) if value == "bad" else "out")
    else:
        stream.to("out")
    return builder.build()


@pytest.mark.parametrize("handler", [log_and_continue(), retry(attempts=1, backoff="0ms", then=log_and_continue())], ids=str)
@pytest.mark.parametrize("verb", VERBS)
def test_sys_exit_in_a_function_is_a_failure_of_its_record(verb: str, handler: ErrorHandler) -> None:
    handlers: dict[str, Any] = {"processing_errors": handler, "production_errors": log_and_continue()}
    with TopologyTestDriver(topology_of(verb), **handlers) as driver:
        for value in ("1", "bad", "2"):
            driver.input("in").pipe(value, key="k")
        assert driver.output("out").values() == ["1", "2"]
        assert list(driver.dropped().values()) == [1]


@pytest.mark.parametrize("verb", VERBS)
def test_without_another_handler_it_ends_the_application_with_an_error_that_names_it(verb: str) -> None:
    with TopologyTestDriver(topology_of(verb)) as driver:
        driver.input("in").pipe("1", key="k")
        with pytest.raises(ProcessingError) as raised:
            driver.input("in").pipe("bad", key="k")
    said = str(raised.value)
    assert "failed on the record from in-0 at offset 1 (key 'k')" in said
    assert "RuntimeError: The function ended with sys.exit(3): raise an error instead." in said
    assert "test_raised.py" in said


@pytest.mark.parametrize("value", ["unreadable", "bad"])
def test_sys_exit_in_a_serde_is_a_failure_of_its_record(value: str) -> None:
    builder = StreamsBuilder(key=str)
    builder.stream("in", value=Bad()).to("out", value=Bad())
    handlers: dict[str, Any] = dict.fromkeys(("deserialization_errors", "production_errors"), log_and_continue())
    with TopologyTestDriver(builder.build(), **handlers) as driver:
        for data in (value.encode(), b"good"):
            driver.pipe_raw("in", b"k", data, 0, ())
        assert driver.output("out").values() == ["good"]


def test_sys_exit_in_a_punctuator_is_a_failure_of_its_node() -> None:
    class Scheduled(Processor[Any, Any, Any, Any]):
        def init(self, context: Any) -> None:
            super().init(context)
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, leave)

        def process(self, record: Record[Any, Any]) -> None:
            self.context.forward(record)

    builder = StreamsBuilder(value=str)
    builder.stream("in").process(Scheduled, name="scheduled").to("out")
    with TopologyTestDriver(builder.build(), processing_errors=log_and_continue()) as driver:
        driver.advance_wall_clock("10ms")
        assert driver.dropped() == {("scheduled", "processing error"): 1}


DEAD = dead_letter("dead")


@pytest.mark.parametrize("function", [wordless, mute])
@pytest.mark.parametrize("handler", [log_and_continue(), DEAD, retry(attempts=1, backoff="0ms", then=DEAD)], ids=str)
def test_an_error_that_cannot_say_what_it_is_is_handled_like_others(
    function: Callable[[Any], Any], handler: ErrorHandler, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    seen: list[Failure] = []

    def note(failure: Failure) -> Any:
        seen.append(failure)
        return handler

    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").map_values(function).to("out")
    with TopologyTestDriver(builder.build(), processing_errors=note) as driver:
        driver.input("in").pipe("bad", key="k")
        letters = driver.output("dead", key=bytes, value=bytes).records() if handler != log_and_continue() else []
    assert isinstance(seen[0].error, WordlessError | MuteError)
    assert any("its __str__ raises" in record.getMessage() for record in caplog.records)
    for letter in letters:
        assert b"its __str__ raises" in (dict(letter.headers)["__streams.errors.message"] or b"")


def test_an_error_of_the_application_says_what_it_can() -> None:
    class Key(str):
        __slots__ = ()

        def __repr__(self) -> str:
            raise ValueError

    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").select_key(lambda key, value: Key("k")).map_values(wordless).to("out")
    with TopologyTestDriver(builder.build()) as driver, pytest.raises(ProcessingError) as raised:
        driver.input("in").pipe("bad", key="k")
    assert "(key <Key, whose __repr__ raises ValueError>): WordlessError: (its __str__ raises TypeError)" in str(raised.value)


def test_a_keyboard_interrupt_stays_what_it_is() -> None:
    def interrupted(value: Any) -> Any:
        raise KeyboardInterrupt

    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").map_values(interrupted).to("out")
    driver = TopologyTestDriver(builder.build(), processing_errors=log_and_continue())
    with pytest.raises(KeyboardInterrupt):
        driver.input("in").pipe("x", key="k")
