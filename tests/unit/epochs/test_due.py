"""When a shard is due without records: what it has stored about clocks, stage by stage."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import Processor, ProcessorContext, PunctuationType, Record, StreamsBuilder, Topology
from penstock.epochs import stage_run
from penstock.epochs.due import forget_due, is_due, note_due, was_due
from penstock.epochs.program import Epoch
from penstock.epochs.shards import shard_of
from penstock.lanes.bound_shard import BoundShard
from penstock.state import LaneState, ShardState, memory_engine
from tests.unit.epochs.application import SHARDS, Application, Raw


def at(wall_clock: int, watermark: int | None = None) -> Epoch:
    return Epoch(1, 0, wall_clock, watermark=watermark)


def note(shard: ShardState, stage: int, due: int | None, event_due: int | None = None) -> None:
    clocks: Any = SimpleNamespace(due=due, watermark=SimpleNamespace(due=event_due))
    note_due(shard, stage, clocks)


@pytest.fixture
def state() -> LaneState:
    return LaneState(memory_engine())


class TestNotes:
    def test_nothing_is_known_about_a_new_shard(self, state: LaneState) -> None:
        assert is_due(state.shard(0), 0, at(0))
        assert is_due(state.shard(0), 0, at(0, 0))

    def test_what_waits_for_the_wall_clock_is_due_when_that_time_is_reached(self, state: LaneState) -> None:
        shard = state.shard(3)
        note(shard, 0, due=100)
        assert [is_due(shard, 0, at(now)) for now in (0, 99, 100, 101)] == [False, False, True, True]
        assert not is_due(shard, 0, at(0, watermark=10**12))

    def test_what_waits_for_a_watermark_is_due_when_it_is_reached(self, state: LaneState) -> None:
        shard = state.shard(3)
        note(shard, 0, due=None, event_due=50)
        assert [is_due(shard, 0, at(10**12, watermark)) for watermark in (None, -1, 49, 50)] == [False, False, False, True]

    def test_a_shard_that_waits_for_nothing_is_never_due(self, state: LaneState) -> None:
        note(state.shard(3), 0, due=None)
        assert not is_due(state.shard(3), 0, at(10**15, 10**15))

    def test_what_is_overdue_is_due_at_once(self, state: LaneState) -> None:
        note(state.shard(3), 0, due=-5, event_due=-5)
        assert is_due(state.shard(3), 0, at(0))
        assert was_due(state, [3], 0) == (0, 0)

    def test_each_stage_and_each_shard_has_its_own(self, state: LaneState) -> None:
        note(state.shard(3), 0, due=100)
        note(state.shard(3), 1, due=200)
        note(state.shard(4), 0, due=300)
        assert [is_due(state.shard(shard), stage, at(150)) for shard, stage in ((3, 0), (3, 1), (4, 0))] == [True, False, False]

    def test_a_lane_waits_for_the_first_of_its_shards(self, state: LaneState) -> None:
        note(state.shard(3), 0, due=300, event_due=None)
        note(state.shard(4), 0, due=100, event_due=70)
        note(state.shard(5), 0, due=None, event_due=60)
        assert was_due(state, [3, 4, 5], 0) == (100, 60)
        assert was_due(state, [3], 0) == (300, None)
        assert was_due(state, [5], 0) == (None, 60)

    def test_they_are_written_and_rolled_back_with_the_epoch(self, state: LaneState) -> None:
        note(state.shard(3), 0, due=100)
        state.commit(0)
        note(state.shard(3), 0, due=500)
        state.commit(1)
        assert not is_due(state.shard(3), 0, at(200))
        state.roll_back()
        assert is_due(state.shard(3), 0, at(200))

    def test_they_are_forgotten_and_nothing_else_is(self) -> None:
        engine = memory_engine()
        state = LaneState(engine)
        for stage in (0, 1):
            note(state.shard(3), stage, due=None, event_due=None)
        state.shard(3).registers.register("clock", -1).value = 7
        state.commit(0)
        state = LaneState(engine)
        forget_due(state.shard(3))
        assert [is_due(state.shard(3), stage, at(0)) for stage in (0, 1)] == [True, True]
        assert state.shard(3).registers.register("clock", -1).value == 7


class Ticking(Processor[Any, Any, Any, Any]):
    """Sends a record at every second of the wall clock."""

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        super().init(context)
        context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, lambda now: context.forward(Record("tick", str(now), now)))

    def process(self, record: Record[Any, Any]) -> None:
        """Nothing."""


def ticking() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str).process(Ticking).to("out", key=str, value=str)
    return builder.build()


def counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str).group_by_key().count(store="counts").to_stream().to("out", value=int)
    return builder.build()


class TestShardsOfAnEpoch:
    @pytest.fixture
    def bound(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The shards that stages were bound to."""
        found: list[int] = []
        bind = stage_run.StageRun.bind

        def noting(run: stage_run.StageRun, state: Any, watermark: int | None) -> BoundShard:
            found.append(state.number)
            return bind(run, state, watermark)

        monkeypatch.setattr(stage_run.StageRun, "bind", noting)
        return found

    def test_shards_without_records_do_not_run_if_nothing_can_wait(self, tmp_path: Path, bound: list[int]) -> None:
        app = Application(tmp_path, counting)
        app.start(2)
        app.step([Raw(b"a", b"x", 0)])
        app.step([])
        assert bound == [shard_of(b"a", SHARDS)]

    def test_shards_that_may_wait_run_once_and_then_when_they_are_due(self, tmp_path: Path, bound: list[int]) -> None:
        app = Application(tmp_path, ticking)
        app.now_ms = 10_000
        app.start(2)
        app.step([])
        assert bound == list(range(SHARDS))
        bound.clear()
        app.now_ms = 10_500
        app.step([Raw(b"a", b"x", 0)])
        assert bound == [shard_of(b"a", SHARDS)]
        bound.clear()
        app.now_ms = 11_000
        app.step([])
        assert bound == list(range(SHARDS))
        assert len(app.sent) == SHARDS

    def test_after_a_start_all_shards_run_again(self, tmp_path: Path, bound: list[int]) -> None:
        app = Application(tmp_path, ticking)
        app.now_ms = 10_000
        app.start(2)
        app.step([])
        app.start(5)
        bound.clear()
        app.step([])
        assert (bound, app.due) == (list(range(SHARDS)), 11_000)
