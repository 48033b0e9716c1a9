"""`MockProcessorContext`: what it records."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Processor, PunctuationType, Record, key_value_store
from penstock.errors import TopologyError
from penstock.testing import Forwarded, MockProcessorContext


class Echo(Processor[str, str, str, str]):
    """Uses everything that a context has, except timers."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.ticking = context.schedule("10s", PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record[str, str]) -> None:
        self.context.store("last")[record.key] = record.value
        self.context.forward(record)
        self.context.forward(record, "child")
        self.context.side_output("copies", record)
        self.context.commit()

    def tick(self, now: int) -> None:
        self.context.forward(Record("now", str(self.context.current_system_time_ms()), now))


def test_everything_is_recorded() -> None:
    context, echo = MockProcessorContext(key_value_store("last", value=str)), Echo()
    echo.init(context)
    record = Record("ann", "click", 5)
    echo.process(record)
    assert context.forwarded == [Forwarded(record), Forwarded(record, "child")]
    assert context.side_outputs == [("copies", record)]
    assert context.store("last")["ann"] == "click"
    assert context.has_committed
    assert context.current_stream_time_ms() == -1


def test_punctuators_are_called_by_the_test() -> None:
    context, echo = MockProcessorContext(key_value_store("last", value=str)), Echo()
    echo.init(context)
    context.system_time_ms = 70
    [scheduled] = context.scheduled
    scheduled.punctuate(60)
    assert (scheduled.interval_ms, scheduled.kind) == (10_000, PunctuationType.WALL_CLOCK_TIME)
    assert context.forwarded == [Forwarded(Record("now", "70", 60))]
    echo.ticking.cancel()
    assert scheduled.is_cancelled


def test_what_it_does_not_have_is_named() -> None:
    context = MockProcessorContext()
    with pytest.raises(TopologyError, match="Unknown store 'last'"):
        context.store("last")
    with pytest.raises(TopologyError, match="TopologyTestDriver"):
        _ = context.timers
