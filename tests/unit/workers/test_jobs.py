"""Epochs on worker processes give what they give in one process, with any number of lanes and workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.epochs.bounds import measured_in
from penstock.epochs.hops import INPUT
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch, Program
from penstock.epochs.wire import OUT, Kind, reports_of
from penstock.errors import FencedError
from penstock.records import Partition
from penstock.runtime.feedback import Feedback
from penstock.runtime.progress import Progress
from penstock.workers.jobs import WorkerJobs
from penstock.workers.pool import WorkerPool
from tests.unit.epochs.application import Raw, some_records
from tests.unit.workers.programs import TOPOLOGIES, LentPool, Lists, clocked, contents, installed, re_keyed, stateless

PATIENCE_S = 60.0
RECORDS = some_records(seed=5, count=90)
PARTITIONS = 3
INPUTS = Lists.of(RECORDS, PARTITIONS)
START = dict.fromkeys(INPUTS.records, 0)
CUTS = [{("in", 0): 9, ("in", 1): 30, ("in", 2): 0}, {("in", 0): 30, ("in", 1): 30, ("in", 2): 30}]
"""Where the epochs of a test end: the first takes nothing from one partition, the second nothing from another."""

_OWN = [int(kind) for kind in (Kind.REPORT, Kind.MEASURE, Kind.CONTROL)]


def jobs_of(pool: WorkerPool, program: Program, lists: Lists = INPUTS, patience_s: float = PATIENCE_S) -> WorkerJobs:
    lent: Any = LentPool(pool, program)
    jobs = WorkerJobs(lent, program, lists.between, patience_s)
    jobs.read_too({"in": 0})
    return jobs


def in_one_process(program: Program, epoch: Epoch, ranges: Mapping[Partition, tuple[int, int]]) -> pa.Table:
    """Run an epoch here, in the order in which a reader returns its records."""
    rows = [
        {"name": 0, "origin": epoch.origins.index(place), "offset": offset, **INPUTS.records[place][offset]._asdict()}
        for place, bounds in ranges.items()
        for offset in range(*bounds)
    ]
    return run_epoch(program, epoch, [pa.RecordBatch.from_pylist(rows, schema=INPUT)])


def next_epoch(progress: Progress, watermark: bool) -> Epoch:
    """The next epoch, as the driver would begin it."""
    epoch = Epoch(progress.epoch + 1, progress.epoch, 1_000_000 + 5_000 * progress.epoch, progress.origins)
    high_times = tuple(progress.high_times.get(place, -1) for place in progress.origins)
    epoch = replace(epoch, high_times=high_times, partitions={"in": PARTITIONS})
    if not watermark:
        return epoch
    own = tuple(progress.watermarks.get(place, -1) for place in progress.origins)
    return replace(epoch, watermarks=own, watermark=min(own), watermark_before=progress.watermark)


def after(progress: Progress, epoch: Epoch, table: pa.Table, ends: Mapping[Partition, int]) -> Progress:
    feedback = Feedback.found_in([table])
    watermarks = {**progress.watermarks}
    for place, watermark in feedback.watermarks(progress):
        watermarks[place] = max(watermark, watermarks.get(place, -1))
    known = progress.watermark if epoch.watermark is None else epoch.watermark
    return Progress(epoch.number, ends, feedback.high_times(progress), watermarks, known)


def shown(table: pa.Table) -> list[dict[str, Any]]:
    """The rows for topics, in their order."""
    own = pc.is_in(table.column("kind"), value_set=pa.array(_OWN, pa.int8()))
    rows: list[dict[str, Any]] = table.filter(pc.invert(own)).to_pylist()
    return rows


def told(table: pa.Table, progress: Progress) -> tuple[Any, ...]:
    """What the driver learns besides rows; it does not matter how many tasks have told it."""
    feedback = Feedback.found_in([table])
    dropped: Counter[tuple[str, str]] = Counter()
    for node, reason, count in feedback.dropped:
        dropped[node, reason] += count
    return feedback.high_times(progress), sorted(feedback.watermarks(progress)), dropped, feedback.due, feedback.event_due


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_workers_give_what_one_process_gives(pools: list[WorkerPool], tmp_path: Path, name: str, lanes: int) -> None:
    topology = TOPOLOGIES[name]()
    here = installed(topology, tmp_path / "here", lanes)
    there = [
        (is_small, pool, installed(topology, tmp_path / f"{pool.size}-{is_small}", lanes))
        for is_small, pool in ((True, pools[0]), (False, pools[0]), (False, pools[1]))
    ]
    progress = Progress(-1, START, {})
    for ends in [*CUTS, CUTS[-1]]:  # the last one is without records
        epoch = next_epoch(progress, here.has_watermarks)
        ranges = {place: (offset, ends[place]) for place, offset in progress.offsets.items() if ends[place] > offset}
        expected = in_one_process(here, epoch, ranges)
        for is_small, pool, program in there:
            jobs = jobs_of(pool, program)
            found = jobs.run(epoch, is_small, ranges, None) if ranges else jobs.tick(epoch)
            assert found.schema == OUT
            assert shown(found) == shown(expected)
            assert told(found, progress) == told(expected, progress)
        progress = after(progress, epoch, expected, ends)
    assert all(contents(program) == contents(here) for _, _, program in there)


def test_a_task_reports_what_it_has_read_and_its_work(pools: list[WorkerPool], tmp_path: Path) -> None:
    epoch = next_epoch(Progress(-1, START, {}), watermark=False)
    jobs = jobs_of(pools[1], installed(re_keyed(), tmp_path, 2))
    found = jobs.run(epoch, False, {("in", 0): (0, 9), ("in", 2): (0, 30)}, None)
    sizes: Counter[int] = Counter()
    for measured in measured_in(found):
        sizes.update({origin: records for origin, (records, _) in measured.sizes.items()})
    assert sizes == {0: 9, 2: 30}
    assert {(report.stage, report.lane) for report in reports_of(found)} == {
        (stage, lane) for stage in range(3) for lane in (0, 1)
    }


def test_a_task_above_its_limit_says_so_in_a_row(pools: list[WorkerPool], tmp_path: Path) -> None:
    epoch = replace(next_epoch(Progress(-1, START, {}), watermark=False), most_bytes=100)
    jobs = jobs_of(pools[1], installed(re_keyed(), tmp_path, 2))
    for is_small in (True, False):
        reasons = [measured.too_large for measured in measured_in(jobs.run(epoch, is_small, {("in", 0): (0, 30)}, None))]
        assert any("more than the limit of 100" in reason for reason in reasons)


@pytest.mark.parametrize("is_small", [True, False])
def test_an_attempt_is_rolled_back_and_earlier_ones_are_fenced(pools: list[WorkerPool], tmp_path: Path, is_small: bool) -> None:
    program = installed(re_keyed(), tmp_path, 2)
    jobs = jobs_of(pools[1], program)
    first = next_epoch(Progress(-1, START, {}), watermark=False)
    jobs.run(first, is_small, {("in", 0): (0, 30)}, None)
    committed = contents(program)
    second = replace(first, number=1, previous=0)
    jobs.run(second, is_small, {("in", 1): (0, 30)}, None)
    assert contents(program) != committed
    jobs.roll_back(replace(second, attempt=1))
    with pytest.raises(FencedError):
        jobs.run(second, is_small, {("in", 2): (0, 9)}, None)
    again = jobs.run(replace(second, attempt=1), is_small, {("in", 2): (0, 9)}, None)
    alone = installed(re_keyed(), tmp_path / "alone", 2)
    jobs_of(pools[0], alone).run(first, True, {("in", 0): (0, 30)}, None)
    expected = jobs_of(pools[0], alone).run(second, True, {("in", 2): (0, 9)}, None)
    assert shown(again) == shown(expected)


def test_there_is_nothing_to_roll_back_without_lanes(tmp_path: Path) -> None:
    nobody: Any = None
    jobs = WorkerJobs(nobody, installed(stateless(), tmp_path, 2), INPUTS.between, PATIENCE_S)
    jobs.roll_back(Epoch(1, 0, 0, attempt=1))


def test_a_tick_runs_what_is_due(pools: list[WorkerPool], tmp_path: Path) -> None:
    jobs = jobs_of(pools[1], installed(clocked(), tmp_path, 2))
    first = jobs.run(Epoch(0, -1, 1_000, (("in", 0),), (-1,)), True, {("in", 0): (0, 1)}, None)
    due = Feedback.found_in([first]).due
    assert due is not None
    assert shown(jobs.tick(Epoch(1, 0, due - 1, (("in", 0),), (-1,)))) == []
    rung = [row for row in shown(jobs.tick(Epoch(2, 1, due, (("in", 0),), (-1,)))) if row["kind"] == Kind.SINK]
    assert {(row["key"], row["value"]) for row in rung} == {(b"ring", b"%d" % due)}


def test_a_record_is_read_by_its_offset(tmp_path: Path) -> None:
    nobody: Any = None
    lists = Lists({("in", 1): [Raw(None, b"zero", 5), Raw(b"k", None, 7)]})
    jobs = WorkerJobs(nobody, installed(stateless(), tmp_path, 1), lists.between, PATIENCE_S)
    assert jobs.read(("in", 1), 1).to_pylist() == [{"key": b"k", "value": None, "timestamp": 7, "headers": None}]
    nothing = WorkerJobs(nobody, installed(stateless(), tmp_path, 1), lambda ranges: [], PATIENCE_S).read(("in", 1), 1)
    assert nothing.num_rows == 0
    assert nothing.column_names == ["key", "value", "timestamp", "headers"]


def test_topics_are_added_while_it_runs(pools: list[WorkerPool], tmp_path: Path) -> None:
    lists = Lists({("in", 0): RECORDS[:1], ("new", 0): RECORDS[1:2]})
    jobs = jobs_of(pools[0], installed(stateless(), tmp_path, 1), lists)
    epoch = Epoch(0, -1, 0, (("in", 0), ("new", 0)), (-1, -1))
    with pytest.raises(KeyError):
        jobs.run(epoch, True, {("new", 0): (0, 1)}, None)
    jobs.read_too({"new": 0})
    assert jobs.run(epoch, True, {("in", 0): (0, 1), ("new", 0): (0, 1)}, None).num_rows > 1
