"""Who publishes, which a setting decides; `tests/jvm/cluster` has real clusters and brokers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.config import Config
from penstock.epochs.program import Program
from penstock.kafka.publishers import TransactionalPublisher
from penstock.kafka.writers.publisher import SharedPublisher
from penstock.runtime.loop.publishing import new_publisher
from tests.unit.epochs.application import Application

KAFKA = {"bootstrap.servers": "nowhere:1"}
CLUSTER: dict[str, Any] = {
    "lanes": 9,
    "spark": {"master": "spark://master:7077", "spark.authenticate.secret": "known"},
}


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Application(tmp_path).program(1, "i")


def published(config: Config, program: Program, *largest: int) -> Any:
    written: Any = {name: SimpleNamespace(max_message_bytes=most) for name, most in zip("ab", largest, strict=True)}
    return new_publisher(config, program, written, [*largest, 2_000_000], lambda statistics: None)


@pytest.mark.parametrize("given", [{}, {"engine": "local"}, CLUSTER, {**CLUSTER, "writers": "driver"}])
def test_the_driver_writes_by_default(given: dict[str, Any], program: Program) -> None:
    publisher, stage = published(Config(kafka=KAFKA, **given), program, 1_000, 500)
    assert isinstance(publisher, TransactionalPublisher)
    assert stage is None


def test_executors_share_a_transaction_and_know_the_limits_of_topics(program: Program) -> None:
    publisher, stage = published(Config(kafka=KAFKA, writers="executors", **CLUSTER), program, 1_000, 3_000_000)
    assert isinstance(publisher, SharedPublisher)
    assert stage._transactions is publisher.transactions
    assert stage._limits == {"a": 1_000, "b": 3_000_000}
    publisher.close()
