"""What Spark's workers run, without Spark: stages over shuffled rows give the same rows as one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import numpy as np
import pyarrow as pa
import pytest
from pyspark import TaskContext
from structlog.contextvars import get_contextvars

from penstock import StreamsBuilder, Topology
from penstock.epochs import hops as hops_module
from penstock.epochs.assignment import Assignment
from penstock.epochs.bounds import measured_in
from penstock.epochs.entry import needs_entry
from penstock.epochs.home import open_lane
from penstock.epochs.hops import INPUT, ROUTED_INPUT, from_topics
from penstock.epochs.program import Epoch, Program
from penstock.epochs.routes import on_shards
from penstock.epochs.shards import lane_of
from penstock.epochs.wire import OUT, WIRE, Kind, in_order_of_causes, reports_of, wire
from penstock.errors import LaneMovedError
from penstock.spark import tasks
from penstock.spark.tasks import discarded, empty_epoch, from_sources, lane_rolled_back, on_lane, program_of, whole_epoch
from tests.unit.epochs.application import SHARDS, Application, every_kind_of_store, some_records

EPOCH = Epoch(0, -1, 5_000, (("in", 0), ("in", 1)), (-1, -1))
Rows = list[dict[str, Any]]


def broadcast_of(program: Program) -> Any:
    return SimpleNamespace(value=(program.incarnation, cloudpickle.dumps(program), lambda: None))


@pytest.fixture(autouse=True)
def forget_programs() -> None:
    tasks._programs.clear()


def counts() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str).group_by_key().count(store="counts").to_stream().to("out", value=int)
    return builder.build()


def upper() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str).map_values(str.upper).to("out", value=str)
    return builder.build()


def words() -> Topology:
    builder = StreamsBuilder()
    flat = builder.stream("in", value=str).flat_map_values(str.split)
    flat.group_by(lambda key, value: value).count(store="words").to_stream().to("out", value=int)
    return builder.build()


def input_of(origin: int, seed: int) -> pa.RecordBatch:
    """The records of one partition."""
    rows = [{"name": 0, "origin": origin, "offset": n, **record._asdict()} for n, record in enumerate(some_records(seed, 40))]
    return pa.RecordBatch.from_pylist(rows, schema=INPUT)


def by_lane(frames: Sequence[pa.Table], lanes: int) -> list[list[pa.RecordBatch]]:
    """A shuffle: every task gets the rows of its lane, in an order of Spark's choosing."""
    table = pa.concat_tables(reversed(frames))
    lane = lane_of(table.column("shard").to_numpy(), SHARDS, lanes)
    return [table.filter(pa.array(lane == number)).to_batches() for number in range(lanes)]


