"""`Avro`: the wire format, types, evolution, references, and the plain form within Penstock."""

from __future__ import annotations

import datetime as dt
import enum
import json
import pickle
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import cloudpickle
import msgspec
import pytest
from pydantic import BaseModel, Field

from penstock.errors import ConfigError, SerializationError, TopologyError
from penstock.records import Windowed
from penstock.serdes import Avro, Reference, Serde, TimeWindowed
from penstock.serdes.registry.avro_types import avro_schema
from penstock.serdes.registry.memory import MemorySource
from penstock.serdes.registry.registry import Registry
from penstock.serdes.registry.schemas import Schema, SchemaKind
from penstock.serdes.registry.serde import connected

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "com.acme",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": "long"}],
}
# a zero, the id, then by Avro's rules: the text's length (zigzag) and its bytes, the long 21 (zigzag)
FRAMED = b"\x00\x00\x00\x00\x01" + b"\x06o-1" + b"\x2a"


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(msgspec.Struct):
    street: str


@dataclass
class Order:
    id: str
    amount: int


@dataclass
class Everything:
    flag: bool
    number: int
    ratio: float
    text: str
    data: bytes
    at: dt.datetime
    day: dt.date
    time: dt.time
    token: uuid.UUID
    colour: Colour
    place: Place
    other_place: Place | None = None
    tags: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    note: str | None = "none"


EVERYTHING = Everything(
    True,
    -(2**40),
    0.5,
    "é",
    b"\x00\xff",
    dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.timezone.utc),
    dt.date(2026, 1, 2),
    dt.time(3, 4, 5, 678901),
    uuid.UUID(int=7),
    Colour.BLUE,
    Place("Main"),
    Place("Side"),
    ["a", "b"],
    {"x": 1},
    None,
)


class Model(BaseModel):
    identity: str = Field(alias="id")
    amount: int = 3


class Dictionary(TypedDict):
    id: str
    amount: int


def of_topic(serde: Serde[Any], registry: Registry, topic: str = "orders") -> Serde[Any]:
    return connected(serde, registry).for_topic(topic, is_key=False)


class TestWireFormat:
    def test_a_value_has_the_frame_and_avros_binary_form(self, registry: Registry) -> None:
        serde = of_topic(Avro(schema=ORDER), registry)
        assert serde.serialize({"id": "o-1", "amount": 21}) == FRAMED
        assert serde.deserialize(FRAMED) == {"id": "o-1", "amount": 21}

    def test_the_schema_is_registered_under_the_topics_subject(self, registry: Registry, source: MemorySource) -> None:
        of_topic(Avro(schema=ORDER), registry).serialize({"id": "o-1", "amount": 21})
        connected(Avro(schema=ORDER), registry).for_topic("orders", is_key=True).serialize({"id": "o-1", "amount": 21})
        text = json.dumps(ORDER, separators=(",", ":"))
        assert source.subjects == {"orders-value": [text], "orders-key": [text]}

    @pytest.mark.parametrize(("strategy", "subject"), [("record", "com.acme.Order"), ("topic_record", "orders-com.acme.Order")])
    def test_other_strategies(self, registry: Registry, source: MemorySource, strategy: str, subject: str) -> None:
        of_topic(Avro(schema=ORDER, subject=strategy), registry).serialize({"id": "o-1", "amount": 21})
        assert list(source.subjects) == [subject]

    def test_top_level_bytes_have_no_size_as_in_confluents_serializers(self, registry: Registry) -> None:
        serde = of_topic(Avro(schema='"bytes"'), registry)
        assert serde.serialize(b"ab") == b"\x00\x00\x00\x00\x01ab"
        assert serde.deserialize(b"\x00\x00\x00\x00\x01ab") == b"ab"

    def test_a_schema_may_come_from_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "order.avsc").write_text(json.dumps(ORDER), encoding="utf-8")
        assert Avro(schema=tmp_path / "order.avsc") == Avro(schema=ORDER) == Avro(schema=json.dumps(ORDER))

    def test_a_windowed_key_contains_the_frame(self, registry: Registry) -> None:
        serde = connected(TimeWindowed(Avro(schema=ORDER), 10), registry).for_topic("out", is_key=True)
        key = Windowed({"id": "o-1", "amount": 21}, 0, 10)
        assert serde.serialize(key) == FRAMED + bytes(8)
        assert serde.deserialize(FRAMED + bytes(8)) == key


