"""The JVM that is started ahead of the context."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark import SparkConf, SparkContext

from penstock.errors import ConfigError
from penstock.spark import context, jvm
from penstock.spark.context import open_context, start_jvm_ahead
from penstock.spark.jvm import gateway_of, start_ahead

SOON_S = 20


class Launcher:
    """Stands in for Spark's scripts. It waits for `may_start`, and writes a line to the standard error that it is given."""

    def __init__(self) -> None:
        self.started: list[dict[str, str]] = []
        self.may_start = threading.Event()
        self.may_start.set()
        self.problem: Exception | None = None

    def __call__(self, conf: SparkConf, process: dict[str, int]) -> object:
        assert self.may_start.wait(SOON_S)
        if self.problem is not None:
            raise self.problem
        self.started.append(dict(conf.getAll()))
        os.write(process["stderr"], b"started\n")
        return f"gateway {len(self.started)}"


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    made = Launcher()
    monkeypatch.setattr(jvm, "launch_gateway", made)
    monkeypatch.setattr(jvm, "_ahead", {})
    monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")  # no archives
    yield made
    made.may_start.set()


def heard(line: str) -> None:
    """Hear nothing."""


def test_one_that_was_started_ahead_is_taken_once(launcher: Launcher) -> None:
    launcher.may_start.clear()
    start_ahead({"a": "1"}, heard)
    start_ahead({"a": "1"}, heard)
    launcher.may_start.set()
    assert gateway_of({"a": "1"}, heard) == "gateway 1"
    assert gateway_of({"a": "1"}, heard) == "gateway 2"
    assert launcher.started == [{"a": "1"}, {"a": "1"}]


@pytest.mark.parametrize(("arguments", "hears"), [({"a": "2"}, heard), ({"a": "1"}, print)])
def test_one_that_is_not_the_same_is_not(launcher: Launcher, arguments: dict[str, str], hears: Callable[[str], None]) -> None:
    start_ahead({"a": "1"}, heard)
    gateway_of(arguments, hears)
    [ahead] = jvm._ahead.values()
    ahead.result()
    assert sorted(launcher.started, key=str) == sorted([{"a": "1"}, arguments], key=str)


def test_why_it_could_not_start_is_told_when_it_is_needed(launcher: Launcher) -> None:
    launcher.problem = RuntimeError("no memory")
    start_ahead({}, heard)
    with pytest.raises(RuntimeError, match="no memory"):
        gateway_of({}, heard)


def test_the_context_takes_the_one_that_was_started_ahead(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same command line, whatever the number of lanes will be, and without secrets."""
    opened: list[Any] = []
    monkeypatch.setattr(context, "require_java_of_spark", lambda: None)
    monkeypatch.setattr(SparkContext, "_gateway", None)

    def initialized(*, gateway: object) -> None:
        opened.append(gateway)

    def get_or_create(conf: SparkConf) -> None:
        opened.append(conf)
        raise ConfigError("opened")

    monkeypatch.setattr(SparkContext, "_ensure_initialized", initialized)
    monkeypatch.setattr(SparkContext, "getOrCreate", get_or_create)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    settings = {"master": "local[2]", "spark.hadoop.fs.s3a.secret.key": "s3cr3t"}
    start_jvm_ahead(settings, heard, has_frames=False)
    with pytest.raises(ConfigError, match="opened"):
        open_context("app", 7, settings, heard, False)
    gateway, conf = opened
    assert gateway == "gateway 1"
    assert conf.get("spark.sql.shuffle.partitions") == "7"
    [arguments] = launcher.started
    assert arguments["spark.driver.host"] == "127.0.0.1"
    assert "s3cr3t" not in str(arguments)


def test_none_is_started_if_there_is_one(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", object())
    start_jvm_ahead({}, heard, has_frames=False)
    assert jvm._ahead == {}


def test_without_java_opening_the_context_tells(launcher: Launcher, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ConfigError("no Java")

    monkeypatch.setattr(context, "require_java_of_spark", missing)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    start_jvm_ahead({}, heard, has_frames=False)
    assert jvm._ahead == {}
    with pytest.raises(ConfigError, match="no Java"):
        open_context("app", 2, {}, heard)
