"""A broker that requires a login: librdkafka logs in, whatever the password contains."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.config import Config
from penstock.errors import ConfigError, PenstockError
from penstock.kafka.clients import open_admin, reach_brokers
from penstock.kafka.commit import Committer
from penstock.kafka.publishers import TransactionalPublisher
from penstock.kafka.topics import InternalTopic, Topics
from tests.jvm.kafka.live_topics import rows
from verification.harness.broker import Broker
from verification.harness.processes import free_port

pytestmark = [pytest.mark.jvm, pytest.mark.security(21)]

PASSWORD = r"""q"uo\te;s required; 'x' = {y}"""


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    port = free_port()
    escaped = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    users = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="{escaped}";'
    broker = Broker()
    broker._settings |= {
        "listeners": f"DIRECT://127.0.0.1:{broker.port},CONTROLLER://127.0.0.1:{broker.controller_port},SASL://127.0.0.1:{port}",
        "advertised.listeners": f"DIRECT://127.0.0.1:{broker.port},SASL://127.0.0.1:{port}",
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": users.replace("\\", "\\\\"),  # a properties file has its own escapes
    }
    with broker:
        yield f"127.0.0.1:{port}"


def config(servers: str, password: str = PASSWORD) -> Config:
    login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": password}
    return Config.load(environment={}, bootstrap_servers=servers, kafka=login, broker_timeout="5s")


def test_librdkafka_logs_in(guarded: str) -> None:
    Topics(open_admin(config(guarded)), 20_000).ensure([InternalTopic("written", 1)], -1)
    target = TransactionalPublisher(config(guarded), "app", "app", ["written"])
    target.start()
    Committer(target).commit(0, [rows(b"v")], [])
    target.close()


def test_a_start_with_a_wrong_password_does_not_wait_for_brokers(guarded: str) -> None:
    wrong = replace(config(guarded, "c4n4ry"), broker_timeout_ms=120_000)
    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"Cannot connect to a broker at .*: .*Check the credentials") as error:
        reach_brokers(wrong)
    assert time.monotonic() - began < 20
    assert "c4n4ry" not in str(error.value)
    assert reach_brokers(config(guarded)).list_topics(timeout=10).brokers


def test_a_wrong_password_is_refused_and_not_shown(guarded: str, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(PenstockError) as error:
        TransactionalPublisher(config(guarded, "c4n4ry"), "app", "app", []).start()
    assert error.value.exit_code in {2, 22}
    assert "c4n4ry" not in str(error.value) + caplog.text
