"""Spark before it is needed: executors are placed and compared once, and workers load the program; all of it without a JVM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pyarrow as pa
import pytest

from penstock.config import Config
from penstock.epochs.program import Epoch
from penstock.epochs.restore import Restored
from penstock.epochs.standing import Committed
from penstock.errors import LaneMovedError, ProcessingError
from penstock.lane_servers.protocol import Located
from penstock.runtime import spark_engine as module
from penstock.runtime.spark_engine import SparkEngine
from penstock.spark import warming
from penstock.spark.watching import Watch
from penstock.state import memory_engine
from tests.unit.epochs.application import program_of
from tests.unit.runtime.noting import counting
from tests.unit.spark.test_tasks import broadcast_of

COMMITTED = Committed(0, "one", {}, {}, 0)
INPUT = {("in", 0): (3, 4)}


class Spark:
    """Session, hosts and jobs at once; notes what is done with them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.did: list[str] = []
        self.placement: tuple[str, ...] = ()
        self.broadcast = "program"
        self.servers: dict[int, tuple[str, int]] = {}
        self.sparkContext = SimpleNamespace(getConf=dict)
        self.watch = Watch(cast("Any", self))
        monkeypatch.setattr(SparkEngine, "session", self)
        monkeypatch.setattr(module, "warm", lambda frame, broadcast: self.did.append(f"warm {frame} with {broadcast}"))
        monkeypatch.setattr(module, "inspected", lambda frame, directory, variable: self.did.append(f"inspect {frame}"))
        monkeypatch.setattr(module, "refuse_unequal", lambda found: None)
        monkeypatch.setattr(module, "restore", self.restore)
        monkeypatch.setattr(module, "watched", lambda session, hosts: nullcontext(self.watch))

    def engine(self, is_spread: bool) -> SparkEngine:
        made = SparkEngine(
            Config(kafka={"bootstrap.servers": "nowhere:1"}), program_of(counting(), 2), lambda: None, lambda at, to: (), 60.0
        )
        made.__dict__ |= {"jobs": self, "hosts": self if is_spread else None}
        return made

    def range(self, *bounds: int) -> str:
        return f"range{bounds}"

    def each_lane(self) -> str:
        return "lanes"

    def peers(self) -> dict[int, tuple[str, int]]:
        return {}

    def place(self) -> None:
        self.did.append("place")
        self.placement = ("a", "b")

    def rehearse(self, ranges: Any, executors_write: bool) -> None:
        self.did.append(f"rehearse {ranges}, executors write: {executors_write}")

    def restore(self, frame: str, *_: Any) -> list[Restored]:
        self.did.append(f"restore {frame}")
        return [Restored(lane, "up to date", 0, "w", 4_000 + lane) for lane in range(2)]


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> Spark:
    return Spark(monkeypatch)


def test_on_a_cluster_executors_are_placed_and_compared_once(spark: Spark) -> None:
    engine = spark.engine(is_spread=True)
    engine.warm({})
    engine.warm(INPUT)
    rehearsed = f"rehearse {INPUT}, executors write: False"
    assert spark.did == ["place", "inspect lanes", "warm lanes with program", "warm lanes with program", rehearsed]
    spark.did.clear()
    engine.restore(COMMITTED, lambda at, to: (), lambda left: None)
    assert spark.did == ["place", "restore lanes"]  # executors may have come or gone meanwhile
    assert spark.servers == {0: ("a", 4_000), 1: ("b", 4_001)}


def test_a_rehearsal_that_fails_is_only_logged(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spark, "rehearse", Mock(side_effect=ProcessingError("records are gone")))
    spark.engine(is_spread=True).warm(INPUT)
    assert "a takeover may take longer, because an epoch cannot be rehearsed: records are gone" in caplog.text


