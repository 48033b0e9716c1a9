"""What executors have, compared with the driver; `tests/jvm/cluster` asks real ones."""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from penstock.cli import cluster_checks
from penstock.cli.cluster_checks import examine_cluster
from penstock.cli.findings import Level
from penstock.config import Config
from penstock.errors import ConfigError, PenstockError, StateError
from penstock.spark import executors as module
from penstock.spark.executors import (
    _PACKAGES,
    Executor,
    _task,
    active,
    address_of,
    by_host,
    difference,
    inspected,
    refuse_unequal,
    settled,
)
from penstock.version import DISTRIBUTION, __version__
from tests.unit.deploy.restarts import is_restarted_after

OURS = " ".join(
    [f"pyspark=={pyspark.__version__}", f"{DISTRIBUTION}=={__version__}", *(f"{name}=={version(name)}" for name in _PACKAGES)]
)
SAME = Executor("a", platform.python_version(), OURS, "")


def context(error: Exception | None = None) -> Any:
    """A context whose tasks run here."""

    def mapped(task: Any, tasks: int) -> list[Any]:
        if error is not None:
            raise error
        return [row for number in range(tasks) for row in task(iter([number]))]

    def parallelize(numbers: range, tasks: int) -> Any:
        assert list(numbers) == list(range(tasks))
        return SimpleNamespace(mapPartitions=lambda task: SimpleNamespace(collect=lambda: mapped(task, tasks)))

    there = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
    return SimpleNamespace(parallelize=parallelize, _jsc=there)


class Summaries:
    """What Spark says about executors, the driver included."""

    def __init__(self) -> None:
        self.executors: dict[str, tuple[str, int]] = {}

    @property
    def context(self) -> Any:
        spark = SimpleNamespace(statusStore=lambda: SimpleNamespace(executorList=self.listed))
        return SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: spark))

    def listed(self, is_active_only: bool) -> Any:
        assert is_active_only
        found = [("driver", "driver:1", 0), *((name, f"{host}:7", cores) for name, (host, cores) in self.executors.items())]
        each = [
            SimpleNamespace(id=lambda n=name: n, hostPort=lambda h=at: h, totalCores=lambda c=cores: c)
            for name, at, cores in found
        ]
        return SimpleNamespace(size=lambda: len(each), apply=each.__getitem__)


@pytest.fixture
def cluster() -> Summaries:
    return Summaries()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which moves when somebody sleeps."""
    now = [1_000.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    return now


class TestExecutors:
    def test_those_that_there_are_without_the_driver(self, cluster: Summaries) -> None:
        assert active(cluster.context) == []
        cluster.executors = {"2": ("b", 4), "1": ("10.0.0.1", 2), "3": ("b", 1)}
        assert active(cluster.context) == [("1", "10.0.0.1", 2), ("2", "b", 4), ("3", "b", 1)]
        assert by_host(active(cluster.context)) == {"10.0.0.1": 2, "b": 5}

    @pytest.mark.parametrize(
        ("is_stopped", "named"), [(None, "JVM has ended"), (True, "context was stopped"), (False, "no list")]
    )
    def test_those_of_a_context_that_has_ended_are_an_error_that_says_so(self, is_stopped: bool | None, named: str) -> None:
        def asked() -> Any:
            if is_stopped is None:
                raise ConnectionRefusedError("nobody answers")
            return SimpleNamespace(statusStore=refused, isStopped=lambda: is_stopped)

        def refused() -> None:
            raise RuntimeError("no list")

        ended: Any = SimpleNamespace(_jsc=SimpleNamespace(sc=asked))
        with pytest.raises(RuntimeError if is_stopped is False else PenstockError, match=named):
            active(ended)
        ended._jsc = None
        with pytest.raises(PenstockError, match="context was stopped"):
            active(ended)

    def test_a_host_has_one_address_whatever_it_is_called(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def found(name: str) -> str:
            if name == "a.example.com":
                return "10.0.0.1"
            raise OSError("nobody knows it")

        monkeypatch.setattr("socket.gethostbyname", found)
        names = ["a.example.com", "pod-7", "[fd00::7]"]
        assert [address_of.__wrapped__(name) for name in names] == ["10.0.0.1", "pod-7", "fd00::7"]

    def test_they_are_settled_when_no_more_register(
        self, cluster: Summaries, clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def sleep(seconds: float) -> None:
            clock[0] += seconds
            cluster.executors = {"1": ("b", 1)} if clock[0] < 1_001 else {"1": ("b", 1), "2": ("a", 2)}

        monkeypatch.setattr(f"{module.__name__}.time.sleep", sleep)
        assert settled(cluster.context) == {"a": 2, "b": 1}
        assert clock[0] == pytest.approx(1_003, abs=0.3)

    def test_without_any_it_gives_up_after_a_while(self, cluster: Summaries, clock: list[float]) -> None:
        with pytest.raises(PenstockError, match="started no executor within 120 s") as found:
            settled(cluster.context)
        assert is_restarted_after(found.value)


def test_an_equal_executor_has_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "a")
    [found] = inspected(context(), 3, str(tmp_path / "stores"), "NO_SUCH_VARIABLE")
    assert found == SAME
    assert (tmp_path / "stores").is_dir()
    refuse_unequal([found])


def test_a_host_may_have_its_own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN", str(tmp_path / "own"))
    [found] = _task("/nowhere", "OWN")(iter([0]))
    assert Executor(*found).problem == ""
    assert (tmp_path / "own").is_dir()
    (tmp_path / "file").touch()
    [found] = _task(str(tmp_path / "file" / "stores"), "NO_SUCH_VARIABLE")(iter([0]))
    assert "cannot create" in Executor(*found).problem


def test_spark_has_the_version_that_is_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A platform's own Spark is no installed package, and may come before one that is."""
    monkeypatch.setattr(pyspark, "__version__", "4.2.7")
    [found] = inspected(context(), 1, str(tmp_path), "NO_SUCH_VARIABLE")
    assert "pyspark==4.2.7" in found.packages
    assert difference(found) == ""
    monkeypatch.setattr(pyspark, "__version__", "4.3.0")
    assert difference(found) == "pyspark 4.2.7, but the driver has 4.3.0"


