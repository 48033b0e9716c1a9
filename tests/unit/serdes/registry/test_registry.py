"""`Registry` and its requests: each question once, refusals that are remembered, and what happens if nobody answers."""

from __future__ import annotations

import base64
import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.errors import ConfigError, RegistryError, SerializationError
from penstock.serdes import Avro, Serde
from penstock.serdes.registry.memory import MemorySource
from penstock.serdes.registry.registry import MOST_REFUSED, REFUSED_FOR_S, Registry, RemoteSource
from penstock.serdes.registry.requests import Requests
from penstock.serdes.registry.schemas import Registered, Schema, SchemaKind
from penstock.serdes.registry.serde import connected
from penstock.serdes.registry.settings import RegistrySettings
from tests.unit.serdes.registry.stub import Stub

OAUTH = {
    "bearer.auth.issuer.endpoint.url": "https://o/token",
    "bearer.auth.client.id": "me",
    "bearer.auth.client.secret": "s3cr3t",
}
INT = Schema(SchemaKind.AVRO, '"int"')
FRAMED = b"\x00\x00\x00\x00\x01\x02"


def settings(stub: Stub, **more: str) -> RegistrySettings:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return RegistrySettings.of({"url": stub.url, "retry.timeout.ms": "300", "request.timeout.ms": "400", **named})


def remote(stub: Stub, **more: str) -> Registry:
    return Registry(RemoteSource(settings(stub, **more)))


def of_topic(registry: Registry, serde: Serde[Any] | None = None) -> Serde[Any]:
    return connected(serde or Avro(schema='"int"'), registry).for_topic("numbers", is_key=False)


