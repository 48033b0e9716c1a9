"""What a processor cannot keep is seen in tests: attributes that change are an error, and processors begin anew at random."""

from __future__ import annotations

import logging
from collections import Counter, deque
from functools import cached_property
from typing import Any, ClassVar

import pytest

from penstock import (
    FixedKeyProcessor,
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    Topology,
    ValueTransformer,
    bounded_disorder,
    key_value_store,
    shared_store,
    tumbling,
)
from penstock.errors import StateError
from penstock.handlers import LogAndContinue, Retry
from penstock.testing import TopologyTestDriver


def processed(made: Any, **options: Any) -> Topology:
    builder = StreamsBuilder(key=str, value=str)
    builder.add_state_store(key_value_store("counts", key=str, value=int))
    builder.stream("in").process(made, stores=["counts"], key=str, value=str, name="number", **options).to("out")
    return builder.build()


class Number(Processor[str, str, str, str]):
    """Numbers records in an attribute."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.count = 0

    def process(self, record: Record[str, str]) -> None:
        self.count += 1
        self.context.forward(record.with_value(str(self.count)))


def test_an_attribute_that_has_changed_is_named_with_its_cure() -> None:
    with TopologyTestDriver(processed(Number)) as driver, pytest.raises(StateError) as raised:
        driver.input("in").pipe("x", key="a")
    text = str(raised.value)
    for part in ("number: attribute 'count' is 1 now", "stores=[...]", "Number.transient = ('count',)", "test_rebinding.py:"):
        assert part in text


def test_without_a_seed_processors_live_as_long_as_the_driver() -> None:
    with TopologyTestDriver(processed(Number)) as driver:
        driver.seed = None
        driver.input("in").pipe_values(["x"] * 5)
        assert driver.output("out").values() == ["1", "2", "3", "4", "5"]


def changing(before: Any, change: Any) -> type[Processor[Any, Any, Any, Any]]:
    class Changing(Processor[Any, Any, Any, Any]):
        def init(self, context: Any) -> None:
            super().init(context)
            self.kept = before() if callable(before) else before

        def process(self, record: Record[Any, Any]) -> None:
            change(self)

    return Changing


@pytest.mark.parametrize(
    ("before", "change"),
    [
        (0, lambda self: setattr(self, "kept", 1)),
        (1, lambda self: setattr(self, "kept", True)),
        ("a", lambda self: setattr(self, "kept", "b")),
        (list, lambda self: self.kept.append(1)),
        (deque, lambda self: self.kept.append(1)),
        (set, lambda self: self.kept.add(1)),
        (dict, lambda self: self.kept.update(a=1)),
        (Counter, lambda self: self.kept.update("a")),
        (lambda: {"a": [1]}, lambda self: self.kept["a"].append(2)),
        (bytearray, lambda self: self.kept.extend(b"a")),
        (object, lambda self: setattr(self, "kept", object())),
        (None, lambda self: setattr(self, "other", object())),
        (None, lambda self: delattr(self, "kept")),
        (lambda: list(range(5_000)), lambda self: self.kept.append(1)),
    ],
)
def test_what_a_new_processor_would_not_have_is_an_error(before: Any, change: Any) -> None:
    topology = processed(changing(before, change))
    with TopologyTestDriver(topology) as driver, pytest.raises(StateError, match=r"Changing\.transient"):
        driver.input("in").pipe("x", key="a")


class Client:
    """A client that changes inside."""

    def __init__(self) -> None:
        self.calls = 0


class Fine(Processor[str, str, str, str]):
    """Has what any processor may have."""

    transient: ClassVar[tuple[str, ...]] = ("cache",)

    def init(self, context: Any) -> None:
        super().init(context)
        self.counts = context.store("counts")
        self.get = self.counts.get
        self.client = Client()
        self.rounds = context.schedule("1h", PunctuationType.WALL_CLOCK_TIME, lambda now: None)
        self.cache: dict[str, int] = {}
        self.of_nothing = float("nan")

    @cached_property
    def computed(self) -> int:
        return 7

    def process(self, record: Record[str, str]) -> None:
        self.client.calls += 1
        self.cache[record.key] = self.computed
        self.counts[record.key] = (self.get(record.key) or 0) + 1
        self.context.forward(record.with_value(str(self.counts[record.key])))


@pytest.mark.parametrize("handlers", [{}, {"processing_errors": Retry(2, 1, LogAndContinue())}])
def test_clients_caches_and_stores_may_change(handlers: dict[str, Any]) -> None:
    with TopologyTestDriver(processed(Fine), **handlers) as driver:
        counts = driver.store("counts")
        for _ in range(20):
            driver.input("in").pipe("x", key="a")
        assert driver.output("out").values() == [str(number) for number in range(1, 21)]
        assert counts["a"] == 20


class Hidden(Processor[str, str, str, str]):
    """Keeps a number where nobody sees it."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.client = Client()

    def process(self, record: Record[str, str]) -> None:
        self.client.calls += 1
        self.context.forward(record.with_value(str(self.client.calls)))


