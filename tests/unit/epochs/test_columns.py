"""Values as Arrow columns: typed where the serde says how, otherwise JSON as text."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, TypedDict
from uuid import UUID

import msgspec
import pyarrow as pa
import pydantic
import pytest

from penstock.epochs.columns import column_of
from penstock.records import Windowed
from penstock.serdes import Bytes, Int32, Int64, Json, List, MsgPack, Serde, String, TimeWindowed, UUIDs


@dataclass
class Item:
    name: str
    price: float | None = None


@dataclass
class Order:
    id: int
    items: list[Item] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    at: datetime | None = None
    either: int | str = 0
    raw: bytes = b""


class Tagged(msgspec.Struct, tag=True):
    x: int


class Tree(msgspec.Struct):
    value: int
    left: Tree | None = None


class Renamed(msgspec.Struct, rename="camel"):
    first_name: str


class Pair(TypedDict):
    a: int
    b: str


class Model(pydantic.BaseModel):
    name: str


def shown(serde: Serde[Any], *values: Any) -> tuple[str, list[Any]]:
    """The column's type, and its values after a way through bytes."""
    kind, convert = column_of(serde)
    read = [serde.deserialize(serde.serialize(value)) for value in values]
    return str(kind), pa.array(map(convert, read), kind).to_pylist()


@pytest.mark.parametrize(
    ("serde", "value", "kind", "expected"),
    [
        (String(), "a", "string", "a"),
        (Int32(), 5, "int32", 5),
        (Int64(), 5, "int64", 5),
        (Bytes(), b"\xff", "binary", b"\xff"),
        (UUIDs(), UUID(int=1), "string", "00000000-0000-0000-0000-000000000001"),
        (List(int), [1, None], "list<item: int64>", [1, None]),
        (Json(), {"a": [1]}, "string", '{"a":[1]}'),
        (Json(list[int]), [1, 2], "list<item: int64>", [1, 2]),
        (Json(Pair), {"a": 1, "b": "x"}, "struct<a: int64, b: string>", {"a": 1, "b": "x"}),
        (Json(Renamed), Renamed("x"), "struct<firstName: string>", {"firstName": "x"}),
        (Json(Tagged), Tagged(1), "string", '{"type":"Tagged","x":1}'),
        (Json(Model), Model(name="a"), "string", '{"name":"a"}'),
        (
            TimeWindowed(str, 10),
            Windowed("a", 5, 15),
            "struct<key: string, start: int64, end: int64>",
            {"key": "a", "start": 5, "end": 15},
        ),
    ],
)
def test_a_value(serde: Serde[Any], value: Any, kind: str, expected: Any) -> None:
    assert shown(serde, value) == (kind, [expected])


@pytest.mark.parametrize("serde", [Json(Order), MsgPack(Order)])
def test_a_dataclass_of_many_parts(serde: Serde[Order]) -> None:
    at = datetime(2024, 1, 1, tzinfo=timezone.utc)
    kind, [full, empty] = shown(serde, Order(1, [Item("a", 1.5), Item("b")], {"x": 2}, at, "text", b"\x00"), Order(2))
    items = "items: list<item: struct<name: string, price: double>>"
    assert kind == f"struct<id: int64, {items}, labels: map<string, int64>, at: string, either: string, raw: binary>"
    assert full["items"] == [{"name": "a", "price": 1.5}, {"name": "b", "price": None}]
    assert (full["labels"], full["at"], full["either"], full["raw"]) == ([("x", 2)], "2024-01-01T00:00:00Z", '"text"', b"\x00")
    assert (empty["items"], empty["at"], empty["either"]) == ([], None, "0")


def test_a_type_that_contains_itself_ends_as_text() -> None:
    kind, [tree] = shown(Json(Tree), Tree(1, Tree(2)))
    assert kind.startswith("struct<value: int64, left: struct<")
    assert "string" in kind
    assert (tree["value"], tree["left"]["value"], tree["left"]["left"]) == (1, 2, None)