class TestTypes:
    def test_every_type_comes_back(self, registry: Registry) -> None:
        serde = of_topic(Avro(Everything), registry)
        assert serde.deserialize(serde.serialize(EVERYTHING)) == EVERYTHING

    @pytest.mark.parametrize(
        ("kind", "value"),
        [(Order, Order("o-1", 21)), (Dictionary, {"id": "o-1", "amount": 21}), (Model, Model(id="o-1", amount=21))],
    )
    def test_classes_have_the_bytes_of_their_fields(self, registry: Registry, kind: Any, value: Any) -> None:
        serde = of_topic(Avro(kind), registry)
        assert serde.serialize(value) == FRAMED
        assert serde.deserialize(FRAMED) == value

    def test_a_class_may_have_a_schema_of_its_own(self, registry: Registry) -> None:
        serde = of_topic(Avro(Order, schema=ORDER), registry)
        assert serde.serialize(Order("o-1", 21)) == FRAMED
        assert repr(serde) == "Avro(Order)"

    def test_another_class_is_refused(self, registry: Registry) -> None:
        for kind in (Order, Model):
            with pytest.raises(SerializationError, match="cannot write a value of type Place: TypeError: expected"):
                of_topic(Avro(kind), registry).serialize(Place("a"))

    def test_the_schema_of_a_type(self) -> None:
        fields = {each["name"]: each for each in avro_schema(Everything)["fields"]}
        assert fields["colour"]["type"] == {"type": "enum", "name": "Colour", "symbols": ["red", "blue"]}
        assert fields["other_place"] == {"name": "other_place", "type": ["null", "Place"], "default": None}
        assert fields["note"] == {"name": "note", "type": ["string", "null"], "default": "none"}
        assert fields["tags"]["default"] == []

    def test_a_namespace_is_that_of_the_outermost_record(self) -> None:
        schema = avro_schema(Everything, "com.acme")
        assert schema["namespace"] == "com.acme"
        assert "namespace" not in schema["fields"][10]["type"]

    def test_a_type_that_contains_itself(self, registry: Registry) -> None:
        serde = of_topic(Avro(Node), registry)
        value = Node("a", [Node("b")])
        assert serde.deserialize(serde.serialize(value)) == value

    @pytest.mark.parametrize("kind", [complex, dict[int, str], tuple[int, str]])
    def test_a_type_without_a_single_form_is_refused_when_the_topology_is_built(self, kind: Any) -> None:
        with pytest.raises((TopologyError, TypeError), match=r"has no (single form in Avro|mapping)"):
            Avro(kind)

    def test_two_classes_in_a_union_are_refused(self) -> None:
        with pytest.raises(TopologyError, match="cannot tell the classes of a union apart"):
            Avro(Ambiguous)

    def test_a_serde_that_has_read_can_be_pickled(self, registry: Registry) -> None:
        serde = of_topic(Avro(Order), registry)
        serde.deserialize(serde.serialize(Order("o-1", 21)))
        copied: Serde[Any] = cloudpickle.loads(cloudpickle.dumps(serde))
        assert copied.serialize(Order("o-1", 21)) == FRAMED
        assert type(pickle.loads(pickle.dumps(serde))) is Avro


@dataclass
class Node:
    name: str
    children: list[Node] = field(default_factory=list)


class One(msgspec.Struct, tag=True):
    a: int


