"""`Registry` and its requests: each question once, refusals that are remembered, and what happens if nobody answers."""

from __future__ import annotations

import base64
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.errors import ConfigError, RegistryError, SerializationError
from penstock.serdes import Avro, Serde
from penstock.serdes.registry.registry import REFUSED_FOR_S, Registry, RemoteSource
from penstock.serdes.registry.requests import Requests
from penstock.serdes.registry.schemas import Schema, SchemaKind
from penstock.serdes.registry.serde import connected
from penstock.serdes.registry.settings import RegistrySettings
from tests.unit.serdes.registry.stub import Stub

INT = Schema(SchemaKind.AVRO, '"int"')
FRAMED = b"\x00\x00\x00\x00\x01\x02"


def settings(stub: Stub, **more: str) -> RegistrySettings:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return RegistrySettings.of({"url": stub.url, "retry.timeout.ms": "300", "request.timeout.ms": "100", **named})


def remote(stub: Stub, **more: str) -> Registry:
    return Registry(RemoteSource(settings(stub, **more)))


def of_topic(registry: Registry, serde: Serde[Any] | None = None) -> Serde[Any]:
    return connected(serde or Avro(schema='"int"'), registry).for_topic("numbers", is_key=False)


class TestQuestions:
    def test_each_is_asked_once_per_process(self, stub: Stub) -> None:
        registry = remote(stub)
        for _ in range(3):
            serde = of_topic(registry)
            assert serde.deserialize(serde.serialize(1)) == 1
        assert stub.requests == {"POST /subjects/numbers-value/versions": 1, "GET /schemas/ids/1": 1}

    def test_threads_do_not_ask_twice(self, stub: Stub) -> None:
        stub.schemas.register("numbers-value", INT)
        registry = remote(stub)
        threads = [threading.Thread(target=registry.schema, args=(1,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stub.requests == {"GET /schemas/ids/1": 1}

    def test_the_settings_decide_unless_the_serde_does(self, stub: Stub) -> None:
        latest = of_topic(remote(stub, use_latest_version="true"), Avro())
        with pytest.raises(SerializationError, match="has no latest schema of subject 'numbers-value': unknown subject"):
            latest.serialize(1)
        registry = remote(stub, auto_register_schemas="false")
        with pytest.raises(SerializationError, match="does not have the schema"):
            of_topic(registry).serialize(1)
        assert of_topic(registry, Avro(schema='"int"', register=True)).serialize(1) == FRAMED

    def test_normalizing_is_asked_for(self, stub: Stub) -> None:
        of_topic(remote(stub, normalize_schemas="true")).serialize(1)
        assert list(stub.requests) == ["POST /subjects/numbers-value/versions?normalize=true"]

    def test_a_subject_is_quoted(self, stub: Stub) -> None:
        assert remote(stub).register("a/b c", INT) == 1
        assert list(stub.requests) == ["POST /subjects/a%2Fb%20c/versions"]

    def test_what_is_learnt_is_not_pickled_but_the_settings_are(self, stub: Stub) -> None:
        registry = remote(stub)
        registry.register("numbers-value", INT)
        copied = pickle.loads(pickle.dumps(registry))
        assert copied.settings == registry.settings
        assert copied.register("numbers-value", INT) == 1
        assert stub.requests.total() == 2


class TestRefusals:
    def test_an_unknown_id_names_the_id_and_the_registry(self, stub: Stub) -> None:
        with pytest.raises(
            SerializationError, match=rf"^The schema registry at {stub.url} has no schema with id 1: unknown schema"
        ):
            of_topic(remote(stub)).deserialize(FRAMED)

    def test_an_incompatible_schema_names_the_subject_and_the_cure(self, stub: Stub) -> None:
        stub.incompatible = True
        with pytest.raises(
            SerializationError, match=r"refuses the schema for subject 'numbers-value': .*incompatible.*Change it"
        ):
            of_topic(remote(stub)).serialize(1)

    def test_they_are_remembered_for_a_while(self, stub: Stub) -> None:
        now = 0.0
        registry = Registry(RemoteSource(settings(stub)), clock=lambda: now)
        for _ in range(5):
            with pytest.raises(SerializationError):
                registry.schema(1)
        assert stub.requests.total() == 1
        stub.schemas.register("numbers-value", INT)
        now = REFUSED_FOR_S
        assert registry.schema(1) == INT


class TestNoAnswer:
    def test_a_registry_that_recovers_is_waited_for(self, stub: Stub) -> None:
        stub.failing = 2
        assert of_topic(remote(stub, retry_timeout_ms="5000")).serialize(1) == FRAMED
        assert stub.requests.total() == 3

    def test_a_slow_answer_is_given_up(self, stub: Stub) -> None:
        stub.silent = 1
        assert of_topic(remote(stub, retry_timeout_ms="5000")).serialize(1) == FRAMED

    @pytest.mark.parametrize("ask", [lambda serde: serde.serialize(1), lambda serde: serde.deserialize(FRAMED)])
    def test_one_that_stays_away_is_no_error_of_the_record(self, stub: Stub, ask: Callable[[Serde[Any]], object]) -> None:
        stub.failing = 1_000
        with pytest.raises(
            RegistryError, match=rf"at {stub.url} has not answered .* for 0.3 s: .*status 503.*start again"
        ) as caught:
            ask(of_topic(remote(stub)))
        assert not isinstance(caught.value, ValueError)

    def test_it_is_asked_again_for_the_next_record(self, stub: Stub) -> None:
        stub.failing = 1_000
        serde = of_topic(remote(stub))
        with pytest.raises(RegistryError):
            serde.serialize(1)
        stub.failing = 0
        assert serde.serialize(1) == FRAMED

    def test_nobody_listens(self) -> None:
        with Stub() as gone:
            pass
        with pytest.raises(RegistryError, match="Connection refused"):
            remote(gone).schema(1)

    def test_the_next_address_is_asked(self, stub: Stub) -> None:
        with Stub() as gone:
            pass
        both = RegistrySettings.of({"url": f"{gone.url}, {stub.url}/"})
        assert Registry(RemoteSource(both)).register("numbers-value", INT) == 1

    def test_waits_grow_and_end(self, stub: Stub) -> None:
        stub.failing = 1_000
        waits: list[float] = []
        longer = RegistrySettings.of({"url": stub.url, "retry.timeout.ms": "60000"})
        requests = Requests(longer, sleep=waits.append, clock=lambda: sum(waits))
        with pytest.raises(RegistryError):
            requests.get("/schemas/ids/1")
        assert 50 <= sum(waits) <= 60
        assert max(waits) <= 5

    def test_access_is_denied(self, stub: Stub) -> None:
        stub.denying = True
        with pytest.raises(RegistryError, match=r"denies GET /schemas/ids/1 \(status 401.*Check 'basic.auth.user.info'"):
            remote(stub, basic_auth_user_info="me:s3cr3t").schema(1)

    def test_something_else_answers(self, stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
        def answer(path: str, body: Any) -> tuple[int, Any]:
            return 404, {"detail": "not here"}

        monkeypatch.setattr(stub, "_answer", answer)
        with pytest.raises(RegistryError, match=r"does not answer as a schema registry does .*/apis/ccompat/v7"):
            remote(stub).schema(1)


class TestCredentials:
    def test_basic_authentication(self, stub: Stub) -> None:
        remote(stub, basic_auth_user_info="me:s3c:r3t").register("numbers-value", INT)
        assert stub.authorizations == {f"Basic {base64.b64encode(b'me:s3c:r3t').decode()}"}

    def test_a_bearer_token(self, stub: Stub) -> None:
        remote(stub, bearer_auth_token="s3cr3t").register("numbers-value", INT)
        assert stub.authorizations == {"Bearer s3cr3t"}

    def test_they_are_in_no_representation_and_in_no_message(self, stub: Stub) -> None:
        registry = remote(stub, basic_auth_user_info="me:s3cr3t")
        stub.failing = 1_000
        with pytest.raises(RegistryError) as caught:
            registry.schema(1)
        shown = f"{registry!r} {registry.settings!r} {caught.value!r} {of_topic(registry)!r}"
        assert "s3cr3t" not in shown


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({}, '"url" is missing'),
            ({"url": "registry:8081"}, "must be an http:// or https:// URL"),
            ({"url": "http://me:s3cr3t@registry"}, "must not contain a password. Set 'basic.auth.user.info'"),
            ({"url": "http://r", "timeout": "1"}, "unknown setting 'timeout'"),
            ({"url": "http://r", "ssl.key.location": "k"}, "needs 'ssl.certificate.location'"),
            ({"url": "http://r", "basic.auth.user.info": "me"}, "must be 'name:password'"),
            ({"url": "http://r", "basic.auth.user.info": "a:b", "bearer.auth.token": "t"}, "not both"),
            ({"url": "http://r", "retry.timeout.ms": "forever"}, "between 1 and 240000"),
            ({"url": "http://r", "retry.timeout.ms": "240001"}, "between 1 and 240000"),
            ({"url": "http://r", "auto.register.schemas": "yes"}, "must be true or false"),
        ],
    )
    def test_what_cannot_work_is_refused(self, given: dict[str, str], message: str) -> None:
        with pytest.raises(ConfigError, match=message) as caught:
            RegistrySettings.of(given)
        assert "s3cr3t" not in str(caught.value)
