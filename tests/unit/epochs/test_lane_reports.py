"""A lane reports its records and time in every epoch, and more in sampled ones."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from penstock import Topology
from penstock.epochs import lane_reports
from penstock.epochs.assignment import Assignment
from penstock.epochs.lane_reports import Watch
from penstock.epochs.program import Epoch
from penstock.epochs.wire import Control, LaneReport, control_row, reports_of, rows_about
from penstock.records import NO_HEADERS
from penstock.state import LaneState, StoreKind, StoreSpec, memory_engine
from tests.unit.epochs.application import program_of
from verification.harness.rows import without_reports

PROGRAM = program_of(Topology())
PLAIN, SAMPLED = Epoch(5, 4, 0), Epoch(5, 4, 0, is_sampled=True)


def test_most_epochs_report_only_records_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 10.5])
    monkeypatch.setattr(lane_reports, "perf_counter", lambda: next(times))
    watch = Watch(Assignment(PROGRAM, PLAIN, stage=1, lane=3))
    assert watch.samples() is None
    assert watch.report(42, LaneState(memory_engine())) == LaneReport(3, 1, 42, 0.5)


def test_a_sampled_epoch_reports_nodes_stores_and_the_process() -> None:
    state = LaneState(memory_engine())
    state.store(StoreSpec("raw", StoreKind.RAW)).put(b"key", b"value")
    state.commit(5, 0)
    watch = Watch(Assignment(PROGRAM, SAMPLED, lane=2))
    for _ in range(2):  # of two shards
        samples = watch.samples()
        assert samples is not None
        samples.watched("node", lambda *_: None)(None, None, 0, NO_HEADERS)
    report = watch.report(2, state)
    assert (report.lane, report.stage, report.records, report.worker) == (2, 0, 2, os.getpid())
    assert report.nodes["node"][0] == 2
    assert report.stores == {"raw": (1, len(b"0skeyvalue"))}  # with the two bytes of the shard
    assert report.memory == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)


def test_a_stage_without_state_has_no_stores() -> None:
    assert Watch(Assignment(PROGRAM, SAMPLED)).report(1).stores == {}


def test_unknown_memory_is_reported_as_0(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lane_reports, "_MEMORY", tmp_path / "none")
    assert Watch(Assignment(PROGRAM, SAMPLED)).report(1).memory == 0


def test_a_report_reaches_the_driver() -> None:
    report = LaneReport(1, 2, 3, 0.5, 77, 1_000, {"node": (3, 0.25)}, {"store": (4, 400)})
    rows = pa.concat_tables([control_row(Control(), 1), rows_about(1, report, None)])
    assert reports_of(rows) == [report]
    assert without_reports(rows) == control_row(Control(), 1)
