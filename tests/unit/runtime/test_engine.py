"""Where epochs run: on worker processes if the driver has read their records, on Spark otherwise, which is opened for that."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.config import Config
from penstock.epochs.program import Epoch
from penstock.epochs.standing import Committed
from penstock.errors import ConfigError
from penstock.records import Partition
from penstock.runtime import engine as engines
from penstock.runtime import spark_engine
from penstock.runtime.engine import FED_LANES, FED_RECORDS, Engine, TaskSetUp, most_by_workers
from penstock.runtime.inputs import ListedInput, MixedInput
from penstock.runtime.time_order import OrderedInput
from tests.unit.epochs.application import program_of
from tests.unit.runtime.noting import counting

A0, A1 = ("a", 0), ("a", 1)
EPOCH = Epoch(1, 0, 0)
ANY = 2**62
COMMITTED = Committed(0, "one", {}, {}, 0)


class Stage:
    """The parts of an engine, replaced; records their calls."""

    def __init__(self) -> None:
        self.did: list[str] = []
        self.pool_sizes: list[int] = []
        self.read_to: dict[Partition, int] = {A0: 100, A1: 100}
        self.reader_arguments: tuple[Any, ...] = ()
        self.found_rows = 1

    def pool(self, program: Any, prepare: Any, size: int, heard: Any) -> Any:
        self.pool_sizes.append(size)
        return _Noting(self, "pool")

    def workers(self, *_: Any) -> Any:
        return _Noting(self, "workers")

    def spark(self, *_: Any) -> Any:
        return _Noting(self, "spark")

    def reader(self, *arguments: Any) -> Any:
        self.reader_arguments = arguments
        return _Noting(self, "reader")


class _Noting:
    """Any part: each call is noted under its name."""

    def __init__(self, stage: Stage, name: str) -> None:
        self._stage = stage
        self._name = name

    @property
    def jobs(self) -> _Noting:
        self._stage.did.append("spark opened")
        return self

    @property
    def read_to(self) -> Mapping[Partition, int]:
        return self._stage.read_to

    @property
    def num_rows(self) -> int:
        return self._stage.found_rows

    def __getattr__(self, call: str) -> Any:
        def called(*_: Any) -> _Noting:
            self._stage.did.append(f"{self._name}.{call}")
            return self

        return called


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage()
    for name, part in (
        ("WorkerPool", made.pool),
        ("WorkerJobs", made.workers),
        ("SparkEngine", made.spark),
        ("InputReader", made.reader),
    ):
        monkeypatch.setattr(spark_engine if name == "SparkEngine" else engines, name, part)
    return made


def config(**settings: Any) -> Config:
    return Config.load(environment={}, bootstrap_servers="localhost:9092", lanes=2, **settings)


def engine_of(lanes: int = 2, **settings: Any) -> Engine:
    tasks = TaskSetUp(lambda: None, lambda positions, ends: [], 60)
    return Engine(config(**settings), program_of(counting(), lanes), tasks, lambda: {A0: 900, A1: 900})


CLUSTER = {"master": "spark://host:7077", "spark.authenticate": "false"}


@pytest.mark.parametrize(
    ("settings", "lanes", "most"),
    [
        ({}, 1, ANY),
        ({}, FED_LANES, ANY),
        ({}, FED_LANES + 1, FED_RECORDS),
        ({"spark": {"master": "local[8]"}}, 8, FED_RECORDS),
        ({"spark": {"master": "local[8]"}}, 2, ANY),
        ({"worker_epoch_records": 70}, 1, 70),
        ({"worker_epoch_records": 70}, 8, 70),
        ({"worker_epoch_records": 0}, 1, 0),
        ({"spark": CLUSTER}, 1, 0),
        ({"spark": CLUSTER}, 8, 0),
        ({"spark": CLUSTER, "worker_epoch_records": 70}, 8, 0),
        ({"engine": "local"}, 1, ANY),
        ({"engine": "local"}, 8, ANY),
        ({"engine": "local", "worker_epoch_records": 70}, 8, ANY),
        ({"engine": "local", "spark": CLUSTER}, 8, ANY),
    ],
)
def test_the_most_records_that_workers_run(settings: dict[str, Any], lanes: int, most: int) -> None:
    assert most_by_workers(config(**settings), lanes) == most


class TestProcesses:
    def test_with_few_lanes_only_workers_are_started(self, stage: Stage) -> None:
        engine = engine_of()
        engine.start()
        engine.run(EPOCH, True, {}, None)
        engine.close()
        assert stage.did == ["pool.start", "workers.run", "pool.close", "spark.close"]

    def test_with_many_lanes_spark_is_opened_too(self, stage: Stage) -> None:
        engine = engine_of(lanes=8)
        engine.start()
        engine.close()
        assert stage.did == ["pool.start", "spark.open", "pool.close", "spark.close"]

    def test_what_runs_epochs_is_warmed(self, stage: Stage) -> None:
        for lanes, settings, warmed in (
            (2, {}, ["workers.warm"]),
            (8, {}, ["workers.warm", "spark.warm"]),
            (2, {"spark": CLUSTER}, ["spark.warm"]),
            (2, {"engine": "local"}, ["workers.warm"]),
        ):
            stage.did.clear()
            engine_of(lanes, **settings).warm({})
            assert stage.did == warmed

    def test_a_cluster_has_no_workers(self, stage: Stage) -> None:
        engine = engine_of(spark=CLUSTER)
        engine.start()
        engine.close()
        assert stage.did == ["spark.open", "spark.close"]
        assert stage.pool_sizes == []

    def test_a_local_engine_has_no_spark(self, stage: Stage) -> None:
        engine = engine_of(lanes=8, engine="local")
        engine.start()
        engine.close()
        assert stage.did == ["pool.start", "pool.close"]
        assert engine.spark is None

    def test_there_are_no_more_workers_than_lanes_or_cores(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "cpu_count", lambda: 3)
        engine_of(lanes=2)
        engine_of(lanes=8)
        monkeypatch.setattr(os, "cpu_count", lambda: None)
        engine_of(lanes=8)
        assert stage.pool_sizes == [2, 3, 1]


class TestInput:
    def test_with_few_lanes_the_driver_reads_everything(self, stage: Stage) -> None:
        engine_of(max_epoch_records=77).open_input({A0: 1}, 1_000).fill()
        assert stage.did == ["reader.fill"]
        settings, offsets, most_records, most_bytes, _ = stage.reader_arguments
        assert settings["group.id"] == "app"
        assert (offsets, most_records, most_bytes) == ({A0: 1}, 2 * 77, 2 * 1_000)

    def test_with_many_lanes_it_reads_only_small_epochs(self, stage: Stage) -> None:
        assert isinstance(engine_of(lanes=8).open_input({A0: 1}, 1_000), MixedInput)
        assert stage.reader_arguments[2] == 2 * FED_RECORDS

    def test_several_topics_are_read_in_the_order_of_time(self) -> None:
        source = engine_of().open_input({("a", 0): 1, ("b", 0): 1}, 1_000)
        assert isinstance(source, OrderedInput)

    def test_on_a_cluster_the_driver_reads_nothing(self, stage: Stage) -> None:
        source = engine_of(spark=CLUSTER).open_input({A0: 1, A1: 1}, 1_000)
        assert isinstance(source, ListedInput)
        assert source.wait({A0: 1, A1: 1}, 0) == {A0: 900, A1: 900}
        assert stage.reader_arguments == ()

    def test_new_topics_are_known_everywhere(self, stage: Stage) -> None:
        engine_of().read_too({"b": 1})
        assert stage.did == ["workers.read_too", "spark.read_too"]


class TestJobs:
    @pytest.fixture
    def mixed(self, stage: Stage) -> Engine:
        """Up to 50 records run on workers."""
        engine = engine_of(worker_epoch_records=50)
        engine.open_input({A0: 0, A1: 0}, 1_000)
        return engine

    @pytest.mark.parametrize(
        ("ranges", "did"),
        [
            ({A0: (0, 50)}, ["workers.run"]),
            ({A0: (0, 25), A1: (70, 95)}, ["workers.run"]),
            ({A0: (0, 51)}, ["spark opened", "spark.run"]),
            ({A0: (0, 26), A1: (75, 100)}, ["spark opened", "spark.run"]),
        ],
    )
    def test_the_size_of_an_epoch_decides(self, stage: Stage, mixed: Engine, ranges: Any, did: list[str]) -> None:
        mixed.run(EPOCH, False, ranges, None)
        assert stage.did == did

    def test_small_epochs_of_a_large_backlog_run_on_spark_if_the_driver_has_not_read_them(
        self, stage: Stage, mixed: Engine
    ) -> None:
        """The first epoch of a start, a retry with fewer records, the rest of a backlog: workers would not see their records."""
        mixed.run(EPOCH, True, {A0: (90, 101)}, None)
        mixed.run(EPOCH, True, {A0: (0, 1), A1: (300, 310)}, None)
        assert stage.did == ["spark opened", "spark.run"] * 2

    def test_epochs_without_records_and_roll_backs_run_on_workers(self, stage: Stage, mixed: Engine) -> None:
        mixed.tick(EPOCH)
        mixed.roll_back(EPOCH)
        mixed.restore(COMMITTED, lambda positions, ends: [], lambda left: None)
        assert stage.did == ["workers.tick", "workers.roll_back", "workers.restore"]

    def test_on_a_cluster_everything_runs_on_spark(self, stage: Stage) -> None:
        engine = engine_of(spark=CLUSTER)
        engine.run(EPOCH, True, {A0: (0, 1)}, None)
        engine.tick(EPOCH)
        engine.roll_back(EPOCH)
        engine.restore(COMMITTED, lambda positions, ends: [], lambda left: None)
        engine.read(A0, 7)
        assert [call for call in stage.did if call != "spark opened"] == [
            "spark.run",
            "spark.tick",
            "spark.roll_back",
            "spark.restore",
            "spark.read",
        ]

    def test_one_record_is_read_from_what_the_driver_has_read_or_by_spark(self, stage: Stage, mixed: Engine) -> None:
        mixed.read(A0, 7)
        stage.found_rows = 0
        mixed.read(A0, 7)
        engine_of(engine="local").read(A0, 7)
        assert stage.did == ["workers.read", "workers.read", "spark opened", "spark.read", "workers.read"]


def test_sql_without_spark_is_refused_with_the_cure(stage: Stage) -> None:
    with pytest.raises(ConfigError, match=r"SQL, tables, .* need Spark, .* engine = local\. Set engine to spark\."):
        engine_of(engine="local").require_spark()
    assert engine_of().require_spark() is not None


@pytest.mark.parametrize("has_stores", [False, True])
def test_lanes_of_a_cluster_must_move_when_executors_have_changed(
    stage: Stage, has_stores: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "has_lanes", lambda program: has_stores)
    engine: Any = engine_of(spark=CLUSTER)
    engine.spark = SimpleNamespace(hosts=SimpleNamespace(have_changed=lambda: True))
    assert engine.must_move() == has_stores
    assert not engine_of().must_move()
    assert not engine_of(engine="local").must_move()


def test_a_step_of_a_migration_runs_where_lanes_are(stage: Stage) -> None:
    epoch = Epoch(6, 5, 0)
    done = engine_of(lanes=3).migrate(
        epoch, lambda assigned: pa.table({"lane": [assigned.lane], "epoch": [assigned.epoch.number]})
    )
    assert done.to_pylist() == [{"lane": lane, "epoch": 6} for lane in range(3)]
    engine_of(spark=CLUSTER).migrate(epoch, lambda assigned: pa.table({}))
    assert stage.did == ["spark.migrate"]
