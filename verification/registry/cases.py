"""What serdes must do with a real registry: each case is a function that raises if it does not hold."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import cloudpickle
import msgspec
from google.protobuf import struct_pb2, type_pb2
from pydantic import BaseModel

from penstock.errors import RegistryError, SerializationError
from penstock.serdes import Avro, JsonSchema, Protobuf, Reference, Serde
from penstock.serdes.registry.registry import Registry, RemoteSource
from penstock.serdes.registry.schemas import Registered, Schema, SchemaKind
from penstock.serdes.registry.serde import connected
from penstock.serdes.registry.settings import RegistrySettings
from verification.harness.processes import ROOT
from verification.registry.apicurio import Apicurio

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "com.acme",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "long"}],
}
VALUE: dict[str, Any] = {"id": "o-1", "amount": 21}
WIDER: dict[str, Any] = {**ORDER, "fields": [*ORDER["fields"], {"name": "currency", "type": "string", "default": "CHF"}]}


@dataclass
class AsDataclass:
    """A dataclass."""

    id: str
    amount: int


class AsStruct(msgspec.Struct):
    """A Struct."""

    id: str
    amount: int


class AsModel(BaseModel):
    """A Pydantic model."""

    id: str
    amount: int


class CountingSource(RemoteSource):
    """Counts the questions to the registry."""

    def __init__(self, settings: RegistrySettings) -> None:
        super().__init__(settings)
        self.asked: Counter[str] = Counter()

    def by_id(self, schema_id: int) -> Schema:
        """See `Source`."""
        self.asked["id"] += 1
        return super().by_id(schema_id)

    def lookup(self, subject: str, schema: Schema) -> Registered:
        """See `Source`."""
        self.asked["lookup"] += 1
        return super().lookup(subject, schema)

    def register(self, subject: str, schema: Schema) -> int:
        """See `Source`."""
        self.asked["register"] += 1
        return super().register(subject, schema)


class Cases:
    """The cases, with a registry of their own each: nothing is remembered from one to the next."""

    def __init__(self, server: Apicurio, authority: Path) -> None:
        self._server = server
        self._authority = authority

    def all(self) -> dict[str, Callable[[], None]]:
        """The cases by name."""
        return {name: getattr(self, name) for name in dir(self) if not name.startswith("_") and name != "all"}

    def _registry(self, url: str = "", **settings: str) -> Registry:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        known = {"url": url or self._server.url, "request.timeout.ms": "20000"}
        return Registry(RemoteSource(RegistrySettings.of({**known, **named})))

    def _of(self, serde: Serde[Any], topic: str, **settings: str) -> Serde[Any]:
        return connected(serde, self._registry(**settings)).for_topic(topic, is_key=False)

    def avro_values_of_every_kind_have_the_same_bytes(self) -> None:
        written = self._of(Avro(schema=ORDER), "kinds").serialize(VALUE)
        for kind in (AsDataclass, AsStruct, AsModel):
            serde = self._of(Avro(kind, schema=ORDER), "kinds")
            assert serde.serialize(kind(**VALUE)) == written
            assert serde.deserialize(written) == kind(**VALUE)
        assert self._of(Avro(), "kinds").deserialize(written) == VALUE

    def keys_have_their_own_subject(self) -> None:
        connected(Avro(schema=ORDER), self._registry()).for_topic("keyed", is_key=True).serialize(VALUE)
        assert self._subjects("keyed") == {"keyed-key"}

    def subjects_follow_their_strategy(self) -> None:
        for strategy in ("topic", "record", "topic_record"):
            schema = {**ORDER, "name": "Strategic"}
            self._of(Avro(schema=schema, subject=strategy), "strategic").serialize(VALUE)
        expected = {"strategic-value", "com.acme.Strategic", "strategic-com.acme.Strategic"}
        assert self._subjects("strategic") | self._subjects("com.acme.Strategic") == expected

    def a_schema_refers_to_others(self) -> None:
        address = {"type": "record", "name": "com.acme.Address", "fields": [{"name": "street", "type": "string"}]}
        registry = self._registry()
        registry.register("address", Schema(SchemaKind.AVRO, json.dumps(address)))
        shop = {"type": "record", "name": "Shop", "fields": [{"name": "at", "type": "com.acme.Address"}]}
        serde = self._of(Avro(schema=shop, references=[Reference("com.acme.Address", "address", 1)]), "shops")
        written = serde.serialize({"at": {"street": "Main"}})
        assert self._of(Avro(), "shops").deserialize(written) == {"at": {"street": "Main"}}

    def values_are_read_into_the_own_schema(self) -> None:
        written = self._of(Avro(schema=ORDER), "evolving").serialize(VALUE)
        wider = self._of(Avro(schema=WIDER), "evolving")
        assert wider.deserialize(written) == {**VALUE, "currency": "CHF"}
        later = wider.serialize({**VALUE, "currency": "EUR"})
        assert self._of(Avro(schema=ORDER), "evolving").deserialize(later) == VALUE

    def the_latest_schema_is_used_if_wanted(self) -> None:
        self._of(Avro(schema=ORDER), "latest").serialize(VALUE)
        self._of(Avro(schema=WIDER), "latest").serialize({**VALUE, "currency": "EUR"})
        for serde in (self._of(Avro(use_latest=True), "latest"), self._of(Avro(), "latest", use_latest_version="true")):
            assert self._of(Avro(), "latest").deserialize(serde.serialize(VALUE)) == {**VALUE, "currency": "CHF"}

    def nothing_is_registered_if_not_wanted(self) -> None:
        for serde, value in ((Avro(schema=ORDER, register=False), VALUE), (Protobuf(struct_pb2.Struct, register=False), None)):
            write = self._of(serde, "unregistered").serialize
            _raises(SerializationError, "subject 'unregistered-value'", partial(write, value))
        assert self._subjects("unregistered") == set()
        written = self._of(Avro(schema=ORDER), "registered").serialize(VALUE)
        assert self._of(Avro(schema=ORDER), "registered", auto_register_schemas="false").serialize(VALUE) == written

    def an_incompatible_schema_is_refused(self) -> None:
        self._of(Avro(schema=ORDER), "guarded").serialize(VALUE)
        self._call("PUT", "/config/guarded-value", {"compatibility": "BACKWARD"})
        other = {**ORDER, "fields": [{"name": "required", "type": "string"}]}
        serde = self._of(Avro(schema=other), "guarded")
        _raises(SerializationError, "refuses the schema for subject 'guarded-value'", lambda: serde.serialize({"required": "a"}))

    def an_unknown_id_is_refused(self) -> None:
        serde = self._of(Avro(schema=ORDER), "unknown")
        _raises(
            SerializationError, "has no schema with id 999999", lambda: serde.deserialize(b"\0" + (999_999).to_bytes(4, "big"))
        )

    def bytes_in_another_format_are_refused(self) -> None:
        serde = self._of(Avro(schema=ORDER), "unframed")
        _raises(SerializationError, "begin with 7b, not 00", lambda: serde.deserialize(b'{"id":"o-1"}'))

    def json_is_checked_against_its_schema(self) -> None:
        schema = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
        serde = self._of(JsonSchema(schema=schema), "json")
        written = serde.serialize({"amount": 2})
        assert written[5:] == b'{"amount":2}'
        reader = self._of(JsonSchema(), "json")
        assert reader.deserialize(written) == {"amount": 2}
        _raises(SerializationError, "cannot write", lambda: serde.serialize({}))
        _raises(SerializationError, "cannot read", lambda: reader.deserialize(written[:5] + b"{}"))
        typed = self._of(JsonSchema(AsDataclass), "typed-json")
        assert typed.deserialize(typed.serialize(AsDataclass(**VALUE))) == AsDataclass(**VALUE)

    def protobuf_registers_its_file(self) -> None:
        serde = self._of(Protobuf(type_pb2.Field), "fields")
        message = type_pb2.Field(name="a", number=3)
        written = serde.serialize(message)
        assert written[5:7] == b"\x02\x02", "the second message of its file"
        assert self._of(Protobuf(type_pb2.Field), "fields").deserialize(written) == message
        assert self._subjects("fields") == {"fields-value"}

    def each_question_is_asked_once(self) -> None:
        source = CountingSource(RegistrySettings.of({"url": self._server.url, "request.timeout.ms": "20000"}))
        registry = Registry(source)
        for _ in range(100):
            serde = connected(Avro(schema=ORDER), registry).for_topic("once", is_key=False)
            assert serde.deserialize(serde.serialize(VALUE)) == VALUE
        assert source.asked == {"register": 1, "id": 1}

    def a_serde_travels_to_another_process(self) -> None:
        serde = self._of(Avro(schema=ORDER), "travelling")
        written = serde.serialize(VALUE)
        program = "import sys, cloudpickle; s, d = cloudpickle.load(sys.stdin.buffer); print(s.deserialize(d))"
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, input=cloudpickle.dumps((serde, written)), capture_output=True, cwd=ROOT, check=True)
        assert done.stdout.decode().strip() == str(VALUE)

    def a_registry_that_hangs_is_waited_for(self) -> None:
        serde = self._of(Avro(schema=ORDER), "hanging", request_timeout_ms="500", retry_timeout_ms="60000")
        self._server.pause()
        waker = threading.Timer(2, self._server.resume)
        waker.start()
        try:
            began = time.monotonic()
            assert serde.serialize(VALUE)[:1] == b"\0"
            assert time.monotonic() - began >= 2
        finally:
            waker.join()

    def one_that_stays_away_is_no_error_of_the_record(self) -> None:
        serde = self._of(Avro(schema=ORDER), "away", request_timeout_ms="300", retry_timeout_ms="1500")
        self._server.pause()
        try:
            _raises(RegistryError, "has not answered POST /subjects/away-value/versions", lambda: serde.serialize(VALUE))
        finally:
            self._server.resume()
        assert serde.serialize(VALUE)[:1] == b"\0"

    def tls_is_verified(self) -> None:
        url = self._server.tls_url
        trusting = self._registry(url, ssl_ca_location=str(self._authority))
        assert trusting.register("tls-value", _schema()) > 0
        _raises(RegistryError, "cannot be trusted", lambda: self._registry(url).register("tls-value", _schema()))

    def another_server_is_recognised(self) -> None:
        wrong = self._registry(self._server.url.removesuffix("/apis/ccompat/v7"))
        _raises(RegistryError, "does not answer as a schema registry does", lambda: wrong.schema(1))

    def _subjects(self, part: str) -> set[str]:
        return {subject for subject in self._call("GET", "/subjects") if part in subject}

    def _call(self, method: str, path: str, body: object = None) -> Any:
        """Call the registry's interface, past the client that is tested."""
        parts = urlsplit(self._server.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
        try:
            connection.request(method, parts.path + path, json.dumps(body), {"Content-Type": "application/json"})
            return json.load(connection.getresponse())
        finally:
            connection.close()


def _schema() -> Schema:
    schema = Avro(schema=ORDER).own_schema("")
    assert schema is not None
    return schema


def _raises(kind: type[Exception], text: str, do: Callable[[], object]) -> None:
    said = None
    try:
        do()
    except kind as error:
        said = str(error)
    assert said is not None, f"{kind.__name__} was not raised"
    assert text in said, f"{text!r} is not in {said!r}"
