"""What is particular about slots that share the files of one host; `test_contract.py` has what all engines have in common."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.engines.forked.slots import ForkedSlots
from penstock.engines.one_host import OneHost
from penstock.engines.port import Whereabouts
from penstock.engines.requests import RunEpoch, RunStep
from penstock.epochs.bounds import measured_in
from penstock.epochs.program import Attempt, Epoch, Program
from penstock.epochs.wire import Kind, out_rows, reports_of
from penstock.runtime.loop.feedback import Feedback
from tests.unit.engines.driving import INPUTS, PARTITIONS, shown
from tests.unit.engines.lending import Dies, LentSlots
from tests.unit.engines.programs import Lists, clocked, installed, re_keyed, stateless
from tests.unit.epochs.application import Raw

PATIENCE_S = 60.0
EPOCH = Epoch(0, -1, 995_000, tuple(INPUTS.topics), (-1,) * PARTITIONS)
HOUR_GLASS = Lists.of([Raw(b"k", b"v", 5)])


def engine_of(slots: ForkedSlots, program: Program) -> OneHost:
    lent: Any = LentSlots(slots, program)
    return OneHost(program, lent, PATIENCE_S, "local", "forked processes")


def noting(asked: list[Any]) -> Dies:
    """Adds all requests to a list; no slot dies of them."""

    def dies(request: Any) -> str:
        asked.append(request)
        return ""

    return dies


def run(engine: OneHost, epoch: Epoch, ranges: Any, is_small: bool = False) -> pa.Table:
    return engine.run(epoch, INPUTS.records(epoch, ranges), is_small=is_small)


def test_a_task_reports_what_it_has_read_and_its_work(forked: list[ForkedSlots], tmp_path: Path) -> None:
    found = run(engine_of(forked[1], installed(re_keyed(), tmp_path, 2)), EPOCH, {("in", 0): (0, 9), ("in", 2): (0, 30)})
    sizes: Counter[int] = Counter()
    for measured in measured_in(found):
        sizes.update({origin: records for origin, (records, _) in measured.sizes.items()})
    assert sizes == {0: 9, 2: 30}
    assert {(report.stage, report.lane) for report in reports_of(found)} == {
        (stage, lane) for stage in range(3) for lane in (0, 1)
    }


def test_a_task_above_its_limit_says_so_in_a_row(forked: list[ForkedSlots], tmp_path: Path) -> None:
    epoch = replace(EPOCH, attempt=Attempt(0, 100))
    engine = engine_of(forked[1], installed(re_keyed(), tmp_path, 2))
    for is_small in (True, False):
        reasons = [measured.too_large for measured in measured_in(run(engine, epoch, {("in", 0): (0, 30)}, is_small))]
        assert any("more than the limit of 100" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("is_small", "ranges", "kinds"),
    [(True, {("in", 0): (0, 9)}, {RunEpoch}), (False, {}, {RunEpoch}), (False, {("in", 0): (0, 9)}, {RunStep})],
)
def test_a_small_epoch_and_one_without_records_run_in_one_slot(
    forked: list[ForkedSlots], tmp_path: Path, is_small: bool, ranges: Any, kinds: set[type]
) -> None:
    asked: list[Any] = []
    engine: Any = engine_of(forked[1], installed(re_keyed(), tmp_path, 2))
    engine._slots.dies = noting(asked)
    run(engine, EPOCH, ranges, is_small)
    assert set(map(type, asked)) == kinds
    assert len(asked) == (1 if RunEpoch in kinds else 6)


def test_there_is_nothing_to_roll_back_without_lanes(forked: list[ForkedSlots], tmp_path: Path) -> None:
    asked: list[Any] = []
    engine: Any = engine_of(forked[1], installed(stateless(), tmp_path, 2))
    engine._slots.dies = noting(asked)
    engine.roll_back(Epoch(1, 0, 0, attempt=Attempt(1)))
    assert asked == []


def test_an_epoch_without_records_runs_what_is_due(forked: list[ForkedSlots], tmp_path: Path) -> None:
    engine = engine_of(forked[1], installed(clocked(), tmp_path, 2))
    origins: Any = ((("in", 0),), (-1,))
    begin = Epoch(0, -1, 1_000, *origins)
    due = Feedback.found_in([engine.run(begin, HOUR_GLASS.records(begin, {("in", 0): (0, 1)}), is_small=True)]).due
    assert due is not None
    assert shown(engine.run(Epoch(1, 0, due - 1, *origins), [], is_small=True)) == []
    rows = shown(engine.run(Epoch(2, 1, due, *origins), [], is_small=True))
    assert {(row["key"], row["value"]) for row in rows if row["kind"] == Kind.SINK} == {(b"ring", b"%d" % due)}


def test_a_step_of_a_migration_runs_on_every_lane(forked: list[ForkedSlots], tmp_path: Path) -> None:
    done = engine_of(forked[1], installed(re_keyed(), tmp_path, 3)).migrate(
        replace(EPOCH, number=6),
        lambda assigned: out_rows(Kind.SINK, 0, 0, 0, b"%d" % assigned.lane, b"%d" % assigned.epoch.number),
    )
    assert [(row["key"], row["value"]) for row in done.to_pylist()] == [(b"0", b"6"), (b"1", b"6"), (b"2", b"6")]


def test_it_stays_where_it_is(forked: list[ForkedSlots], tmp_path: Path) -> None:
    engine = engine_of(forked[1], installed(re_keyed(), tmp_path, 2))
    assert (engine.changed(), engine.server_of) == (False, None)
    assert engine.whereabouts == Whereabouts("local", {"this host": 2}, "forked processes")


@pytest.mark.parametrize(
    ("slots", "text"),
    [
        ({"this host": 3}, "engine spark: 3 Spark tasks (3 on this host)"),
        ({"b": 1, "a": 2}, "engine spark: 3 Spark tasks (2 on a, 1 on b)"),
        ({}, "engine spark: 0 Spark tasks (none yet)"),
    ],
)
def test_where_lanes_run_is_said_in_a_line(slots: dict[str, int], text: str) -> None:
    assert str(Whereabouts("spark", slots, "Spark tasks")) == text
