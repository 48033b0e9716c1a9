"""The groups of `make bench-engine`: rows of medians, and a report that each run adds to."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from benchmarks.bench import Bench
from benchmarks.engine import __main__ as program
from benchmarks.engine.faults import until_next_commit
from benchmarks.engine.group import Figures, Group, Round, Row, in_tasks, rows_of
from verification.harness.processes import HarnessError

if TYPE_CHECKING:
    from benchmarks.measurements.prober import Prober

TASKS: dict[str, Any] = {"engine": "spark", "slots": 2, "spark_tasks": 2, "hosts": 1}


def group(name: str, *figures: float, fails: bool = False, goal: float = 3) -> Group:
    def measure(bench: Bench) -> Iterator[Round]:
        for figure in figures:
            yield Round({"seconds": figure}, TASKS)
        if fails:
            raise HarnessError("k1 was counted twice")

    def rows(medians: Figures) -> Iterable[Row]:
        yield Row(f"{name}, s", medians["seconds"], goal, ("seconds",))

    return Group(name, 1, measure, rows)


def on_disk(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def test_a_row_is_made_of_medians_and_says_where_lanes_ran() -> None:
    row = rows_of(group("start"), [Round({"seconds": seconds}, TASKS) for seconds in (1, 9, 2)])["start, s"]
    assert (row["measured"], row["goal"], row["reached"], row["rounds"]) == (2, 3, True, 3)
    assert row["of"] == {"seconds": [1, 9, 2]}
    assert {name: row[name] for name in TASKS} == TASKS


def test_a_figure_may_be_of_some_rounds_only() -> None:
    def rows(medians: Figures) -> Iterable[Row]:
        yield Row("growth", medians["three"] / medians["one"], 1, ("one", "two", "three"))

    rounds = [Round({"one": 1, "two": 2, "three": 3}, TASKS), Round({"one": 1, "three": 3}, TASKS)]
    row = rows_of(Group("scaling", 1, lambda _: iter(rounds), rows), rounds)["growth"]
    assert row["of"] == {"one": [1, 1], "two": [2], "three": [3, 3]}


def test_rounds_on_different_slots_make_no_row() -> None:
    with pytest.raises(HarnessError, match="different slots"):
        rows_of(group("start"), [Round({"seconds": 1}, TASKS), Round({"seconds": 1}, {**TASKS, "slots": 1, "spark_tasks": 1})])


@pytest.mark.parametrize("ran_on", [{}, {"engine": "local", "slots": 2, "spark_tasks": 0}, {**TASKS, "spark_tasks": 1}])
def test_a_figure_that_is_not_of_spark_tasks_is_an_error(ran_on: dict[str, Any]) -> None:
    with pytest.raises(HarnessError, match="Spark's tasks"):
        in_tasks(ran_on)


def test_a_run_replaces_the_rows_of_its_groups_only(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    for name, seconds in (("start", 1), ("standby", 2), ("start", 5)):
        assert program.measured(group(name, seconds), 1, 1.0, path)
    found = on_disk(path)
    assert {name: row["measured"] for name, row in found.items()} == {"standby, s": 2, "start, s": 5}
    assert found["start, s"]["reached"] is False
    assert all(row["date"] and row["revision"] for row in found.values())


def test_a_group_that_fails_leaves_the_rounds_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "engine.json"
    assert not program.measured(group("start", 1, 2, fails=True), 3, 1.0, path)
    assert on_disk(path)["start, s"]["rounds"] == 2
    assert "counted twice" in capsys.readouterr().out


@pytest.mark.parametrize(("fails", "code"), [(False, 0), (True, 1)])
def test_only_errors_fail_and_the_other_groups_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails: bool, code: int
) -> None:
    monkeypatch.setattr(program, "GROUPS", {"first": group("first", 1, fails=fails), "second": group("second", 9)})
    assert program.main(["--report", str(tmp_path / "engine.json")]) == code
    assert "MISSED  second, s: 9 (at most 3" in capsys.readouterr().out


def test_every_row_has_a_name_of_its_own() -> None:
    medians: Figures = defaultdict(lambda: 1.0)
    names = [row.name for each in program.GROUPS.values() for row in each.rows(medians)]
    assert len(names) == len(set(names))
    assert sum("throughput of" in name for name in names) == 3
    assert sum("to the next commit" in name for name in names) == 6
    assert sum("scaling" in name for name in names) == 2


def test_the_time_after_a_fault_is_that_of_records_that_came_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([10.0, 11.0])
    clock = SimpleNamespace(monotonic=lambda: next(moments), sleep=lambda seconds: None)  # other threads keep theirs
    monkeypatch.setattr("benchmarks.engine.faults.time", clock)

    class Sent:
        def __init__(self) -> None:
            self.due = {0: 10.5, 1: 11.5, 3: 12.0}
            self.arrived_at = {0: 10.6, 1: 14.0, 3: 13.5}
            self.spans = iter([range(3), range(3, 4)])

        def send(self, *_: object) -> range:
            return next(self.spans)

        def wait_for_all(self, timeout_s: float) -> None:
            """All have arrived."""

    assert until_next_commit(cast("Prober", Sent()), lambda: None) == 3.5
