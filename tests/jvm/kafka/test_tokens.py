"""A broker that wants tokens: every client logs in with those of a provider, in this process and in workers, also Spark's."""

from __future__ import annotations

import base64
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import App, StreamsBuilder
from penstock.config import Config
from penstock.errors import ConfigError
from penstock.kafka.clients import reach_brokers
from penstock.tokens import Token
from tests.jvm.runtime.cases import settings_of_a_case
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import free_port
from verification.harness.topics import Sent

pytestmark = [pytest.mark.jvm, pytest.mark.security(22)]

LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


def token() -> Token:
    """Return a token without a signature, which a broker accepts if it has no issuer."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": "ann", "iat": now, "exp": now + 3_600})
    encoded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return Token(f"{'.'.join(encoded)}.", now + 3_600)


def forged() -> Token:
    return Token("canary", time.time() + 3_600)


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Broker, str]]:
    """A broker, and the address at which it wants tokens."""
    port, broker = free_port(), Broker()
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    broker._settings |= {
        "listeners": f"DIRECT://127.0.0.1:{broker.port},CONTROLLER://127.0.0.1:{broker.controller_port},SASL://127.0.0.1:{port}",
        "advertised.listeners": f"DIRECT://127.0.0.1:{broker.port},SASL://127.0.0.1:{port}",
        "listener.security.protocol.map": "DIRECT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": f'{module} required unsecuredLoginStringClaim_sub="broker";',
    }
    with broker:
        yield broker, f"127.0.0.1:{port}"


def test_a_token_that_the_broker_refuses_ends_the_start_at_once(guarded: tuple[Broker, str]) -> None:
    began = time.monotonic()
    found = Config.load(environment={}, bootstrap_servers=guarded[1], kafka=LOGIN, token_provider=forged, broker_timeout="60s")
    with pytest.raises(ConfigError, match="Check the credentials") as error:
        reach_brokers(found)
    assert time.monotonic() - began < 20
    assert "canary" not in str(error.value)


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param({"engine": "local"}, id="local"),
        pytest.param({"engine": "spark"}, id="spark", marks=pytest.mark.slow),  # starts it twice
    ],
)
def test_an_application_runs_and_restores(
    guarded: tuple[Broker, str], engine: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    broker, address = guarded
    name = f"tokens-{request.node.callspec.id}"
    for topic in (f"{name}-in", f"{name}-out"):
        topics.create(broker.bootstrap_servers, topic)
    builder = StreamsBuilder()
    builder.stream(f"{name}-in", value=str).group_by_key().count(store="counts").to_stream().to(f"{name}-out", value=int)
    app = App(name, builder.build())
    settings = {**settings_of_a_case(address, tmp_path), **engine, "kafka": LOGIN, "token_provider": token}
    for _ in range(2):
        topics.produce(broker.bootstrap_servers, f"{name}-in", [Sent(key=b"k", value=b"v")] * 3)
        app.run(until="latest", **settings)
        shutil.rmtree(tmp_path / "state")  # the next start reads the changelog, in workers or tasks
    sent = [int.from_bytes(record.value or b"", "big") for record in topics.read(broker.bootstrap_servers, f"{name}-out")]
    assert sent[-1] == 6