class Two(msgspec.Struct, tag=True):
    a: int


class Ambiguous(msgspec.Struct):
    either: One | Two


class TestSchemas:
    def test_what_another_schema_wrote_is_read_into_the_own_one(self, registry: Registry) -> None:
        @dataclass
        class Later:
            id: str
            currency: str = "CHF"

        written = of_topic(Avro(schema=ORDER), registry).serialize({"id": "o-1", "amount": 21})
        later = Avro(
            Later, schema={**ORDER, "fields": [ORDER["fields"][0], {"name": "currency", "type": "string", "default": "CHF"}]}
        )
        assert of_topic(later, registry).deserialize(written) == Later("o-1", "CHF")

    def test_without_a_schema_the_writers_is_taken(self, registry: Registry) -> None:
        written = of_topic(Avro(schema=ORDER), registry).serialize({"id": "o-1", "amount": 21})
        assert of_topic(Avro(), registry).deserialize(written) == {"id": "o-1", "amount": 21}

    def test_an_incompatible_schema_is_the_records_error(self, registry: Registry) -> None:
        written = of_topic(Avro(schema=ORDER), registry).serialize({"id": "o-1", "amount": 21})
        other = {**ORDER, "fields": [{"name": "missing", "type": "string"}]}
        with pytest.raises(SerializationError, match=r"Avro\(com.acme.Order\) cannot read 10 bytes .* schema 1: .*missing"):
            of_topic(Avro(schema=other), registry).deserialize(written)

    def test_the_latest_schema_of_the_subject_is_used_if_wanted(self, registry: Registry, source: MemorySource) -> None:
        source.register("orders-value", Schema(SchemaKind.AVRO, '"string"'))
        source.register("orders-value", Schema(SchemaKind.AVRO, json.dumps(ORDER)))
        serde = of_topic(Avro(use_latest=True), registry)
        assert serde.serialize({"id": "o-1", "amount": 21}) == b"\0\0\0\0\2" + FRAMED[5:]
        assert len(source.subjects["orders-value"]) == 2

    def test_nothing_is_registered_if_not_wanted(self, registry: Registry, source: MemorySource) -> None:
        serde = of_topic(Avro(schema=ORDER, register=False), registry)
        with pytest.raises(
            SerializationError, match=r"does not have the schema in subject 'orders-value': unknown schema. Register it"
        ):
            serde.serialize({"id": "o-1", "amount": 21})
        assert source.subjects == {}

    def test_a_registered_schema_is_found(self, registry: Registry, source: MemorySource) -> None:
        source.register("orders-value", Schema(SchemaKind.AVRO, Avro(schema=ORDER).text))
        assert of_topic(Avro(schema=ORDER, register=False), registry).serialize({"id": "o-1", "amount": 21}) == FRAMED

    def test_a_schema_may_refer_to_others(self, registry: Registry, source: MemorySource) -> None:
        street = {"type": "record", "name": "com.acme.Street", "fields": [{"name": "name", "type": "string"}]}
        source.register("street", Schema(SchemaKind.AVRO, json.dumps(street)))
        address = {"type": "record", "name": "com.acme.Address", "fields": [{"name": "street", "type": "com.acme.Street"}]}
        to_street = Reference("com.acme.Street", "street", 1)
        source.register("address", Schema(SchemaKind.AVRO, json.dumps(address), (to_street,)))
        shop = {"type": "record", "name": "Shop", "fields": [{"name": "at", "type": "com.acme.Address"}]}
        serde = of_topic(Avro(schema=shop, references=[Reference("com.acme.Address", "address", 1)]), registry)
        value = {"at": {"street": {"name": "Main"}}}
        written = serde.serialize(value)
        assert written[5:] == b"\x08Main"
        assert of_topic(Avro(), registry).deserialize(written) == value

    def test_a_schema_that_is_none_is_refused_when_the_topology_is_built(self) -> None:
        for wrong in ("{", {"type": "record"}, {"type": "unknown"}):
            with pytest.raises(TopologyError, match="schema"):
                Avro(schema=wrong)

    def test_writing_needs_a_schema(self, registry: Registry) -> None:
        with pytest.raises(SerializationError, match=r"cannot write the values of 'orders': it has no schema. Give it a type"):
            of_topic(Avro(), registry).serialize({"id": "o-1"})
        with pytest.raises(SerializationError, match="can only read topics"):
            Avro().serialize({"id": "o-1"})

    def test_a_schema_of_another_format_is_refused(self, registry: Registry, source: MemorySource) -> None:
        source.register("orders-value", Schema(SchemaKind.JSON, "{}"))
        with pytest.raises(SerializationError, match="cannot read values of schema 1, which is JSON"):
            of_topic(Avro(), registry).deserialize(FRAMED)

    def test_an_unknown_strategy_is_refused(self) -> None:
        with pytest.raises(TopologyError, match="Unknown subject strategy 'topics'"):
            Avro(schema=ORDER, subject="topics")

    def test_a_serde_without_a_registry_says_so(self) -> None:
        with pytest.raises(ConfigError, match="needs a schema registry"):
            Avro(schema=ORDER).for_topic("orders", is_key=False).deserialize(FRAMED)


