"""The hops of an epoch: a stage can be run again until a later one has run, and never on a lane of another epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Processor, ProcessorContext, PunctuationType, Record, StreamsBuilder, Topology
from penstock.epochs.assignment import Assignment
from penstock.epochs.entry import enter
from penstock.epochs.hops import INPUT, bring_to, from_topics, own_mark, run_stage
from penstock.epochs.in_process import parts
from penstock.epochs.program import Epoch
from penstock.epochs.routes import on_shards
from penstock.epochs.state_directory import open_lane
from penstock.epochs.wire import Control, Kind, control_row, decode_control, wire
from penstock.errors import StateError
from penstock.state import LaneState, Mark, StoreKind, StoreSpec, memory_engine
from tests.unit.epochs.application import SHARDS, Application, Raw, every_kind_of_store, program_of, some_records
from verification.harness.rows import without_reports

SPEC = StoreSpec("raw", StoreKind.RAW)


@pytest.fixture
def lane() -> LaneState:
    """A lane at epoch 4, of which stages 0 and 2 have written epoch 5."""
    state = LaneState(memory_engine())
    store = state.store(SPEC)
    for epoch, stage in ((4, 0), (5, 0), (5, 2)):
        store.put(b"%d/%d" % (epoch, stage), b"")
        state.registers.register("clock", 0).value = 10 * epoch + stage
        state.commit(epoch, stage)
    return state


def written(state: LaneState) -> list[bytes]:
    return [key for key, _ in state.store(SPEC).scan()]


class TestBringTo:
    def test_a_stage_that_runs_again_rolls_back_only_its_own_writes(self, lane: LaneState) -> None:
        bring_to(lane, Epoch(5, 4, 0), 2)
        assert (lane.epoch, written(lane)) == (5, [b"4/0", b"5/0"])
        assert lane.registers.register("clock", 0).value == 50

    def test_a_stage_runs_after_earlier_ones(self, lane: LaneState) -> None:
        bring_to(lane, Epoch(5, 4, 0), 3)
        assert written(lane) == [b"4/0", b"5/0", b"5/2"]

    @pytest.mark.parametrize("stage", [0, 1])
    def test_an_earlier_stage_cannot_run_again(self, lane: LaneState, stage: int) -> None:
        with pytest.raises(StateError, match=f"Stage {stage} of epoch 5 cannot run again after stage 2"):
            bring_to(lane, Epoch(5, 4, 0), stage)
        assert written(lane) == [b"4/0", b"5/0", b"5/2"]

    @pytest.mark.parametrize(("stage", "left"), [(0, [b"4/0"]), (1, [b"4/0", b"5/0"]), (2, [b"4/0", b"5/0"])])
    def test_it_can_if_all_later_stages_run_again_too(self, lane: LaneState, stage: int, left: list[bytes]) -> None:
        bring_to(lane, Epoch(5, 4, 0), stage, is_anew=True)
        assert written(lane) == left

    def test_the_next_epoch_follows_once_the_last_is_committed(self, lane: LaneState) -> None:
        bring_to(lane, Epoch(6, 5, 0), 0)
        assert written(lane) == [b"4/0", b"5/0", b"5/2"]

    @pytest.mark.parametrize(("number", "committed"), [(7, 6), (4, 3), (6, 4)])
    def test_a_lane_at_another_epoch_has_to_be_restored(self, lane: LaneState, number: int, committed: int) -> None:
        with pytest.raises(StateError, match=f"A lane is at epoch 5, but epoch {number} follows {committed}"):
            bring_to(lane, Epoch(number, committed, 0), 0)

    @pytest.mark.parametrize("committed", [None, 4, 5])
    def test_the_next_epoch_follows_whether_the_last_is_committed_or_not(self, lane: LaneState, committed: int | None) -> None:
        bring_to(lane, Epoch(6, 5, 0, committed=committed), 0)
        assert written(lane) == [b"4/0", b"5/0", b"5/2"]

    @pytest.mark.parametrize("is_anew", [False, True])
    def test_a_late_task_cannot_take_back_the_epoch_that_followed_its_own(self, lane: LaneState, is_anew: bool) -> None:
        lane.commit(6, 1, committed=4)
        for stage in (0, 1, 2):
            with pytest.raises(StateError, match="A lane is at epoch 6, but epoch 5 follows 4"):
                bring_to(lane, Epoch(5, 4, 0), stage, is_anew)
        assert lane.reached == (6, 1)

    def test_the_first_stage_of_the_first_epoch_runs_again_from_nothing(self) -> None:
        state = LaneState(memory_engine())
        state.store(SPEC).put(b"0/0", b"")
        state.commit(0, 0)
        bring_to(state, Epoch(0, -1, 0), 0)
        assert (state.epoch, written(state)) == (-1, [])


class TestStages:
    def test_a_retried_task_returns_the_same_rows(self, tmp_path: Path) -> None:
        app = Application(tmp_path)
        app.start(2)
        app.step(some_records(1, 20))
        app.start(2)
        program, epoch = app.running, Epoch(1, 0, 0, (("in", 0),), (-1,))
        rows = [{"name": 0, "origin": 0, "offset": 50 + n, **record._asdict()} for n, record in enumerate(some_records(2, 20))]
        table = from_topics([pa.RecordBatch.from_pylist(rows, schema=INPUT)])
        assigned = Assignment(program, epoch)
        table = on_shards(assigned, pa.concat_tables(enter(assigned, table)))
        for stage in range(2):
            split = parts(program, stage, table)
            first, again = ([run_stage(assigned.at(stage, lane), part) for lane, part in split] for _ in range(2))
            assert list(map(without_reports, first)) == list(map(without_reports, again))
            table = pa.concat_tables(again)
        with pytest.raises(StateError, match="Stage 0 of epoch 1 cannot run again after stage 1"):
            run_stage(assigned, table)

    def test_a_retried_epoch_returns_the_same_rows(self, tmp_path: Path) -> None:
        app = Application(tmp_path)
        app.start(2)
        app.step(some_records(1, 20))
        app.start(2)
        records = some_records(2, 20)
        first, again = (app.run(records).to_pylist() for _ in range(2))
        assert first == again
        app.commit(records, app.run(records))
        app.check()

    def test_epochs_in_flight_that_run_again_return_the_same_rows(self, tmp_path: Path) -> None:
        app = Application(tmp_path)
        app.start(2)
        app.step(some_records(1, 20))
        batches = [some_records(seed, 20) for seed in (2, 3, 4)]
        first = [app.send(records).to_pylist() for records in batches]
        app.take_back()  # the first of them could not be committed
        assert [app.send(records).to_pylist() for records in batches] == first
        for _ in batches:
            app.commit_oldest()
        app.check()
        serial = Application(tmp_path / "serial")
        serial.start(2)
        for records in (some_records(1, 20), *batches):
            serial.step(records)
        assert (app.sent, app.all_registers()) == (serial.sent, serial.all_registers())
        assert all(app.content(store) == serial.content(store) for store in app.running.logged_stores)

    def test_rows_of_other_stages_pass_through_first(self, tmp_path: Path) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=str).group_by_key().count(store="counts").to_stream().to("out", value=int)
        app = Application(tmp_path, builder.build)
        app.start(1)
        passing = pa.concat_tables([wire(1, shard=[0], kind=[Kind.SINK], key=[b"other"]), control_row(Control(), 0)])
        row = {"name": 0, "origin": 0, "offset": 0, "timestamp": 0, "key": b"a", "value": b"x"}
        assigned = Assignment(app.running, Epoch(0, -1, 0, (("in", 0),)))
        records = on_shards(assigned, from_topics([pa.RecordBatch.from_pylist([row], schema=INPUT)]))
        sent = run_stage(assigned, pa.concat_tables([records, passing]))
        assert sent.column("kind").to_pylist()[:3] == [Kind.SINK, Kind.CONTROL, Kind.SINK]
        assert sent.column("key").to_pylist()[0] == b"other"
        assert Kind.RECORD not in sent.column("kind").to_pylist()

    def test_a_stage_without_state_takes_all_rows_at_once_and_opens_no_lane(self, tmp_path: Path) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=str).map_values(str.upper).to("out", value=str)
        app = Application(tmp_path, builder.build)
        app.take_over(3)
        table = app.run([Raw(b"k%d" % number, b"x", 0) for number in range(9)])
        assert table.column("value").to_pylist() == [b"X"] * 9
        assert not app.lane_directory(0).exists()

    def test_drops_are_reported(self, tmp_path: Path) -> None:
        app = Application(tmp_path)
        app.start(1)
        table = app.run([Raw(b"a", b"x", 10_000), Raw(b"a", b"x", 0)])
        app.commit([], table)
        assert any(control.dropped for control in controls(table))

    def test_every_lane_takes_part_in_every_epoch(self, tmp_path: Path) -> None:
        app = Application(tmp_path)
        app.start(5)
        app.step([])
        for lane in range(5):
            with open_lane(app.running, lane) as state:
                assert state.epoch == 0


class Ticking(Processor[Any, Any, Any, Any]):
    """Sends a record every second of the wall clock."""

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        super().init(context)
        context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record[Any, Any]) -> None:
        """Nothing."""

    def tick(self, now: int) -> None:
        self.context.forward(Record("tick", str(now), now))


def ticking() -> Topology:
    return Topology().add_source("in", "in").add_processor("ticking", Ticking, "in").add_sink("out", "out", "ticking", value=str)


def test_timers_continue_across_epochs_and_report_when_they_are_due(tmp_path: Path) -> None:
    app = Application(tmp_path, ticking)
    app.start(1)
    began = app.now_ms
    due = []
    for now in (began, began + 999, began + 1_000, began + 1_500):
        app.now_ms = now
        table = app.run([])
        app.commit([], table)
        due += [control.due for control in controls(table)]
    assert due == [began + 1_000, began + 1_000, began + 2_000, began + 2_000]
    assert [timestamp for _, _, _, timestamp in app.sent] == [began + 1_000] * SHARDS  # each is a task of its own


def controls(table: pa.Table) -> list[Control]:
    return [decode_control(row["value"]) for row in table.to_pylist() if row["kind"] == Kind.CONTROL]


class Impatient(Processor[Any, Any, Any, Any]):
    """Requests a commit at some records."""

    def process(self, record: Record[Any, Any]) -> None:
        if record.value == "now":
            self.context.commit()


def test_a_commit_request_of_a_processor_is_reported_to_the_driver(tmp_path: Path) -> None:
    def impatient() -> Topology:
        return Topology().add_source("in", "in", value=str).add_processor("impatient", Impatient, "in")

    app = Application(tmp_path, impatient)
    app.start(2)

    def is_asked_for(*values: bytes) -> bool:
        return any(control.wants_commit for control in controls(app.run([Raw(b"k", value, 1) for value in values])))

    assert not is_asked_for(b"later")
    assert is_asked_for(b"later", b"now", b"later")


class TestMarks:
    def test_a_lane_keeps_the_offsets_of_its_own_partitions(self) -> None:
        program = program_of(every_kind_of_store(), lanes=2, shards=4)
        mark = Mark(3, 99, {f"t/{shard}": shard for shard in range(4)} | {"a/b/3": 7}, {"t": "id"})
        assert own_mark(program, 0, mark) == Mark(3, 99, {"t/0": 0, "t/1": 1}, {"t": "id"})
        assert own_mark(program, 1, mark) == Mark(3, 99, {"t/2": 2, "t/3": 3, "a/b/3": 7}, {"t": "id"})
        assert own_mark(program, 0, None) is None

    def test_a_lane_writes_its_mark_and_keeps_it(self, tmp_path: Path) -> None:
        app = Application(tmp_path)
        app.start(1)
        app.step(some_records(1, 5))
        app.note_mark()
        expected = app.mark
        app.step(some_records(2, 5))
        app.step(some_records(3, 5))
        with open_lane(app.running, 0) as state:
            assert state.head.mark == expected