def hidden_numbers(seed: int = 0) -> list[str]:
    with TopologyTestDriver(processed(Hidden)) as driver:
        driver.seed = seed
        driver.input("in").pipe_values(["x"] * 12)
        return driver.output("out").values()


def test_processors_begin_anew_at_moments_that_a_seed_decides() -> None:
    found = [hidden_numbers(seed) for seed in (0, 1, 2)]
    assert found == [hidden_numbers(seed) for seed in (0, 1, 2)]
    assert found[0] == hidden_numbers()
    assert len({tuple(numbers) for numbers in found}) == 3
    assert all(2 <= numbers.count("1") <= 10 for numbers in found)


def test_the_moments_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "penstock.testing"):
        hidden_numbers(7)
    assert "by seed 7" in caplog.text


class Noting(Processor[str, str, str, str]):
    """Says what is called."""

    log: ClassVar[list[str]] = []

    def init(self, context: Any) -> None:
        super().init(context)
        self.log.append("init")

    def process(self, record: Record[str, str]) -> None:
        self.log.append("process")
        self.context.forward(record)

    def close(self) -> None:
        self.log.append("close")


def test_a_test_may_let_them_begin_anew_itself() -> None:
    Noting.log.clear()
    with TopologyTestDriver(processed(Noting)) as driver:
        driver.seed = None
        driver.input("in").pipe("x", key="a")
        driver.rebind()
        driver.input("in").pipe("y", key="a")
        assert driver.output("out").values() == ["x", "y"]
    assert Noting.log == ["init", "process", "close", "init", "process", "close"]


class Late(Processor[str, str, str, str]):
    """Schedules when the first record comes."""

    transient: ClassVar[tuple[str, ...]] = ("is_scheduled",)

    def init(self, context: Any) -> None:
        super().init(context)
        self.is_scheduled = False

    def process(self, record: Record[str, str]) -> None:
        if not self.is_scheduled:
            self.is_scheduled = True
            self.context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, self.fire)

    def fire(self, now: int) -> None:
        self.context.forward(Record("late", "fired", now))


def test_a_processor_with_a_late_schedule_stays_until_a_restart() -> None:
    with TopologyTestDriver(processed(Late), wall_clock=0) as driver:
        driver.input("in").pipe("x", key="a")
        for _ in range(10):
            driver.advance_wall_clock("1s")
        assert len(driver.output("out").values()) == 10
        driver.rebind()
        driver.advance_wall_clock("1s")
        assert driver.output("out").values() == []
        driver.input("in").pipe("x", key="a")
        driver.advance_wall_clock("1s")
        assert driver.output("out").values() == ["fired"]


class Transform(ValueTransformer[str, str, str]):
    def init(self, context: Any) -> None:
        super().init(context)
        self.count = 0

    def transform(self, key: str, value: str) -> str:
        self.count += 1
        return value


class Keep(FixedKeyProcessor[str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.last = record


def test_every_kind_of_processor_is_watched() -> None:
    tables, values, sections = (StreamsBuilder(key=str, value=str) for _ in range(3))
    tables.table("in").transform_values(Transform, value=str).to_stream().to("out")
    values.stream("in").process_values(Keep, value=str).to("out")
    sections.add_state_store(shared_store("held", value=int))
    sections.stream("in").process_atomically(Number, stores=["held"], key=str, value=str).to("out")
    for builder in (tables, values, sections):
        with TopologyTestDriver(builder.build()) as driver, pytest.raises(StateError, match="transient"):
            driver.input("in").pipe("x", key="a")


class Alarm(Processor[str, str, str, str]):
    """Has timers, a store and a metric."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.timers = context.timers
        self.rung = context.metrics.counter("rung", "Timers.")

    def process(self, record: Record[str, str]) -> None:
        self.timers.event_time(after="10s")

    def on_timer(self, timer: Any) -> None:
        self.rung.inc()
        self.context.forward(timer.record("rung"))


def seen_with(seed: int | None) -> tuple[Any, ...]:
    builder = StreamsBuilder(key=str, value=str)
    stream = builder.stream("in", watermark=bounded_disorder("1s"))
    stream.process(Alarm, key=str, value=str).to("out")
    stream.group_by_key().windowed_by(tumbling("10s")).count()
    with TopologyTestDriver(builder.build(), wall_clock=0) as driver:
        driver.seed = seed
        for time in (1_000, 5_000, 30_000, 2_000, 60_000):
            driver.input("in").pipe("x", key=str(time), timestamp=time)
        driver.advance_watermark(100_000)
        rung = [record.key for record in driver.output("out").records()]
        return rung, driver.metrics["rung"].value, dict(driver.dropped())


@pytest.mark.parametrize("seed", range(4))
def test_timers_metrics_drops_and_watermarks_stay(seed: int) -> None:
    seen = seen_with(seed)
    assert seen == seen_with(None)
    assert seen[0] == ["1000", "5000", "2000", "30000", "60000"]
    assert sum(seen[2].values()) == 1
