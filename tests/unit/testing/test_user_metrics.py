"""Metrics of user code under test: in every kind of context, with every kind of failure."""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from typing import Any

import pytest

from penstock import (
    CallContext,
    FixedKeyProcessor,
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    Timer,
    ValueTransformer,
    key_value_store,
    log_and_continue,
    retry,
    shared_store,
)
from penstock.errors import ProcessingError
from penstock.metrics import UserMetrics
from penstock.testing import MockProcessorContext, TopologyTestDriver

Use = Callable[[UserMetrics], None]


def one(metrics: UserMetrics) -> None:
    metrics.counter("seen", "Seen.").inc()


class Counts(Processor[str, str, str, str]):
    """Counts records, timers and ticks."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.seen = context.metrics.counter("seen", "Seen.", labels=["what"])
        context.schedule("10s", PunctuationType.WALL_CLOCK_TIME, lambda now: self.seen.labels(what="ticks").inc())

    def process(self, record: Record[str, str]) -> None:
        self.seen.labels(what="records").inc()
        self.context.timers.processing_time(after="3s")

    def on_timer(self, timer: Timer) -> None:
        self.seen.labels(what="timers").inc()


class Fixed(FixedKeyProcessor[str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        one(self.context.metrics)


class Transforms(ValueTransformer[str, str, str]):
    def transform(self, key: str, value: str) -> str:
        one(self.context.metrics)
        return value


async def calls(record: Record[str, str], context: CallContext[str, str]) -> None:
    one(context.metrics)


def test_records_timers_and_ticks() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).process(Counts)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe_pairs([("a", "x"), ("b", "y"), ("a", "z")])
        driver.advance_wall_clock("10s")
        seen = driver.metrics["seen"]
        assert [seen.labels(what=what).value for what in ("records", "timers", "ticks")] == [3, 2, 1]


def _transformed(builder: StreamsBuilder) -> None:
    builder.table("in", value=str, store="rows").transform_values(Transforms).to_stream().to("out", value=str)


def _atomic(builder: StreamsBuilder) -> None:
    builder.add_state_store(shared_store("held", value=int, merge=add))
    builder.stream("in", value=str).process_atomically(Fixed, stores=["held"], key=str, value=str, name="atomic")


@pytest.mark.parametrize(
    "build",
    [
        lambda builder: builder.stream("in", value=str).process_values(Fixed),
        lambda builder: builder.stream("in", value=str).process_async(calls, key=str, value=str),
        lambda builder: builder.add_global_store(key_value_store("kept", value=str), "in", Fixed, value=str),
        _transformed,
        _atomic,
    ],
    ids=["fixed key", "async", "global store", "transformer", "atomic"],
)
def test_every_kind_of_context_has_them(build: Callable[[StreamsBuilder], Any]) -> None:
    builder = StreamsBuilder()
    build(builder)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe_pairs([("a", "x"), ("b", "y")])
        assert driver.metrics["seen"].value == 2


class Fails(Processor[str, str, str, str]):
    """Counts every call, and fails on the first of each record."""

    transient = ("failed",)

    def init(self, context: Any) -> None:
        super().init(context)
        self.failed: set[str] = set()

    def process(self, record: Record[str, str]) -> None:
        one(self.context.metrics)
        if record.value not in self.failed:
            self.failed.add(record.value)
            raise ConnectionError(record.value)


def test_what_a_processor_has_counted_counts_even_if_its_record_fails() -> None:
    """It is no reason not to retry, either: a metric is not a result."""
    builder = StreamsBuilder()
    builder.stream("in", value=str).process(Fails)
    for handler, calls_made in ((log_and_continue(), 2), (retry(1), 4)):
        with TopologyTestDriver(builder.build(), processing_errors=handler) as driver:
            driver.input("in").pipe_pairs([("a", "x"), ("b", "y")])
            assert driver.metrics["seen"].value == calls_made


def test_what_a_failed_attempt_of_a_call_has_counted_is_discarded() -> None:
    attempts: list[str] = []

    async def flaky(record: Record[str, str], context: CallContext[str, str]) -> None:
        one(context.metrics)
        context.metrics.gauge("last", "The last attempt.").set(len(attempts))
        attempts.append(record.value)
        if len(attempts) == 1:
            raise ConnectionError(record.value)

    builder = StreamsBuilder()
    builder.stream("in", value=str).process_async(flaky, key=str, value=str, retries=1)
    with TopologyTestDriver(builder.build()) as driver:
        driver.input("in").pipe("x", key="a")
        assert attempts == ["x", "x"]
        assert (driver.metrics["seen"].value, driver.metrics["last"].value) == (1, 1)


class Wrong(Processor[str, str, str, str]):
    def init(self, context: Any) -> None:
        context.metrics.counter("orders-rejected", "Orders that were rejected.")


def test_a_wrong_declaration_names_the_node_and_its_line() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str).process(Wrong, name="check")
    with pytest.raises(ProcessingError, match=r"check failed to start: .*'orders-rejected'.*(?s:.)*test_user_metrics\.py:"):
        TopologyTestDriver(builder.build())


def test_a_processor_by_itself() -> None:
    context, fixed = MockProcessorContext(), Fixed()
    fixed.init(context)
    fixed.process(Record("a", "x", 5))
    assert context.metrics["seen"].value == 1