def in_task(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, as in a task of Spark."""
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: number))


def staged(program: Program, partitions: Sequence[pa.RecordBatch], monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """The hops that `EpochJobs` has Spark run, with tables for frames."""
    broadcast, last = broadcast_of(program), len(program.plan.stages) - 1
    frames: list[pa.Table]
    first = 0
    is_plain = program.needs_lanes(0) and not needs_entry(program)
    if is_plain:
        frames = [on_shards(Assignment(program, EPOCH), from_topics([part])).select(ROUTED_INPUT.names) for part in partitions]
    else:
        frames = []
        for number, part in enumerate(partitions):
            in_task(number, monkeypatch)
            frames.append(pa.Table.from_batches(from_sources(broadcast, EPOCH)(iter([part]))))
        first = 0 if program.needs_lanes(0) else 1
    for stage in range(first, last + 1):
        sent = []
        for lane, batches in enumerate(by_lane(frames, program.lanes)):
            in_task(lane, monkeypatch)
            hop = on_lane(broadcast, EPOCH, stage, is_first=is_plain and stage == 0)
            sent.append(pa.Table.from_batches(hop(iter(batches)), OUT if stage == last else WIRE))
        frames = sent
    return in_order_of_causes(pa.concat_tables(frames))


def sent(table: pa.Table) -> Rows:
    """The rows for sinks, whose order matters whatever their keys."""
    return [row for row in table.to_pylist() if row["kind"] == Kind.SINK]


def per_key(table: pa.Table) -> dict[tuple[int, int, bytes | None], Rows]:
    """Rows by kind, topic and key, within which their order matters."""
    found: dict[tuple[int, int, bytes | None], Rows] = {}
    for row in table.to_pylist():
        if row["kind"] < Kind.CONTROL:
            found.setdefault((row["kind"], row["name"], row["key"]), []).append(row)
    return found


@pytest.mark.parametrize(
    ("make", "partitions"),
    [(counts, 2), (words, 2), (every_kind_of_store, 2), (upper, 2), (upper, 1)],
)
def test_an_epoch_run_hop_by_hop_gives_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Topology], partitions: int
) -> None:
    parts = [input_of(partition, seed=partition) for partition in range(partitions)]
    whole, hops = Application(tmp_path / "whole", make), Application(tmp_path / "hops", make)
    for app in (whole, hops):
        app.start(3)
    at_once = pa.Table.from_batches(whole_epoch(broadcast_of(whole.running), EPOCH)(iter(parts)))
    tasks._programs.clear()
    in_stages = staged(hops.running, parts, monkeypatch)
    assert in_stages.schema == at_once.schema == OUT
    assert per_key(in_stages) == per_key(at_once)
    assert sent(in_stages) == sent(at_once) != []
    for table in (at_once, in_stages):  # however it runs, what was read is measured once
        sizes = [size for measured in measured_in(table) for size in measured.sizes.items()]
        records = {origin: sum(count for other, (count, _) in sizes if other == origin) for origin, _ in sizes}
        assert records == dict.fromkeys(range(partitions), 40)


def test_an_epoch_without_records_runs_on_every_lane(tmp_path: Path) -> None:
    app = Application(tmp_path, counts)
    app.start(3)
    anything = pa.RecordBatch.from_pylist([{"id": 0}])
    table = pa.Table.from_batches(empty_epoch(broadcast_of(app.running), EPOCH)(iter([anything])), OUT)
    assert [report.lane for report in reports_of(table)] == [0, 1, 2]
    for lane in range(3):
        with open_lane(app.running, lane) as state:
            assert state.epoch == EPOCH.number


def test_a_program_is_unpacked_once_and_replaced_by_that_of_a_new_start(tmp_path: Path) -> None:
    app = Application(tmp_path, counts)
    first, second = broadcast_of(app.program(1, "one")), broadcast_of(app.program(1, "two"))
    assert program_of(first) is program_of(first)
    assert program_of(second).incarnation == "two"
    assert list(tasks._programs) == ["two"]


def test_a_worker_is_prepared_once_per_program(tmp_path: Path) -> None:
    prepared: list[str] = []
    packed = cloudpickle.dumps(Application(tmp_path, counts).program(1, "one"))
    broadcast = SimpleNamespace(value=("one", packed, lambda: prepared.append("one")))
    assert program_of(broadcast) is program_of(broadcast)
    assert prepared == ["one"]


def test_log_lines_of_a_task_have_its_epoch_and_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, Any]] = []

    def note(program: Program, epoch: Epoch, *rest: Any) -> list[pa.Table]:
        about = get_contextvars()
        seen.append((about.get("epoch"), about.get("lane")))
        return []

    monkeypatch.setattr(hops_module, "_run_on", note)
    monkeypatch.setattr(hops_module, "_run_free", note)
    for number, make in enumerate((counts, upper)):
        app = Application(tmp_path / str(number), make)
        app.start(2)
        tasks._programs.clear()
        list(whole_epoch(broadcast_of(app.running), EPOCH)(iter([input_of(0, seed=1)])))
    assert seen == [(0, 0), (0, 1), (0, None)]  # what needs no lane is on none


def test_rows_of_a_shuffle_are_found_again_by_their_lane() -> None:
    table = wire(3, shard=np.array([6, 0, 7], np.int32), kind=[Kind.SINK] * 3, key=[b"a", b"b", b"c"])
    shuffled = [[row["key"] for batch in lane for row in batch.to_pylist()] for lane in by_lane([table], 3)]
    assert shuffled == [[b"b"], [], [b"a", b"c"]]


@pytest.mark.parametrize("make", [counts, words, upper])
def test_an_epoch_that_is_too_large_is_reported_however_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Topology]
) -> None:
    monkeypatch.setattr(f"{__name__}.EPOCH", replace(EPOCH, most_bytes=700))
    whole, hops = Application(tmp_path / "whole", make), Application(tmp_path / "hops", make)
    for app in (whole, hops):
        app.start(3)
    parts = [input_of(0, seed=1)]
    at_once = pa.Table.from_batches(whole_epoch(broadcast_of(whole.running), EPOCH)(iter(parts)))
    tasks._programs.clear()
    for table in (at_once, staged(hops.running, parts, monkeypatch)):
        assert any(measured.too_large for measured in measured_in(table))


def test_a_lane_is_rolled_back_by_its_own_task(tmp_path: Path) -> None:
    app = Application(tmp_path, words)
    app.start(3)
    broadcast = broadcast_of(app.running)
    list(whole_epoch(broadcast, EPOCH)(iter([input_of(0, seed=1)])))
    rows = [pa.RecordBatch.from_pylist([{"id": lane}]) for lane in (0, 2)]
    assert not list(lane_rolled_back(broadcast, EPOCH)(iter(rows)))
    found = []
    for lane in range(3):
        with open_lane(app.running, lane) as state:
            found.append(state.epoch)
    assert found == [-1, 0, -1]


def test_a_rehearsed_hop_reads_everything_and_touches_no_lane(tmp_path: Path) -> None:
    app = Application(tmp_path, words)
    app.start(1)
    given = iter([input_of(0, seed=1), input_of(1, seed=2)])
    assert not list(discarded(broadcast_of(app.running))(given))
    assert next(given, None) is None, "Spark discards a worker that has not read all of its input"
    with open_lane(app.running, 0) as state:
        assert state.epoch == -1


@pytest.mark.parametrize("is_spread", [True, False])
def test_a_task_that_spark_runs_again_is_refused_on_a_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_spread: bool
) -> None:
    app = Application(tmp_path, counts)
    app.start(1)
    program = replace(app.running, is_spread=is_spread)
    again = SimpleNamespace(attemptNumber=lambda: 1, partitionId=lambda: 0)
    monkeypatch.setattr(TaskContext, "get", lambda: again)
    hop = on_lane(broadcast_of(program), EPOCH, 0, is_first=True)
    if is_spread:
        with pytest.raises(LaneMovedError, match="run the task again"):
            hop(iter(()))
    else:
        list(hop(iter(())))
