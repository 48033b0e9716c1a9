"""The connection of writers from librdkafka's settings."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from penstock.config import Config
from penstock.errors import ConfigError
from penstock.kafka.writers.brokers import TRANSACTION, Attempts, Brokers, client_arguments
from penstock.kafka.writers.publisher import Writing

SERVERS = {"bootstrap.servers": "a:1,b:2"}
CLUSTER = {"master": "spark://m:7077", "spark.authenticate.secret": "s"}


def test_settings_become_those_of_the_client() -> None:
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanisms": "SCRAM-SHA-256"}
    found = client_arguments({**SERVERS, **login, "sasl.username": "u", "sasl.password": "p", "linger.ms": "5"})
    assert found["bootstrap_servers"] == "a:1,b:2"
    assert (found["security_protocol"], found["sasl_mechanism"]) == ("SASL_PLAINTEXT", "SCRAM-SHA-256")
    assert (found["sasl_plain_username"], found["sasl_plain_password"]) == ("u", "p")


@pytest.mark.parametrize(("algorithm", "is_checked"), [("https", True), ("none", False)])
def test_the_name_of_the_broker_is_checked_unless_switched_off(algorithm: str, is_checked: bool) -> None:
    settings = {**SERVERS, "security.protocol": "SSL", "ssl.endpoint.identification.algorithm": algorithm}
    assert client_arguments(settings)["ssl_context"].check_hostname is is_checked


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "log in with GSSAPI"),
        ({"security.protocol": "SASL_SSL"}, "log in with no mechanism"),
        ({"security.protocol": "SSL", "ssl.keystore.location": "x"}, "use ssl.keystore.location"),
    ],
)
def test_what_writers_cannot_do_is_refused(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"executors cannot {reason} when they write. Set writers to driver."):
        client_arguments({**SERVERS, **settings})


def test_batches_are_as_the_drivers_producer_makes_them(tmp_path: Path) -> None:
    config = Config(kafka={**SERVERS, "producer.compression.type": "zstd"}, state_dir=tmp_path)
    writing = Writing.of(config, [5_000, 70_000])
    assert (writing.form.codec, writing.form.most_bytes) == (4, 5_000)
    assert writing.patience_s == 120


@pytest.mark.parametrize(
    ("overrides", "condition"),
    [
        ({}, "the application runs on a cluster"),
        ({"spark": CLUSTER, "lanes": 2, "guarantee": "at_least_once"}, "guarantee is exactly_once"),
        ({"spark": CLUSTER, "lanes": 2, "tracing": True}, "tracing is off"),
    ],
)
def test_executors_write_only_where_they_can(overrides: dict[str, Any], condition: str) -> None:
    with pytest.raises(ConfigError, match=f"writers: executors can write only if {condition}"):
        Config.load(environment={}, bootstrap_servers="a:1", writers="executors", **overrides)


def test_executors_write_on_a_cluster() -> None:
    config = Config.load(environment={}, bootstrap_servers="a:1", writers="executors", spark=CLUSTER, lanes=2)
    assert config.executors_write
    assert not Config.load(environment={}, bootstrap_servers="a:1").executors_write


@pytest.mark.parametrize(("set_by_the_user", "level"), [(logging.NOTSET, logging.CRITICAL), (logging.DEBUG, logging.DEBUG)])
def test_the_client_is_silent_unless_the_user_wants_to_hear_it(
    monkeypatch: pytest.MonkeyPatch, set_by_the_user: int, level: int
) -> None:
    logger = logging.getLogger("aiokafka")
    monkeypatch.setattr(logger, "level", set_by_the_user)
    Brokers({"bootstrap.servers": "nowhere:1"}, patience_s=0).close()
    assert logger.level == level


def test_a_broker_that_does_not_take_part_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[set[str]] = [set(), {"broker"}]
    closed: list[object] = []

    class Client:
        def __init__(self, **arguments: Any) -> None:
            self.cluster = self

        async def bootstrap(self) -> None:
            self._known = known.pop(0)

        def brokers(self) -> set[str]:
            return self._known

        async def coordinator_lookup(self, kind: object, key: str) -> int:
            assert self._known, "as the client itself"
            return 7

        async def send(self, node: int, request: object, group: object) -> int:
            return node

        async def close(self) -> None:
            closed.append(self)

    monkeypatch.setattr("penstock.kafka.writers.brokers.AIOKafkaClient", Client)
    brokers = Brokers({"bootstrap.servers": "nowhere:1"}, patience_s=10)
    assert brokers.run(brokers.ask(TRANSACTION, "app", None, lambda answer: 0, "asking")) == 7
    assert (known, len(closed)) == ([], 1)
    brokers.close()


def test_pauses_between_attempts_grow_until_the_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pauses = 0.0, []

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        pauses.append(seconds)

    async def attempt() -> None:
        attempts = Attempts(patience_s=3, clock=lambda: now)
        while not attempts.are_over:
            await attempts.pause()

    monkeypatch.setattr(asyncio, "sleep", sleep)
    asyncio.run(attempt())
    assert pauses[:5] == [0.02, 0.04, 0.08, 0.16, 0.32]
    assert set(pauses[5:]) == {0.5}
    assert 3 <= now < 3.5
