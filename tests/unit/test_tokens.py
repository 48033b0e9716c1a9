"""Tokens for brokers: asked for once for all clients, asked for again after a failure, and never shown."""

from __future__ import annotations

import functools
import logging
import pickle
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from penstock import Topology, extras
from penstock.config import Config
from penstock.errors import BrokerError, ConfigError
from penstock.handlers import ErrorHandlers
from penstock.kafka import clients, reset
from penstock.kafka.clients import (
    consumer_settings,
    for_client,
    input_settings,
    open_consumer,
    producer_settings,
)
from penstock.kafka.opening import Librdkafka
from penstock.observation.redaction import Redactor
from penstock.runtime.application import RunningApplication
from penstock.runtime.hooks import Hooks
from penstock.settings import Secret
from penstock.tokens import GROUP, Token, TokenSource

LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}


class Issuer:
    """Issues numbered tokens by a clock moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.issued = 0
        self.failures: list[Exception] = []
        self.slept: list[float] = []

    def __call__(self) -> Token:
        if self.failures:
            raise self.failures.pop(0)
        self.issued += 1
        return Token(f"canary-{self.issued}", self.now + 100, {"logicalCluster": "lkc-1"})

    def source(self, patience_s: float = 60.0) -> TokenSource:
        return TokenSource(self, patience_s, self.slept.append, lambda: self.now)


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


def config(provider: Any, **kafka: str) -> Config:
    return Config.load(environment={}, bootstrap_servers="b:1", kafka={**LOGIN, **kafka}, token_provider=provider)


def provide() -> Token:
    return Token("canary-of-a-module", time.time() + 3_600)


class TestSource:
    def test_clients_share_a_token_until_half_of_its_time_is_over(self, issuer: Issuer) -> None:
        source = issuer.source()
        source.ensure()
        assert source(None) == ("canary-1", 1_000_100.0, "", {"logicalCluster": "lkc-1"})
        issuer.now += 49
        assert source("")[0] == "canary-1"
        issuer.now += 1
        assert source("")[:2] == ("canary-2", 1_000_150.0)

    def test_a_provider_is_asked_by_one_thread_at_a_time(self) -> None:
        def slow() -> Token:
            at_once.append(busy.acquire(blocking=False))
            time.sleep(0.05)
            busy.release()
            return provide()

        busy, at_once = threading.Lock(), list[bool]()
        source, asked = TokenSource(slow, 1.0), list[str]()
        threads = [threading.Thread(target=lambda: asked.append(source(None)[0])) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (asked, at_once) == (["canary-of-a-module"] * 4, [True])

    def test_a_failure_is_reported_and_the_old_token_used_while_it_is_valid(
        self, issuer: Issuer, caplog: pytest.LogCaptureFixture
    ) -> None:
        source = issuer.source()
        assert (source(None)[0], source.problem()) == ("canary-1", None)
        issuer.now += 60
        issuer.failures = [OSError("no route to the issuer")]
        assert source(None)[0] == "canary-1"
        assert source.problem() == "token_provider Issuer failed with OSError: see the log"
        assert "no route to the issuer" in caplog.text
        assert (source(None)[0], source.problem()) == ("canary-2", None)
        issuer.now += 91
        issuer.failures = [OSError("gone"), OSError("gone")]
        with pytest.raises(BrokerError, match="There is no token for the brokers: token_provider Issuer failed with OSError"):
            source(None)

    def test_a_client_waits_for_a_provider_that_recovers(self, issuer: Issuer) -> None:
        source = issuer.source()
        issuer.failures = [OSError("later")] * 6
        source.ensure()
        assert issuer.slept == [0.5, 1.0, 2.0, 5.0, 5.0, 5.0]
        assert source.current == "canary-1"

    def test_it_does_not_wait_for_ever(self, issuer: Issuer) -> None:
        issuer.failures = [OSError("never")] * 9
        with pytest.raises(BrokerError):
            issuer.source(patience_s=0.1).ensure()
        assert issuer.slept == []

    @pytest.mark.parametrize(
        ("returned", "why"),
        [
            (None, "it returned NoneType, not penstock.tokens.Token"),
            (("canary", 2e9), "it returned tuple"),
            (Token("canary", 1_000_005.0), "expires within 10 s"),
            (Token("canary", 1_790_000_000_000.0), "are these milliseconds"),
        ],
    )
    def test_what_a_client_could_not_use_is_a_failure(
        self, issuer: Issuer, returned: Any, why: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        source = TokenSource(lambda: returned, 0.1, clock=lambda: issuer.now)
        with pytest.raises(BrokerError):
            source(None)
        assert why in caplog.text
        assert "canary" not in caplog.text

    def test_it_is_pickled_without_its_token(self) -> None:
        source = TokenSource(provide, 5.0)
        source.ensure()
        data = pickle.dumps(source)
        assert b"canary-of" not in data
        again = pickle.loads(data)
        assert (again.current, again(None)[0]) == (None, "canary-of-a-module")


class TestToken:
    def test_it_hides_its_value(self) -> None:
        token = Token("canary", 5)
        assert isinstance(token.value, Secret)
        assert "canary" not in f"{token} {token!r} {token.value}"

    @pytest.mark.parametrize("value", ["", "two words", "nul\0", "ünïcode", b"bytes", None])
    def test_a_value_that_no_client_accepts_is_refused_and_not_shown(self, value: Any) -> None:
        with pytest.raises(ValueError, match="printable ASCII"):
            Token(value, 5)

    @pytest.mark.parametrize("extensions", [{"a b": "x"}, {"a": 1}, {"a": "\0"}])
    def test_extensions_are_texts(self, extensions: Any) -> None:
        with pytest.raises(ValueError, match="extension"):
            Token("t", 5, extensions)

    def test_the_time_is_a_number(self) -> None:
        when: Any = "soon"
        with pytest.raises(TypeError, match="expires_at must be a number"):
            Token("t", when)


class TestConfiguration:
    @pytest.fixture
    def offer(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        def offer(**offered: Any) -> None:
            module = ModuleType("some_tokens")
            vars(module).update(offered)
            monkeypatch.setitem(sys.modules, "some_tokens", module)
            points = EntryPoints(EntryPoint(name, f"some_tokens:{name}", GROUP) for name in offered)
            monkeypatch.setattr(extras, "entry_points", lambda group: points if group == GROUP else ())

        return offer

    def test_a_name_is_an_entry_point_and_is_looked_up_in_each_process(self, offer: Callable[..., None]) -> None:
        offer(msk=provide)
        tokens = config("msk").tokens
        assert tokens is not None
        data = pickle.dumps(tokens)
        offer(msk=lambda: Token("canary-of-the-other-process", time.time() + 99))
        assert pickle.loads(data)(None)[0] == "canary-of-the-other-process"
        assert tokens(None)[0] == "canary-of-a-module"

    def test_it_may_come_from_the_environment(self, offer: Callable[..., None]) -> None:
        offer(msk=provide)
        found = Config.load(environment={"PENSTOCK_TOKEN_PROVIDER": "msk"}, bootstrap_servers="b:1", kafka=LOGIN)
        assert repr(found.tokens) == "TokenSource('msk')"

    def test_changed_settings_have_the_same_source(self) -> None:
        found = config(provide)
        assert replace(found, shards=4).tokens is found.tokens  # whose token is not logged, and whose problem is shown
        assert replace(found, broker_timeout_ms=5_000).tokens is not found.tokens

    def test_an_unknown_name_is_refused(self, offer: Callable[..., None]) -> None:
        offer(msk=provide, other=5)
        with pytest.raises(ConfigError, match=r"token_provider: .* 'mks' of group .*\. Installed: msk, other"):
            config("mks")
        with pytest.raises(ConfigError, match="token_provider: expected a function or the name of an entry point, not int"):
            config("other")

    def test_without_the_mechanism_nobody_would_ask(self) -> None:
        with pytest.raises(ConfigError, match=r"token_provider: .*\"sasl.mechanism\" of kafka is \"OAUTHBEARER\", not 'PLAIN'"):
            config(provide, **{"sasl.mechanism": "PLAIN"})
        with pytest.raises(ConfigError, match="the client gets tokens itself"):
            config(provide, **{"sasl.oauthbearer.method": "oidc"})
        assert Config.load(environment={}, bootstrap_servers="b:1").tokens is None


class TestClients:
    def test_every_client_asks_the_same_source(self) -> None:
        found = config(provide)
        of_clients = [producer_settings(found), consumer_settings(found, "app"), input_settings(found, "app")]
        assert all(settings["oauth_cb"] is found.tokens for settings in of_clients)
        assert "oauth_cb" not in producer_settings(Config.load(environment={}, bootstrap_servers="b:1"))

    def test_settings_of_tasks_can_be_sent_to_them(self) -> None:
        settings = cloudpickle.loads(cloudpickle.dumps(consumer_settings(config(functools.partial(provide)), "app")))
        assert settings["oauth_cb"](None)[0] == "canary-of-a-module"

    def test_a_provider_that_fails_is_named_before_a_client_is_created(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Librdkafka, "consumer", lambda *_: pytest.fail("it would wait for ten seconds"))

        def fails() -> Token:
            raise OSError("gone")

        found = Config(kafka={"bootstrap.servers": "b:1", **LOGIN}, token_provider=fails, broker_timeout_ms=1_000)
        with pytest.raises(BrokerError, match=r"token_provider .*fails failed with OSError"):
            open_consumer(consumer_settings(found, "app"))

    def test_a_client_that_would_wait_in_vain_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(clients, "version", lambda name: "2.9.1")
        with pytest.raises(ConfigError, match=r"token_provider: needs confluent-kafka 2\.13 or later, not 2\.9\.1"):
            open_consumer(consumer_settings(config(provide), "app"))

    def test_librdkafka_accepts_the_token_and_never_logs_it(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        settings = consumer_settings(config(provide, **{"bootstrap.servers": "127.0.0.1:1", "debug": "all"}), "app")
        consumer = open_consumer(settings)  # raises unless the client has a token
        consumer.poll(0.2)
        consumer.close()
        assert "canary" not in caplog.text

    def test_the_fence_of_a_reset_logs_in_with_the_secret_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[dict[str, Any]] = []
        monkeypatch.setattr(Librdkafka, "producer", lambda _, settings: seen.append(settings))
        reset.Fence(Config.load(environment={}, bootstrap_servers="b:1", kafka={"sasl.password": "s3cr3t"}), "app", "topic")
        assert (type(seen[0]["sasl.password"]), seen[0]["sasl.password"]) == (str, "s3cr3t")
        assert for_client({"sasl.password": Secret("s3cr3t")}) == {"sasl.password": "s3cr3t"}


def test_the_current_token_is_hidden_in_logs() -> None:
    found = config(provide)
    redact = Redactor.of(found)
    assert redact("said canary-of-a-module") == "said canary-of-a-module"
    assert found.tokens is not None
    found.tokens.ensure()
    assert redact("said canary-of-a-module") == "said [hidden]"


def test_a_failing_provider_is_shown_in_the_health_of_an_application() -> None:
    def fails() -> Token:
        raise OSError("gone")

    found = config(fails)
    running = RunningApplication("app", Topology(), ErrorHandlers(), found, Hooks([]))
    check = running.health.indicators["token provider"]
    assert check() is None
    assert found.tokens is not None
    with pytest.raises(BrokerError):
        found.tokens(None)
    assert "failed with OSError: see the log" in str(check())
