"""`JsonSchema`: the wire format, what is checked against the schema, references, and the plain form."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from penstock.errors import SerializationError, TopologyError
from penstock.serdes import JsonSchema, Reference, Serde
from penstock.serdes.registry.memory import MemorySource
from penstock.serdes.registry.registry import Registry
from penstock.serdes.registry.schemas import Schema, SchemaKind
from penstock.serdes.registry.serde import connected

ORDER = {"title": "Order", "type": "object", "properties": {"amount": {"type": "integer", "minimum": 0}}, "required": ["amount"]}
FRAMED = b'\x00\x00\x00\x00\x01{"amount":2}'


@dataclass
class Order:
    amount: int


class Model(BaseModel):
    amount: int


def of_topic(serde: Serde[Any], registry: Registry) -> Serde[Any]:
    return connected(serde, registry).for_topic("orders", is_key=False)


def test_a_value_has_the_frame_and_is_json(registry: Registry, source: MemorySource) -> None:
    serde = of_topic(JsonSchema(schema=ORDER), registry)
    assert serde.serialize({"amount": 2}) == FRAMED
    assert serde.deserialize(FRAMED) == {"amount": 2}
    assert source.subjects == {"orders-value": [json.dumps(ORDER, separators=(",", ":"))]}
    assert source.by_version("orders-value", 1).schema.kind is SchemaKind.JSON


@pytest.mark.parametrize(("kind", "value"), [(Order, Order(2)), (Model, Model(amount=2))])
def test_a_type_gives_its_schema(registry: Registry, kind: Any, value: Any) -> None:
    serde = of_topic(JsonSchema(kind), registry)
    assert serde.serialize(value) == FRAMED
    assert serde.deserialize(FRAMED) == value
    with pytest.raises(SerializationError, match=r"cannot read 18 bytes that were written with schema 1"):
        serde.deserialize(b'\x00\x00\x00\x00\x01{"amount":{}}')


@pytest.mark.parametrize("value", [{}, {"amount": -1}, {"amount": "2"}])
def test_what_the_schema_forbids_is_refused_in_both_directions(registry: Registry, value: Any) -> None:
    serde = of_topic(JsonSchema(schema=ORDER), registry)
    with pytest.raises(SerializationError, match="cannot write"):
        serde.serialize(value)
    with pytest.raises(SerializationError, match="cannot read"):
        serde.deserialize(b"\x00\x00\x00\x00\x01" + json.dumps(value).encode())


def test_an_error_says_where_it_is_and_nothing_of_the_rest(registry: Registry) -> None:
    with pytest.raises(SerializationError) as caught:
        of_topic(JsonSchema(schema=ORDER), registry).serialize({"amount": -1, "secret": "s3cr3t"})
    assert "(at amount)" in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_nothing_is_checked_if_not_wanted(registry: Registry) -> None:
    serde = of_topic(JsonSchema(schema=ORDER, validate=False), registry)
    assert serde.deserialize(serde.serialize({"amount": -1})) == {"amount": -1}


def test_without_a_schema_the_writers_is_taken(registry: Registry, source: MemorySource) -> None:
    source.register("orders-value", Schema(SchemaKind.JSON, json.dumps(ORDER)))
    serde = of_topic(JsonSchema(), registry)
    assert serde.deserialize(FRAMED) == {"amount": 2}
    with pytest.raises(SerializationError, match="cannot read"):
        serde.deserialize(b"\x00\x00\x00\x00\x01{}")


def test_a_schema_of_another_format_is_refused(registry: Registry, source: MemorySource) -> None:
    source.register("orders-value", Schema(SchemaKind.AVRO, '"int"'))
    with pytest.raises(SerializationError, match="cannot read values of schema 1, which is AVRO"):
        of_topic(JsonSchema(), registry).deserialize(FRAMED)


def test_a_schema_may_refer_to_others(registry: Registry, source: MemorySource) -> None:
    source.register("money", Schema(SchemaKind.JSON, json.dumps({"type": "integer"})))
    schema = {"type": "object", "properties": {"price": {"$ref": "money.json"}}}
    serde = of_topic(JsonSchema(schema=schema, references=[Reference("money.json", "money", 1)]), registry)
    assert serde.deserialize(serde.serialize({"price": 5})) == {"price": 5}
    with pytest.raises(SerializationError, match="cannot write"):
        serde.serialize({"price": "five"})


def test_a_schema_that_is_none_is_refused_when_the_topology_is_built() -> None:
    for wrong in ("{", {"type": "unknown"}):
        with pytest.raises(TopologyError, match=r"(?i)json"):
            JsonSchema(schema=wrong)


def test_the_plain_form_is_json() -> None:
    serde = JsonSchema(Order)
    assert serde.serialize(Order(2)) == b'{"amount":2}'
    assert serde.deserialize(b'{"amount":2}') == Order(2)
    assert repr(serde) == "JsonSchema(Order)"
    assert repr(JsonSchema(schema=ORDER)) == "JsonSchema(Order)"
