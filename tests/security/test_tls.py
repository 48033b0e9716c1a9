"""A real client does not connect to servers with an invalid TLS setup, and says why."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.config import Config
from penstock.errors import BrokerError, ConfigError
from penstock.kafka.clients import open_admin, reach_brokers
from tests.security.tls_servers import TIMEOUT_S, Server, faulty, serving
from verification.harness.processes import wait_until
from verification.harness.secure import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def said_to(server: Server, authority: Path, log: pytest.LogCaptureFixture) -> Callable[[], str]:
    """Connect to a server; return what the client has logged."""
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "s3cr3t"}
    kafka = {**login, "ssl.ca.location": str(authority)}
    config = Config.load(environment={}, bootstrap_servers=f"127.0.0.1:{server.port}", kafka=kafka)
    log.set_level(logging.DEBUG, "penstock.kafka")
    admin = open_admin(config)

    def said() -> str:
        admin.poll(0.05)
        return log.text.lower()

    return said


@pytest.mark.security(23)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1 is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("expired", "certificate verify failed"),
        ("wrong host", "certificate verify failed"),
        ("self-signed", "certificate verify failed"),
        ("another authority", "certificate verify failed"),
        ("plain text", "ssl handshake failed"),
        ("TLS 1.0", "alert protocol version"),
    ],
)
def test_it_does_not_connect_and_says_why(
    authority: Authority, fault: str, reason: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with faulty(fault, authority, tmp_path) as server:
        said = said_to(server, authority.certificate, caplog)
        wait_until(f"the log says {reason!r}", lambda: reason in said(), TIMEOUT_S)
        time.sleep(0.2)
        assert b"s3cr3t" not in server.received
        assert fault == "plain text" or server.received == b""
    assert "s3cr3t" not in caplog.text


@pytest.mark.security(23)
def test_it_connects_to_a_valid_server(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    with serving(authority.issue("right")) as server:
        said = said_to(server, authority.certificate, caplog)
        wait_until("the client speaks", lambda: bool(said() is not None and server.received), TIMEOUT_S)


@pytest.mark.security(23)
def test_a_start_says_what_is_wrong_with_the_broker(authority: Authority, tmp_path: Path) -> None:
    with faulty("expired", authority, tmp_path) as server:
        servers = f"127.0.0.1:{server.port}"
        kafka = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}
        config = Config.load(environment={}, bootstrap_servers=servers, kafka=kafka, broker_timeout="2s")
        with pytest.raises(ConfigError, match=f"Cannot connect to a broker at {servers}: .*certificate verify failed"):
            reach_brokers(config)


def test_a_start_says_that_no_broker_answers() -> None:
    config = Config.load(environment={}, bootstrap_servers="127.0.0.1:1", broker_timeout="1s")
    with pytest.raises(BrokerError, match=r"Cannot connect to a broker at 127\.0\.0\.1:1"):
        reach_brokers(config)
