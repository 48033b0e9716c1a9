"""Keys as text and values as JSON, for every serde."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
import pydantic
import pytest

from penstock.errors import QueryError
from penstock.queries.forms import LONGEST_KEY, encoded, json_of, key_of, prefix_of, strict_json
from penstock.records import Windowed
from penstock.serdes import (
    Boolean,
    Bytes,
    Float64,
    Int16,
    Int64,
    Json,
    List,
    MsgPack,
    Serde,
    SessionWindowed,
    String,
    TimeWindowed,
    UUIDs,
)


@dataclass
class Point:
    x: int
    y: int


class Order(msgspec.Struct):
    id: int
    note: bytes


class Model(pydantic.BaseModel):
    name: str


class Strange(Serde[complex]):
    """A user's serde."""

    def serialize(self, value: complex, /) -> bytes:
        return str(value).encode()

    def deserialize(self, data: bytes, /) -> complex:
        return complex(data.decode())


@pytest.mark.parametrize(
    ("serde", "text", "value", "shown"),
    [
        (String(), "a b/ä", "a b/ä", "a b/ä"),
        (Int64(), "-5", -5, -5),
        (Float64(), "1.5", 1.5, 1.5),
        (Boolean(), "true", True, True),
        (UUIDs(), "00000000-0000-0000-0000-000000000001", UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Bytes(), "base64:/wA=", b"\xff\x00", "/wA="),
        (Bytes(), "text", b"text", "dGV4dA=="),
        (Json(), '{"b":1,"a":2}', {"a": 2, "b": 1}, {"a": 2, "b": 1}),
        (Json(Point), '{"x":1,"y":2}', Point(1, 2), {"x": 1, "y": 2}),
        (MsgPack(Point), '{"x":1,"y":2}', Point(1, 2), {"x": 1, "y": 2}),
        (MsgPack(Order), '{"id":1,"note":"/w=="}', Order(1, b"\xff"), {"id": 1, "note": "/w=="}),
        (Json(Model), '{"name":"a"}', Model(name="a"), {"name": "a"}),
        (List(int), "[1,null]", [1, None], [1, None]),
        (
            TimeWindowed(str, 10),
            '{"key":"a","start":5,"end":15}',
            Windowed("a", 5, 15),
            {"key": "a", "start": 5, "end": 15},
        ),
        (SessionWindowed(int), '{"key":7,"start":5,"end":15}', Windowed(7, 5, 15), {"key": 7, "start": 5, "end": 15}),
        (Strange(), "base64:MWo=", 1j, "1j"),
    ],
)
def test_a_key_is_parsed_and_shown(serde: Serde[Any], text: str, value: Any, shown: Any) -> None:
    data = serde.serialize(value)
    assert key_of(serde)(text) == data
    assert json.loads(json_of(serde)(data)) == shown


@pytest.mark.parametrize(
    ("serde", "text"),
    [
        (String(), "\ud800"),
        (String(), "a" * (LONGEST_KEY + 1)),
        (Int64(), "1e3"),
        (Int64(), "9" * 5_000),
        (Int64(), str(2**63)),
        (Int64(), ""),
        (Int16(), "70000"),
        (Boolean(), "True"),
        (UUIDs(), "1"),
        (Bytes(), "base64:*"),
        (Float64(), "one"),
        (Json(), "NaN"),
        (Json(), '{"a":1,"a":2}'),
        (Json(Point), '{"x":1}'),
        (Json(Point), "[" * 10_000),
        (TimeWindowed(str, 10), '{"key":"a"}'),
        (TimeWindowed(str, 10), '{"key":"a","start":"b","end":1}'),
        (List(int), "{}"),
        (Strange(), "1j"),
    ],
)
@pytest.mark.security(8)
def test_an_invalid_key_is_refused(serde: Serde[Any], text: str) -> None:
    with pytest.raises(QueryError):
        key_of(serde)(text)


def test_bytes_that_the_serde_cannot_read_are_shown_as_base64() -> None:
    assert json_of(Int64())(b"abc") == b'"base64:YWJj"'
    assert json_of(MsgPack(Point))(b"\xc1") == b'"base64:wQ=="'


def test_a_value_that_json_cannot_express_is_shown_as_python_prints_it() -> None:
    assert json.loads(encoded({"a": 1j})) == {"a": "1j"}
    assert json.loads(encoded("\ud800")) == "'\\ud800'"
    assert json.loads(encoded([float("nan"), 2**70, b"a"])) == [None, 2**70, "YQ=="]


def test_a_prefix_is_text_or_bytes() -> None:
    assert (prefix_of(String())("ab"), prefix_of(Bytes())("base64:/w=="), prefix_of(Int64())("base64:AA==")) == (
        b"ab",
        b"\xff",
        b"\x00",
    )
    with pytest.raises(QueryError, match=r"Invalid prefix '1': a prefix for Int64\(\) must be given as bytes"):
        prefix_of(Int64())("1")


@pytest.mark.security(9)
@pytest.mark.parametrize("text", ["", "{", '{"a":1,"a":1}', "NaN", "-Infinity", "1e400", "9" * 21, '"\\ud800"', "[" * 100_000])
def test_invalid_or_ambiguous_json_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="Invalid or ambiguous JSON"):
        strict_json(text)