def test_a_standby_learns_who_writes_after_it_has_its_jobs(spark: Spark) -> None:
    engine = spark.engine(is_spread=True)
    engine.warm({})
    engine.write_stage = stage = cast("Any", object())
    engine.restore(COMMITTED, lambda at, to: (), lambda left: None)
    assert cast("Any", engine.jobs).write_stage is stage


def test_without_a_standby_the_restore_compares_them(spark: Spark) -> None:
    spark.engine(is_spread=True).restore(COMMITTED, lambda at, to: (), lambda left: None)
    assert spark.did == ["place", "inspect lanes", "restore lanes"]


def test_on_one_machine_there_is_nothing_to_place(spark: Spark) -> None:
    engine = spark.engine(is_spread=False)
    engine.warm(INPUT)
    engine.restore(COMMITTED, lambda at, to: (), lambda left: None)
    assert spark.did == ["warm range(0, 2, 1, 2) with program", "restore range(0, 2, 1, 2)"]


def test_a_warm_worker_has_loaded_the_program_and_read_all_of_its_input(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[Any] = []
    monkeypatch.setattr(warming, "program_of", loaded.append)
    batch = pa.RecordBatch.from_pylist([{"lane": 1}])
    jobs: list[list[Any]] = []

    def map_in_arrow(task: Callable[[Iterator[Any]], Iterator[Any]], schema: str) -> Any:
        assert schema == "lane int"
        return SimpleNamespace(toArrow=lambda: jobs.append(list(task(iter([batch, batch])))))

    frame: Any = SimpleNamespace(schema="lane int", mapInArrow=map_in_arrow)
    warming.warm(frame, "program")
    assert (loaded, jobs) == (["program"], [[batch, batch]])


@pytest.mark.parametrize(
    ("raised", "is_lost", "error"),
    [
        (RuntimeError("penstock.errors.exceptions.ProcessingError: no"), False, ProcessingError),
        (RuntimeError("ExecutorLostFailure"), True, LaneMovedError),
    ],
)
def test_a_step_of_a_migration_is_a_job_on_all_hosts(
    spark: Spark, monkeypatch: pytest.MonkeyPatch, raised: Exception, is_lost: bool, error: type[Exception]
) -> None:
    engine, jobs = spark.engine(is_spread=True), iter([None, raised])
    monkeypatch.setattr(spark, "have_failed", lambda failure: is_lost, raising=False)

    def migrated(lanes: Any, broadcast: Any, epoch: Epoch, step: Any) -> pa.Table:
        spark.did.append(f"migrate {lanes} with {broadcast}, {epoch.number}")
        if (failure := next(jobs)) is not None:
            raise failure
        return "rows"

    monkeypatch.setattr(module, "migrated", migrated)
    assert engine.migrate(Epoch(6, 5, 0), lambda assigned: "") == "rows"
    assert spark.did == ["migrate lanes with program, 6"]
    with pytest.raises(error):
        engine.migrate(Epoch(7, 6, 0), lambda assigned: "")


@pytest.mark.parametrize("is_spread", [False, True])
def test_stores_are_tables_of_what_the_driver_has_committed(
    spark: Spark, is_spread: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = spark.engine(is_spread=is_spread)
    program = engine._program = replace(engine._program, directory=str(tmp_path), server_key=b"k" * 32)
    (tmp_path / program.application_id).mkdir()
    monkeypatch.setattr(spark, "range", lambda *bounds: SimpleNamespace(mapInArrow=lambda task, schema: task))
    monkeypatch.setattr(spark, "broadcast", broadcast_of(program))
    asked: list[int] = []

    def located(epoch: int) -> Located:
        asked.append(epoch)
        return Located(epoch, [])

    monkeypatch.setattr(spark, "located", located, raising=False)
    state: Any = SimpleNamespace(epoch=-1, specs=program.specs, globals=memory_engine)
    engine.query(state)
    engine.after_commit(-1)
    read: Any = engine.tables.table("counts")
    engine.after_commit(-1)
    assert list(read(iter([]))) == []
    assert asked == ([-1] if is_spread else [])
    engine.tables.close()
