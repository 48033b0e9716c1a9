"""What tasks do, step by step or all at once; `tests/unit/engines` compares the rows of both on processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from structlog.contextvars import get_contextvars

from penstock import StreamsBuilder, Topology
from penstock.epochs import hops as hops_module
from penstock.epochs.assignment import Assignment
from penstock.epochs.bounds import measured_in
from penstock.epochs.hops import INPUT, ROUTED_INPUT, from_topics
from penstock.epochs.program import Attempt, Epoch, Program
from penstock.epochs.routes import on_shards
from penstock.epochs.shards import lane_of
from penstock.epochs.state_directory import open_lane
from penstock.epochs.tasks import run_step, run_whole
from penstock.epochs.walk import Act, walk_of
from penstock.epochs.wire import OUT, Kind, in_order_of_causes, reports_of
from tests.unit.epochs.application import SHARDS, Application, every_kind_of_store, some_records

EPOCH = Epoch(0, -1, 5_000, (("in", 0), ("in", 1)), (-1, -1))
Rows = list[dict[str, Any]]


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


def by_lane(tables: Sequence[pa.Table], lanes: int) -> list[list[pa.RecordBatch]]:
    """The rows of each lane. Those of different tasks come in any order."""
    table = pa.concat_tables(reversed(tables))
    lane = lane_of(table.column("shard").to_numpy(), SHARDS, lanes)
    return [table.filter(pa.array(lane == number)).to_batches() for number in range(lanes)]


def at_once(program: Program, parts: Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(run_whole(program, EPOCH, parts), OUT)


def in_steps(program: Program, parts: Sequence[pa.RecordBatch]) -> pa.Table:
    """The steps of an epoch; each partition enters in a task of its own."""
    tables = [on_shards(Assignment(program, EPOCH), from_topics([part])).select(ROUTED_INPUT.names) for part in parts]
    for step in walk_of(program):
        given = [[part] for part in parts] if step.act is Act.ENTER else by_lane(tables, program.lanes)
        tables = [
            pa.Table.from_batches(run_step(program, EPOCH, step, task, batches), step.schema)
            for task, batches in enumerate(given)
        ]
    return in_order_of_causes(pa.concat_tables(tables))


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


def started(directory: Path, make: Callable[[], Topology], lanes: int = 3) -> Program:
    app = Application(directory, make)
    app.start(lanes)
    return app.running


@pytest.mark.parametrize(("make", "partitions"), [(counts, 2), (words, 2), (every_kind_of_store, 2), (upper, 2), (upper, 1)])
def test_the_steps_of_an_epoch_give_the_rows_of_the_whole(tmp_path: Path, make: Callable[[], Topology], partitions: int) -> None:
    parts = [input_of(partition, seed=partition) for partition in range(partitions)]
    whole, stepped = (run(started(tmp_path / run.__name__, make), parts) for run in (at_once, in_steps))
    assert stepped.schema == whole.schema == OUT
    assert per_key(stepped) == per_key(whole)
    assert sent(stepped) == sent(whole) != []
    for table in (whole, stepped):  # however it runs, what was read is measured once
        sizes = [size for measured in measured_in(table) for size in measured.sizes.items()]
        records = {origin: sum(count for other, (count, _) in sizes if other == origin) for origin, _ in sizes}
        assert records == dict.fromkeys(range(partitions), 40)


def test_an_epoch_without_records_runs_on_every_lane(tmp_path: Path) -> None:
    program = started(tmp_path, counts)
    assert [report.lane for report in reports_of(at_once(program, []))] == [0, 1, 2]
    for lane in range(3):
        with open_lane(program, lane) as state:
            assert state.epoch == EPOCH.number


def test_log_lines_of_a_task_have_its_epoch_and_lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, Any]] = []

    def note(program: Program, epoch: Epoch, *rest: Any) -> list[pa.Table]:
        about = get_contextvars()
        seen.append((about.get("epoch"), about.get("lane")))
        return []

    monkeypatch.setattr(hops_module, "_run_on", note)
    monkeypatch.setattr(hops_module, "_run_free", note)
    for make in (counts, upper):
        at_once(started(tmp_path / make.__name__, make, lanes=2), [input_of(0, seed=1)])
    assert seen == [(0, 0), (0, 1), (0, None)]  # what needs no lane is on none


@pytest.mark.parametrize("make", [counts, words, upper])
@pytest.mark.parametrize("run", [at_once, in_steps])
def test_an_epoch_that_is_too_large_is_reported_however_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[], Topology], run: Callable[..., pa.Table]
) -> None:
    program = started(tmp_path, make)
    monkeypatch.setattr(f"{__name__}.EPOCH", replace(EPOCH, attempt=Attempt(0, 700)))
    assert any(measured.too_large for measured in measured_in(run(program, [input_of(0, seed=1)])))
