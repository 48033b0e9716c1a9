"""Fault points: armed by the environment, counted over all processes; without it, they do nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import faults
from penstock.faults import InjectedFaultError

PASS_THREE_TIMES = """
from penstock import faults
for number in range(3):
    faults.point("here")
    print("passed", number, flush=True)
print(faults._Current.hit is faults._nothing)
"""


def armed(entries: str, directory: Path) -> Callable[[str], None]:
    return faults._armed(faults._parse(entries), directory)


def process(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process that passes the point three times."""
    variables = {"PYTHONPATH": os.pathsep.join(sys.path), "PENSTOCK_FAULT_DIR": str(directory), **environment}
    command = [sys.executable, "-c", PASS_THREE_TIMES]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=60)


class TestUnarmed:
    def test_a_point_is_an_empty_function(self) -> None:
        assert "PENSTOCK_FAULT" not in os.environ
        assert faults._Current.hit is faults._nothing

    def test_nothing_is_counted(self, tmp_path: Path) -> None:
        done = process(tmp_path / "faults")
        assert done.stdout.split() == ["passed", "0", "passed", "1", "passed", "2", "True"]
        assert not (tmp_path / "faults").exists()


@pytest.mark.slow  # processes start, and die, for each
class TestArmed:
    def test_the_nth_hit_kills_the_process_and_no_other_hit(self, tmp_path: Path) -> None:
        done = process(tmp_path, PENSTOCK_FAULT="here:2:kill,elsewhere:1:kill")
        assert done.returncode == -signal.SIGKILL
        assert done.stdout.split() == ["passed", "0"]
        again = process(tmp_path, PENSTOCK_FAULT="here:2:kill")
        assert again.returncode == 0
        assert again.stdout.split()[-1] == "False"

    def test_a_fault_is_logged_before_it_happens(self, tmp_path: Path) -> None:
        before = time.time()
        process(tmp_path, PENSTOCK_FAULT="here:2:kill")
        name, action, when = (tmp_path / "fired").read_text().split()
        assert (name, action) == ("here", "kill")
        assert before - 1 <= float(when) <= time.time() + 1

    def test_it_may_raise(self, tmp_path: Path) -> None:
        point = armed("here:1:raise", tmp_path)
        with pytest.raises(InjectedFaultError, match="fault point here"):
            point("here")
        assert (tmp_path / "fired").read_text().startswith("here raise ")
        point("here")

    def test_it_may_stall(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        stalled: list[float] = []
        monkeypatch.setattr(time, "sleep", stalled.append)
        armed("here:1:sleep=2.5", tmp_path)("here")
        assert stalled == [2.5]

    def test_it_may_kill_another_process(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        killed: list[tuple[int, int]] = []
        monkeypatch.setenv("PENSTOCK_FAULT_PID", "4711")
        monkeypatch.setattr(os, "kill", lambda pid, kind: killed.append((pid, kind)))
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        armed("here:1:kill", tmp_path)("here")
        assert killed == [(4711, signal.SIGKILL)]

    def test_several_points_are_armed_side_by_side(self, tmp_path: Path) -> None:
        point = armed("one:1:raise,two:2:raise", tmp_path)
        point("two")
        point("unknown")
        for name in ("one", "two"):
            with pytest.raises(InjectedFaultError, match=name):
                point(name)

    def test_hits_are_counted_over_all_processes_and_one_of_them_fires(self, tmp_path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        children = [context.Process(target=hit, args=(str(tmp_path),)) for _ in range(3)]
        for child in children:
            child.start()
        (tmp_path / "go").touch()
        for child in children:
            child.join(60)
        assert [child.exitcode for child in children] == [0, 0, 0]
        assert int((tmp_path / "here.hits").read_text()) == 3 * HITS
        assert len((tmp_path / "fired").read_text().splitlines()) == 1


HITS = 400


def hit(directory: str) -> None:
    """Pass a point many times, in one of several processes that do so at the same time."""
    point = armed(f"here:{2 * HITS}:raise", Path(directory))
    while not Path(directory, "go").exists():
        time.sleep(0.001)
    fired = 0
    for _ in range(HITS):
        try:
            point("here")
        except InjectedFaultError:
            fired += 1
    assert fired <= 1


class TestMistakes:
    @pytest.mark.parametrize(
        "entries",
        ["here:1:explode", "here:1", "here", "here:first:kill", "here:1:kill:more", "here:1:kill,", "here:1:sleep=long"],
    )
    def test_an_invalid_fault_is_refused_when_the_process_starts(self, entries: str) -> None:
        with pytest.raises(
            ValueError, match=r"PENSTOCK_FAULT: invalid .*: use point:nth:kill, point:nth:raise or point:nth:sleep"
        ):
            faults._parse(entries)