@pytest.mark.parametrize(
    ("executor", "problem"),
    [
        (SAME, ""),
        (SAME._replace(python="3.9.1"), "Python 3.9.1, but the driver has"),
        (SAME._replace(packages=OURS.replace("pyarrow==", "pyarrow==1.")), "pyarrow 1."),
        (SAME._replace(packages=""), "pyspark is missing, but the driver has"),
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
        inspected(context(RuntimeError("No module named pyarrow")), 3, "/x", "X")


def test_an_executor_that_is_lost_meanwhile_is_not() -> None:
    with pytest.raises(PenstockError, match="An executor was lost while it was inspected") as found:
        inspected(context(RuntimeError("Job aborted: ExecutorLostFailure (executor 1 exited)")), 3, "/x", "X")
    assert is_restarted_after(found.value)


class TestDoctor:
    CLUSTER = Config(kafka={"bootstrap.servers": "b:1"}, spark={"master": "yarn"}, lanes=2)

    @pytest.fixture
    def opened(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        """A context; it counts how often it is stopped."""
        made = SimpleNamespace(stopped=0)

        def stop() -> None:
            made.stopped += 1

        made.stop = stop
        monkeypatch.setattr(cluster_checks, "has_context", lambda: False)
        monkeypatch.setattr(cluster_checks, "open_context", lambda *_: made)
        monkeypatch.setattr(cluster_checks, "settled", lambda _: Counter({"b": 1, "a": 2}))
        monkeypatch.setattr(cluster_checks, "inspected", lambda *_: [SAME, SAME._replace(host="b", python="3.9.1")])
        return made

    def test_each_executor_is_a_finding(self, opened: Any) -> None:
        found = {finding.what: finding for finding in examine_cluster(self.CLUSTER)}
        assert found["cluster"].found == "3 cores for 2 lanes and Spark's other jobs: a (2), b (1)"
        assert (found["executor a"].level, found["executor b"].level) == (Level.OK, Level.FAIL)
        assert opened.stopped == 1

    def test_each_core_is_looked_at(self, opened: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        asked: list[Any] = []

        def inspect(*arguments: Any) -> list[Executor]:
            asked.append(arguments)
            return [SAME]

        monkeypatch.setattr(cluster_checks, "inspected", inspect)
        list(examine_cluster(replace(self.CLUSTER, state_dir=tmp_path)))
        assert asked == [(opened, 3, str(tmp_path), "PENSTOCK_STATE_DIR")]

    def test_the_context_of_somebody_else_is_not_stopped(self, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cluster_checks, "has_context", lambda: True)
        list(examine_cluster(self.CLUSTER))
        assert opened.stopped == 0

    def test_what_fails_is_one_too(self, opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_: object) -> Counter[str]:
            raise StateError("no executors")

        monkeypatch.setattr(cluster_checks, "settled", fail)
        assert [finding.level for finding in examine_cluster(self.CLUSTER)] == [Level.FAIL]
        assert opened.stopped == 1

        def refuse(*_: object) -> None:
            raise ConfigError("no master")

        monkeypatch.setattr(cluster_checks, "open_context", refuse)
        assert [finding.found for finding in examine_cluster(self.CLUSTER)] == ["no master"]

    def test_without_a_cluster_there_is_nothing_to_examine(self) -> None:
        [finding] = examine_cluster(Config(kafka={"bootstrap.servers": "b:1"}))
        assert finding.level is Level.FAIL
