"""Schemas of a registry whose values could be much larger than their bytes are refused before a value is read."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest

from penstock.errors import SerializationError
from penstock.serdes import Avro, Reference
from penstock.serdes.registry.avro_bounds import UnboundedError, check_bounded
from penstock.serdes.registry.memory import MemorySource
from penstock.serdes.registry.registry import Registry
from penstock.serdes.registry.schemas import Schema, SchemaKind
from penstock.serdes.registry.serde import connected

pytestmark = pytest.mark.security(28)

NULLS = [{"name": f"n{number}", "type": "null"} for number in range(100)]


def record(name: str, *types: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{number}", "type": of} for number, of in enumerate(types)],
    }


def array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def doubling(levels: int) -> Any:
    schema: Any = "null"
    for level in range(levels):
        name = f"L{level}"
        schema = record(name, schema, "null" if level == 0 else f"L{level - 1}")
    return schema


BOMBS: dict[str, Any] = {
    "nulls": array("null"),
    "empty records": array(record("Empty")),
    "records of records without bytes": array(record("Outer", record("Inner"), "Inner", "null")),
    "empty fixed": array({"type": "fixed", "name": "F", "size": 0}),
    "few bytes for many values": array({"type": "record", "name": "R", "fields": [*NULLS, {"name": "b", "type": "boolean"}]}),
    "a union of them": array(["null", {"type": "record", "name": "R", "fields": NULLS}]),
    "in a map": {"type": "map", "values": {"type": "record", "name": "R", "fields": NULLS}},
    "in a field": record("Order", "string", array("null")),
    "linked": {"type": "record", "name": "R", "fields": [*NULLS, {"name": "next", "type": ["null", "R"]}]},
    "doubling": doubling(30),
}

USEFUL: dict[str, Any] = {
    "null": "null",
    "longs": array("long"),
    "optional": array(["null", "string"]),
    "empty events": array(["null", record("Opened"), record("Closed")]),
    "optional fields": array(record("R", *[["null", "string"] for _ in range(200)])),
    "nested": array(record("A", record("B", record("C", record("D", ["null", "long"]))))),
    "a tree": {"type": "record", "name": "Tree", "fields": [{"name": "children", "type": array("Tree")}]},
    "a tree of branches": record("Tree", array(record("Branch", "Tree", "null"))),
    "a list": record("Node", "long", ["null", "Node"]),
    "maps": {"type": "map", "values": {"type": "map", "values": "null"}},
    "a union at the top": ["null", record("R", "long")],
    "an enum": array({"type": "enum", "name": "E", "symbols": ["A"]}),
    "a decimal": array({"type": "bytes", "logicalType": "decimal", "precision": 4}),
    "many nulls once": {"type": "record", "name": "R", "fields": NULLS},
    "no branches": array([]),
    "twice": record("R", record("P", "long"), array("P")),
    "fixed": record("R", {"type": "fixed", "name": "F", "size": 4}, array("F")),
}


def check(schema: Any) -> None:
    named: dict[str, Any] = {}
    check_bounded(fastavro.parse_schema(schema, named), named)


@pytest.mark.parametrize("schema", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_refused(schema: Any) -> None:
    with pytest.raises(UnboundedError, match=r"its? "):
        check(schema)


@pytest.mark.parametrize("schema", USEFUL.values(), ids=USEFUL.keys())
def test_a_useful_schema_is_read(schema: Any) -> None:
    check(schema)


BOMB = json.dumps({**record("Order", "string", array("null"))})
ITEMS = b"\x02a" + b"\x80" * 5 + b"\x40\x00"  # a text, and an array of 2^40 items


@pytest.mark.parametrize("own", [{}, {"schema": record("Order", "string")}], ids=["any schema", "an own one, which skips it"])
def test_a_record_names_one(own: dict[str, Any]) -> None:
    source = MemorySource()
    bomb = source.register("of-others-value", Schema(SchemaKind.AVRO, BOMB))
    serde = connected(Avro(dict, **own), Registry(source)).for_topic("orders", is_key=False)
    for _ in range(2):
        with pytest.raises(SerializationError, match=r"values of schema 1: it has an array whose items have no bytes"):
            serde.deserialize(b"\0" + bomb.to_bytes(4, "big") + ITEMS)


def test_it_may_be_in_a_schema_that_is_referred_to() -> None:
    source = MemorySource()
    source.register("empty", Schema(SchemaKind.AVRO, json.dumps(record("Empty"))))
    bomb = Schema(SchemaKind.AVRO, json.dumps(array("Empty")), (Reference("Empty", "empty", 1),))
    number = source.register("of-others-value", bomb)
    serde = connected(Avro(dict), Registry(source)).for_topic("orders", is_key=False)
    with pytest.raises(SerializationError, match="an array whose items have no bytes"):
        serde.deserialize(b"\0" + number.to_bytes(4, "big") + ITEMS)
