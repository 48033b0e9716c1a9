"""Java's client with the settings of Spark's reader, against servers with an invalid TLS setup, and a valid one."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.config import Config
from penstock.kafka.clients import spark_options
from penstock.settings import revealed
from tests.security.tls_servers import faulty
from verification.harness.processes import HarnessError, run_java
from verification.harness.secure import Authority, SecureBroker

pytestmark = [pytest.mark.jvm, pytest.mark.security(23)]


def java_says(config: Config, directory: Path) -> str:
    """Return the output of Kafka's own tool with the settings of Spark's reader."""
    options = {name.removeprefix("kafka."): value for name, value in revealed(spark_options(config)).items()}
    options |= {"default.api.timeout.ms": "4000", "request.timeout.ms": "3000"}
    properties = directory / "client.properties"
    lines = (f"{name}={value.replace(chr(92), chr(92) * 2).replace(chr(10), chr(92) + 'n')}" for name, value in options.items())
    properties.write_text("\n".join(lines), encoding="utf-8")
    servers = config.kafka["bootstrap.servers"]
    try:
        return run_java(
            "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", servers, "--command-config", str(properties), "--list"
        )
    except HarnessError as error:
        return str(error)


def config(servers: str, login: dict[str, str]) -> Config:
    return Config.load(environment={}, bootstrap_servers=servers, kafka=login)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1 is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("expired", "SSL handshake failed"),
        ("wrong host", "SSL handshake failed"),
        ("self-signed", "SSL handshake failed"),
        ("plain text", "Timed out waiting for a node assignment"),
        ("TLS 1.0", "SSL handshake failed"),
    ],
)
def test_it_does_not_connect_and_says_why(fault: str, reason: str, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "s3cr3t"}
    (tmp_path / "other").mkdir()
    with faulty(fault, authority, tmp_path / "other") as server:
        said = java_says(config(f"127.0.0.1:{server.port}", {**login, "ssl.ca.location": str(authority.certificate)}), tmp_path)
        assert b"s3cr3t" not in server.received
    assert reason in said, said
    assert "s3cr3t" not in said


def test_it_connects_to_a_valid_server(tmp_path: Path) -> None:
    with SecureBroker() as broker:
        said = java_says(config(broker.proxied_bootstrap_servers, broker.login), tmp_path)
        assert "ended with" not in said
        wrong = {**broker.login, "sasl.password": "s3cr3t"}
        refused = java_says(config(broker.proxied_bootstrap_servers, wrong), tmp_path)
        assert "invalid credentials" in refused
        assert "s3cr3t" not in refused
