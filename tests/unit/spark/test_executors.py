"""What executors have, compared with the driver; `tests/jvm/cluster` asks real ones."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.cli import cluster_checks
from penstock.cli.cluster_checks import examine_cluster
from penstock.cli.findings import Level
from penstock.config import Config
from penstock.errors import ConfigError, StateError
from penstock.spark.executors import _PACKAGES, Executor, _task, difference, inspected, refuse_unequal

OURS = " ".join(f"{name}=={version(name)}" for name in _PACKAGES)
SAME = Executor("a", platform.python_version(), OURS, "")


def frame(error: Exception | None = None) -> Any:
    """A frame whose task runs here, twice."""

    def mapped(task: Any, schema: Any) -> Any:
        def run() -> pa.Table:
            if error is not None:
                raise error
            return pa.Table.from_batches([*task(iter([None])), *task(iter([None]))])

        return SimpleNamespace(toArrow=run)

    return SimpleNamespace(mapInArrow=mapped)


def test_an_equal_executor_has_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "a")
    [found] = inspected(frame(), str(tmp_path / "stores"), "NO_SUCH_VARIABLE")
    assert found == SAME
    assert (tmp_path / "stores").is_dir()
    refuse_unequal([found])


def test_a_host_may_have_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    [batch] = _task("/nowhere", "OWN")(iter([None]))
    assert batch.to_pylist()[0]["problem"] == ""
    assert (tmp_path / "own").is_dir()
    (tmp_path / "file").touch()
    [batch] = _task(str(tmp_path / "file" / "stores"), "NO_SUCH_VARIABLE")(iter([None]))
    assert "cannot create" in batch.to_pylist()[0]["problem"]


@pytest.mark.parametrize(
    ("executor", "problem"),
    [
        (SAME, ""),
        (SAME._replace(python="3.9.1"), "Python 3.9.1, but the driver has"),
        (SAME._replace(packages=OURS.replace("pyarrow==", "pyarrow==1.")), "pyarrow 1."),
        (SAME._replace(packages=""), "penstock is missing, but the driver has"),
        (SAME._replace(problem="cannot write to /x"), "cannot write to /x"),
    ],
)
def test_what_differs_is_named(executor: Executor, problem: str) -> None:
    assert problem in difference(executor)
    assert bool(problem) == bool(difference(executor))


def test_all_that_differ_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match=r"(?s)a: Python 3\.9\.1.*b: cannot write"):
        refuse_unequal([SAME._replace(python="3.9.1"), SAME._replace(host="b", problem="cannot write"), SAME])


def test_an_executor_without_python_is_a_matter_of_settings() -> None:
    with pytest.raises(ConfigError, match=r"cannot run a Python task.*\n.*No module named"):
        inspected(frame(RuntimeError("No module named pyarrow")), "/x", "X")


class TestDoctor:
    CLUSTER = Config(kafka={"bootstrap.servers": "b:1"}, spark={"master": "yarn"}, lanes=2)

    @pytest.fixture
    def session(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        made = SimpleNamespace(stopped=0)

        def stop() -> None:
            made.stopped += 1

        made.stop = stop
        placed = SimpleNamespace(place=lambda: None, placement=("a", "b"), each_lane=frame)
        monkeypatch.setattr(cluster_checks, "open_session", lambda *_: made)
        monkeypatch.setattr(cluster_checks, "Hosts", lambda *_: placed)
        monkeypatch.setattr(cluster_checks, "inspected", lambda *_: [SAME, SAME._replace(host="b", python="3.9.1")])
        made.hosts = placed
        return made

    def test_each_executor_is_a_finding(self, session: Any) -> None:
        found = {finding.what: finding for finding in examine_cluster(self.CLUSTER)}
        assert found["cluster"].found == "2 lanes on a (1), b (1)"
        assert (found["executor a"].level, found["executor b"].level) == (Level.OK, Level.FAIL)
        assert session.stopped == 1

    def test_what_fails_is_one_too(self, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> None:
            raise StateError("no executors")

        session.hosts.place = fail
        assert [finding.level for finding in examine_cluster(self.CLUSTER)] == [Level.FAIL]

        def refuse(*_: object) -> None:
            raise ConfigError("no master")

        monkeypatch.setattr(cluster_checks, "open_session", refuse)
        assert [finding.found for finding in examine_cluster(self.CLUSTER)] == ["no master"]

    def test_without_a_cluster_there_is_nothing_to_examine(self) -> None:
        [finding] = examine_cluster(Config(kafka={"bootstrap.servers": "b:1"}))
        assert finding.level is Level.FAIL
