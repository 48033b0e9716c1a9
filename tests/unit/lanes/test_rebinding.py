"""Operators keep no state: a lane that is rebound for every epoch, as on Spark, gives the same as one long-lived lane."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from penstock import Processor, PunctuationType, Record, StreamsBuilder
from penstock.lanes.bound_shard import Surroundings
from penstock.state import LaneState, memory_engine
from penstock.testing import TopologyTestDriver
from penstock.testing.shards import shards_of
from tests.unit.lanes.feeding import lane_of
from verification.conformance import run as runner
from verification.conformance.generator import generate
from verification.conformance.regressions import regressions
from verification.conformance.spec import Case


class RebindingDriver(TopologyTestDriver):
    """A test driver that rebinds its lane after every record, and keeps only what was committed."""

    def _commit(self) -> None:
        super()._commit()
        self._state = LaneState(self._engine)
        self._shards = shards_of(self._topology, self._state, self._engine, self._shards.count)
        self.rebind()


def without_user_objects(cases: list[Case]) -> list[Case]:
    """Exclude user processors: they may keep attributes, which rebinding loses. Built-in operators must not."""
    return [case for case in cases if not any("process" in op.verb or "transform" in op.verb for op in case.ops)]


CASES = without_user_objects([*regressions(), *generate(17, 250)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_lane_that_is_rebound_for_every_record_gives_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = runner.run(case)
    monkeypatch.setattr(runner, "TopologyTestDriver", RebindingDriver)
    assert runner.run(case) == expected


class Timers(Processor[Any, Any, Any, Any]):
    def init(self, context: Any) -> None:
        super().init(context)
        for kind in PunctuationType:
            context.schedule("10s", kind, lambda time, kind=kind: context.forward(Record("t", f"{kind.value} {time}", time)))

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record.with_value(f"at {self.context.current_stream_time_ms()}"))


@pytest.mark.parametrize("driver_class", [TopologyTestDriver, RebindingDriver])
def test_punctuators_continue_where_the_last_epoch_ended(driver_class: type[TopologyTestDriver]) -> None:
    builder = StreamsBuilder(value=str)
    builder.stream("in").process(Timers).to("out")
    with driver_class(builder.build(), wall_clock=0) as driver:
        for time in (1_000, 5_000, 12_000, 11_000):
            driver.input("in").pipe("x", timestamp=time)
        for _ in range(3):
            driver.advance_wall_clock("6s")
        assert driver.output("out").values() == [
            "at 1000",
            "stream_time 1000",
            "at 5000",
            "at 12000",
            "stream_time 12000",
            "at 12000",
            "wall_clock_time 12000",
        ]


class Ticking(Processor[Any, Any, Any, Any]):
    """Forwards its name whenever it is called."""

    def __init__(self, name: str, interval_ms: int) -> None:
        self._name = name
        self._interval_ms = interval_ms

    def init(self, context: Any) -> None:
        super().init(context)
        name = self._name
        context.schedule(
            self._interval_ms, PunctuationType.STREAM_TIME, lambda time: context.forward(Record("t", f"{name} {time}", time))
        )

    def process(self, record: Record[Any, Any]) -> None: ...


@pytest.mark.parametrize("driver_class", [TopologyTestDriver, RebindingDriver])
def test_the_order_of_punctuators_with_equal_times_does_not_depend_on_epochs(
    driver_class: type[TopologyTestDriver],
) -> None:
    """After time 9 the quick one is due at 10, like the slow one, and comes after it, as in Kafka Streams."""
    builder = StreamsBuilder(value=str)
    stream = builder.stream("in")
    stream.process(lambda: Ticking("quick", 1), name="quick").to("out")
    stream.process(lambda: Ticking("slow", 10), name="slow").to("out")
    with driver_class(builder.build(), wall_clock=0) as driver:
        for time in (2, 9, 63):
            driver.input("in").pipe("x", timestamp=time)
        assert driver.output("out").values() == ["quick 2", "slow 2", "quick 9", "slow 63", "quick 63"]


class Once(Processor[Any, Any, Any, Any]):
    """Fires once, beside one that goes on."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.handle = context.schedule("10s", PunctuationType.WALL_CLOCK_TIME, self.fire)
        context.schedule(
            "15s", PunctuationType.WALL_CLOCK_TIME, lambda time: context.forward(Record("t", f"always {time}", time))
        )

    def fire(self, time: int) -> None:
        self.context.forward(Record("t", f"once {time}", time))
        self.handle.cancel()

    def process(self, record: Record[Any, Any]) -> None: ...


def test_what_a_processor_cancels_stays_cancelled_until_the_next_start() -> None:
    builder = StreamsBuilder(value=str)
    builder.stream("in").process(Once).to("out", value=str)
    topology, state, fired, due = builder.build(), LaneState(memory_engine()), list[str](), list[int | None]()
    for second in range(0, 60, 5):
        start = 7 if second < 30 else 8
        lane = lane_of(topology, state, surroundings=Surroundings(partial(int, second * 1_000), start=start))
        lane.clocks.fire_punctuators()
        due.append(lane.clocks.wall_clock_punctuators.next_due)
        fired += [(row.value or b"").decode() for row in lane.outbox.drain()]
        lane.flush()
        state.commit(second)
    assert fired == ["once 10000", "always 15000", "always 30000", "once 40000", "always 45000"]
    assert due == [10_000, 10_000, 15_000, 30_000, 30_000, 30_000, 40_000, 40_000, 45_000, 60_000, 60_000, 60_000]
