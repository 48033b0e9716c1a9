"""Where an application runs: Spark is opened ahead, unless it is to do without; its lanes are on this machine or on a cluster."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock import StreamsBuilder, Topology
from penstock.config import Config
from penstock.engines.many_hosts import ManyHosts
from penstock.engines.one_host import OneHost
from penstock.epochs.program import Program
from penstock.errors import ConfigError
from penstock.observation import logs
from penstock.runtime.hosting import engine as module
from penstock.runtime.hosting import on_spark
from penstock.runtime.hosting.engine import Hosting, opening_hosts
from penstock.runtime.hosting.set_up import TaskSetUp
from penstock.runtime.hosting.spark_work import SparkWork
from penstock.topology import SourceNode
from tests.unit.epochs.application import program_of
from tests.unit.epochs.spread import KEY
from tests.unit.runtime.noting import counting

CLUSTER = {"master": "spark://host:7077", "spark.authenticate": "false"}
TASKS = TaskSetUp(lambda: None, 60.0)


class Spark:
    """Notes what is done with it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.arguments, self.options = arguments, options
        self.did: list[str] = []

    def open(self) -> None:
        self.did.append("open")

    def close(self) -> None:
        self.did.append("close")

    def slots(self, lanes: int) -> int:
        return min(lanes, 3)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Spark]:
    """Every Spark that is made."""
    made: list[Spark] = []

    def spark(*arguments: Any, **options: Any) -> Spark:
        made.append(Spark(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(on_spark, "Spark", spark)
    return made


def config(**settings: Any) -> Config:
    return Config.load(environment={}, bootstrap_servers="localhost:9092", lanes=8, **settings)


def program(lanes: int = 8, is_spread: bool = False) -> Program:
    return replace(program_of(counting(), lanes), is_spread=is_spread, server_key=KEY)


class TestLocal:
    def test_it_needs_no_spark(self, opened: list[Spark]) -> None:
        hosts = opening_hosts(config(engine="local"), program(), counting())
        engine, spark = hosts.host(program(), TASKS)
        assert isinstance(engine, OneHost)
        assert (spark, opened) == (None, [])
        assert str(engine.whereabouts).startswith("engine local: ")
        hosts.close()

    @pytest.mark.parametrize(("lanes", "cores", "slots"), [(2, 3, 2), (8, 3, 3), (8, None, 1)])
    def test_there_are_no_more_slots_than_lanes_or_cores(
        self, monkeypatch: pytest.MonkeyPatch, lanes: int, cores: int | None, slots: int
    ) -> None:
        monkeypatch.setattr(os, "cpu_count", lambda: cores)
        engine, _ = opening_hosts(config(engine="local"), program(lanes), counting()).host(program(lanes), TASKS)
        assert engine.whereabouts.slots == {"this host": slots}

    def test_what_slots_write_is_logged(self, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[Any] = []

        def slots(*arguments: Any) -> Any:
            made.append(arguments)
            return SimpleNamespace(slot=None)

        monkeypatch.setattr(module, "ForkedSlots", slots)
        opening_hosts(config(engine="local"), program(2), counting()).host(program(2), TASKS)
        [(_, prepare, _, heard)] = made
        assert (prepare, heard) == (TASKS.prepare, logs.pass_on)

    def test_what_needs_spark_is_refused_with_the_cure(self) -> None:
        hosting = opening_hosts(config(engine="local"), program(2), counting()).host(program(2), TASKS)
        with pytest.raises(ConfigError, match=r"SQL, tables, .* need Spark, .* engine = local\. Set engine to spark\."):
            hosting.require_spark()


class TestSpark:
    def test_it_is_opened_ahead_and_outlives_the_lanes(self, opened: list[Spark]) -> None:
        hosts = opening_hosts(config(spark={"master": "local[4]"}), program(), counting())
        [spark] = opened
        assert spark.arguments == ("app", 8, {"master": "local[4]"}, logs.pass_on)
        assert spark.did == ["open"]
        hosting = hosts.host(program(5), TASKS)
        assert isinstance(hosting.engine, OneHost)
        assert isinstance(hosting.require_spark(), SparkWork)
        assert str(hosting.engine.whereabouts) == "engine spark: 0 Spark tasks (none yet)"
        hosting.close()
        assert spark.did == ["open"]
        hosts.close()
        assert spark.did == ["open", "close"]

    def test_lanes_of_a_cluster_are_on_many_hosts(self, opened: list[Spark]) -> None:
        topics: Any = object()
        tasks = TASKS._replace(global_topics=lambda: topics)
        hosting = opening_hosts(config(spark=CLUSTER), program(is_spread=True), counting()).host(program(is_spread=True), tasks)
        assert isinstance(hosting.engine, ManyHosts)
        assert hosting.engine._global_topics() is topics
        assert hosting.engine._ending() is None
        hosting.close()

    @pytest.mark.parametrize("reads", [None, "backfill", "contents"])
    def test_it_knows_whether_it_will_read_frames(self, opened: list[Spark], reads: str | None) -> None:
        opening_hosts(config(), program(), reading(reads))
        assert opened[0].options == {"has_frames": reads is not None}


def reading(reads: str | None) -> Topology:
    """A topology with a source, to which something else belongs than its topic."""
    builder = StreamsBuilder()
    builder.stream("in", value=str).to("out", value=str)
    topology = builder.build()
    if reads is None:
        return topology
    source = next(node for node in topology.nodes.values() if isinstance(node, SourceNode))
    something: dict[str, Any] = {reads: object()}
    changed: Any = SimpleNamespace(nodes={source.name: replace(source, **something)})
    return cast("Topology", changed)


def test_spark_ends_its_work_before_the_lanes() -> None:
    did: list[str] = []
    engine: Any = SimpleNamespace(close=lambda: did.append("lanes"))
    spark: Any = SimpleNamespace(close=lambda: did.append("tables"))
    Hosting(engine, spark).close()
    assert did == ["tables", "lanes"]