class Slow(MemorySource):
    """Waits before it says what the latest schema is."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.count = 0

    def by_version(self, subject: str, version: int | None) -> Registered:
        self.count += 1
        self.asked.set()
        assert self.go_on.wait(10)
        return super().by_version(subject, version)


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

    def test_only_so_many_are_remembered_and_none_longer_than_needed(self) -> None:
        now = 0.0
        registry = Registry(MemorySource(), clock=lambda: now)
        for number in range(MOST_REFUSED + 10):
            with pytest.raises(SerializationError):
                registry.schema(number)
        assert len(registry._refused) == MOST_REFUSED
        now = REFUSED_FOR_S
        with pytest.raises(SerializationError):
            registry.schema(1)
        assert len(registry._refused) == 1

    def test_an_error_does_not_grow_with_the_records_that_raise_it(self) -> None:
        registry = Registry(MemorySource())
        depths = []
        for _ in range(4):
            with pytest.raises(SerializationError) as caught:
                registry.schema(1)
            depths.append(len(caught.traceback))
        assert depths[1] == depths[3]


class TestThreads:
    def test_a_question_does_not_wait_for_another_one(self) -> None:
        source = Slow()
        source.register("numbers-value", INT)
        registry = Registry(source)
        slow = threading.Thread(target=registry.latest, args=("numbers-value",))
        slow.start()
        assert source.asked.wait(10)
        assert registry.schema(1) == INT
        assert registry.memo("parsed", lambda: 7) == 7
        source.go_on.set()
        slow.join()

    def test_those_with_the_same_question_get_the_same_answer(self) -> None:
        source = Slow()
        registry = Registry(source)
        failures: list[Exception] = []

        def ask() -> None:
            try:
                registry.latest("numbers-value")
            except SerializationError as error:
                failures.append(error)

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert source.asked.wait(10)
        source.go_on.set()
        for thread in threads:
            thread.join()
        assert len(failures) == 4
        assert source.count == 1

    def test_nobody_waits_for_ever(self) -> None:
        """The thread that asks is gone in a forked process."""
        source = Slow()
        source.settings = RegistrySettings(("memory",), request_timeout_s=0.01, retry_timeout_s=0.01)
        registry = Registry(source)

        def ask() -> None:
            with pytest.raises(SerializationError):
                registry.latest("numbers-value")

        asking = threading.Thread(target=ask)
        asking.start()
        assert source.asked.wait(10)
        with pytest.raises(RegistryError, match="has not answered for"):
            registry.latest("numbers-value")
        source.go_on.set()
        asking.join()


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


class TestOAuth:
    @staticmethod
    def requests(stub: Stub, clock: Callable[[], float] = time.monotonic, **more: str) -> Requests:
        options = {name.replace("_", "."): value for name, value in more.items()}
        given = RegistrySettings.of({"url": stub.url, **OAUTH, "bearer.auth.client.secret": "s3c:r3t", **options})
        assert given.oauth is not None
        here = replace(given, oauth=replace(given.oauth, url=f"{stub.url}/token"))  # settings accept https:// only
        return Requests(here, sleep=lambda wait: None, clock=clock)

    def test_a_token_is_asked_for_and_kept(self, stub: Stub) -> None:
        stub.tokens = [(200, {"access_token": "t-1", "expires_in": 3600})]
        requests = self.requests(stub, bearer_auth_scope="schemas", bearer_auth_logical_cluster="lsrc-1")
        for _ in range(2):
            requests.get("/schemas/types")
        assert stub.forms == [{"grant_type": "client_credentials", "scope": "schemas"}]
        assert stub.authorizations == {f"Basic {base64.b64encode(b'me:s3c%3Ar3t').decode()}", "Bearer t-1"}
        assert stub.clusters == {None, "lsrc-1"}

    def test_it_is_renewed_before_it_ends(self, stub: Stub) -> None:
        stub.tokens = [(200, {"access_token": f"t-{number}", "expires_in": 100}) for number in range(2)]
        now = 0.0
        requests = self.requests(stub, clock=lambda: now)
        requests.get("/schemas/types")
        now = 69.0
        requests.get("/schemas/types")
        assert len(stub.forms) == 1
        now = 70.0
        requests.get("/schemas/types")
        assert len(stub.forms) == 2

    def test_one_that_the_registry_no_longer_accepts_is_replaced_once(self, stub: Stub) -> None:
        stub.denying = True
        stub.tokens = [(200, {"access_token": f"t-{number}"}) for number in range(2)]
        with pytest.raises(RegistryError, match=r"denies GET /schemas/types .*Check 'bearer.auth.client.id'"):
            self.requests(stub).get("/schemas/types")
        assert stub.requests == {"POST /token": 2, "GET /schemas/types": 2}

    def test_a_server_that_cannot_answer_now_is_asked_again(self, stub: Stub) -> None:
        stub.tokens = [(503, {}), (200, {"access_token": "t-1"})]
        assert self.requests(stub).get("/schemas/types") == ["AVRO", "JSON", "PROTOBUF"]

    @pytest.mark.parametrize(
        ("status", "content", "message"),
        [
            (401, {"error": "invalid_client"}, r"gives no token \(status 401: .*invalid_client.*Check 'bearer.auth.client.id'"),
            (200, {"token": "t-1"}, "does not answer as an OAuth server does"),
            (200, {"access_token": "a\r\nX: 1"}, "does not answer as an OAuth server does"),
            (200, [], "does not answer as an OAuth server does"),
        ],
    )
    def test_a_refusal_ends_the_application(self, stub: Stub, status: int, content: Any, message: str) -> None:
        stub.tokens = [(status, content)]
        requests = self.requests(stub)
        with pytest.raises(RegistryError, match=message) as caught:
            requests.get("/schemas/types")
        assert "s3c" not in f"{caught.value!r} {requests.settings!r}"


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
            ({"url": "http://r", "bearer.auth.token": "t", "bearer.auth.issuer.endpoint.url": "http://o"}, "not both"),
            (
                {"url": "http://r", "bearer.auth.client.id": "me"},
                "'bearer.auth.client.id' needs 'bearer.auth.issuer.endpoint.url'",
            ),
            ({"url": "http://r", **OAUTH, "bearer.auth.client.secret": ""}, "needs 'bearer.auth.client.secret'"),
            ({"url": "http://r", **OAUTH, "bearer.auth.issuer.endpoint.url": "http://o"}, "https:// URL without a password"),
            ({"url": "http://r", **OAUTH, "bearer.auth.logical.cluster": "a\nb"}, "must be plain text"),
            ({"url": "http://r", **OAUTH, "bearer.auth.credentials.source": "STATIC_TOKEN"}, "must be 'OAUTHBEARER' with"),
            ({"url": "http://r", "bearer.auth.credentials.source": "OAUTHBEARER"}, "must be 'OAUTHBEARER' with"),
            ({"url": "http://r", "retry.timeout.ms": "forever"}, "between 1 and 240000"),
            ({"url": "http://r", "retry.timeout.ms": "240001"}, "between 1 and 240000"),
            ({"url": "http://r", "auto.register.schemas": "yes"}, "must be true or false"),
        ],
    )
    def test_what_cannot_work_is_refused(self, given: dict[str, str], message: str) -> None:
        with pytest.raises(ConfigError, match=message) as caught:
            RegistrySettings.of(given)
        assert "s3cr3t" not in str(caught.value)
