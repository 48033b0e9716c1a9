"""Who writes, if the settings leave it open; `tests/jvm/cluster` has real clusters and brokers."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.config import Config
from penstock.errors import ConfigError
from penstock.runtime.publishing import WRITTEN_LANES, with_writers
from penstock.spark import writing

KAFKA = {"bootstrap.servers": "nowhere:1"}
CLUSTER: dict[str, Any] = {
    "lanes": WRITTEN_LANES + 1,
    "spark": {"master": "spark://master:7077", "spark.authenticate.secret": "known"},
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Config]:
    """The settings with which brokers are asked whether several processes may write in one transaction; they may."""
    found: list[Config] = []
    monkeypatch.setattr(writing, "require_shared_transactions", found.append)
    return found


def test_executors_of_a_cluster_write(asked: list[Config]) -> None:
    assert with_writers(Config(kafka=KAFKA, **CLUSTER)).executors_write
    assert [config.writers for config in asked] == ["executors"]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"engine": "local"},
        {**CLUSTER, "lanes": WRITTEN_LANES},
        {**CLUSTER, "tracing": True},
        {**CLUSTER, "guarantee": "at_least_once"},
    ],
)
def test_otherwise_the_driver_does(given: dict[str, Any], asked: list[Config]) -> None:
    assert with_writers(Config.load(environment={}, bootstrap_servers="nowhere:1", **given)).writers == "driver"
    assert asked == []


@pytest.mark.parametrize("writers", ["driver", "executors"])
def test_a_setting_decides(writers: str, asked: list[Config]) -> None:
    assert with_writers(Config(kafka=KAFKA, writers=writers, **CLUSTER)).writers == writers
    assert asked == []


def test_brokers_that_cannot_are_named_in_the_log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def refuse(config: Config) -> None:
        raise ConfigError("writers: the brokers are too old.")

    monkeypatch.setattr(writing, "require_shared_transactions", refuse)
    with caplog.at_level(logging.INFO, "penstock.runtime.publishing"):
        assert with_writers(Config(kafka=KAFKA, **CLUSTER)).writers == "driver"
    assert "the driver writes results and changelogs: writers: the brokers are too old." in caplog.text