class TestBytes:
    @pytest.mark.parametrize("data", [b"", b"\x00\x00\x00\x00", b'{"id":"o-1"}', b"\x01\x00\x00\x00\x01x"])
    def test_bytes_without_a_frame_are_refused(self, registry: Registry, data: bytes) -> None:
        with pytest.raises(SerializationError, match="expects bytes in the schema registry's format for the values of 'orders'"):
            of_topic(Avro(schema=ORDER), registry).deserialize(data)

    def test_an_unknown_id_is_refused(self, registry: Registry) -> None:
        with pytest.raises(SerializationError, match=r"has no schema with id 153: unknown schema\. The record was written"):
            of_topic(Avro(schema=ORDER), registry).deserialize(b"\x00\x00\x00\x00\x99abc")

    @pytest.mark.parametrize("data", [FRAMED[:-1], FRAMED + b"x", FRAMED[:5]])
    def test_damaged_values_are_refused(self, registry: Registry, data: bytes) -> None:
        serde = of_topic(Avro(schema=ORDER), registry)
        serde.serialize({"id": "o-1", "amount": 21})
        with pytest.raises(SerializationError, match=f"cannot read {len(data)} bytes that were written with schema 1"):
            serde.deserialize(data)


class TestPlainForm:
    def test_it_is_avros_single_object_encoding(self) -> None:
        # the specification's fingerprint of "int" is 7275d51a3f395c8f, written with its lowest byte first
        assert Avro(schema='"int"').serialize(-1) == b"\xc3\x01" + bytes.fromhex("8f5c393f1ad57572") + b"\x01"

    def test_it_needs_no_registry_and_comes_back(self) -> None:
        serde = Avro(Order)
        assert serde.deserialize(serde.serialize(Order("o-1", 21))) == Order("o-1", 21)

    def test_framed_keys_of_any_schema_become_the_same_bytes(self, registry: Registry) -> None:
        own = connected(Avro(Order, schema=ORDER), registry)
        wider = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": "int"}]}
        written = of_topic(Avro(schema=wider), registry).serialize({"id": "o-1", "amount": 21, "more": 1})
        assert own.serialize(own.deserialize(written)) == own.serialize(Order("o-1", 21))
        assert not own.is_canonical

    def test_another_schema_is_noticed(self) -> None:
        with pytest.raises(SerializationError, match="it was written with another schema"):
            Avro(Order).deserialize(Avro(schema='"int"').serialize(1))
        with pytest.raises(SerializationError, match="it was written with no schema"):
            Avro(Order).deserialize(b"o-1")
