"""Penstock's serdes compared with Kafka's own; tools/serde_vectors generates the file."""

from __future__ import annotations

import hashlib
import json
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock import serdes
from penstock.records import ValueAndTimestamp, Windowed
from penstock.serdes import (
    Bytes,
    Float32,
    Float64,
    List,
    Serde,
    SerializationError,
    SessionWindowed,
    String,
    TimeWindowed,
    UUIDs,
    ValueAndTimestampSerde,
)

pytestmark = pytest.mark.security(27)

VECTORS = json.loads((Path(__file__).parent / "java_vectors.json").read_text("ascii"))

# Where Java's reader is wrong, ours is not.
BETTER_THAN_JAVA = {
    ("List(String)", "0100000002000000016100000000"): ["a", ""],  # what Java's own writer writes for that list
    ("List(String)", "010000000100000000"): [""],
    ("List(String)", "0100000001000000056162"): SerializationError,  # Java: "ab\0\0\0", filling up the truncated entry
}


def serde_named(name: str) -> Serde[Any]:
    """`"List(Int32)"` as `List(Int32())`."""
    head, _, rest = name.partition("(")
    kind: type[Any] = getattr(serdes, head)
    inner, _, size = rest[:-1].partition(", ")
    serde: Serde[Any] = kind(serde_named(inner), *([int(size)] if size else [])) if rest else kind()
    return serde


def value_of(serde: Serde[Any], literal: Any) -> Any:
    """The value of a literal in the JSON file."""
    if literal is None:
        return None
    match serde:
        case Float32() | Float64():
            return float.fromhex(literal)
        case Bytes():
            return bytes.fromhex(literal)
        case UUIDs():
            return UUID(literal)
        case List():
            return [value_of(serde.inner, entry) for entry in literal]
        case TimeWindowed() | SessionWindowed():
            return Windowed(value_of(serde.inner, literal[0]), *literal[1:])
        case ValueAndTimestampSerde():
            return ValueAndTimestamp(value_of(serde.inner, literal[0]), literal[1])
    return literal


def title(case: dict[str, Any]) -> str:
    return f"{case['serde']}-{case['hex'] or 'empty'}"


@pytest.mark.parametrize("case", VECTORS["written"], ids=title)
def test_writes_what_java_writes(case: Any) -> None:
    serde = serde_named(case["serde"])
    assert serde.serialize(value_of(serde, case["value"])).hex() == case["hex"]


@pytest.mark.parametrize("case", VECTORS["read"], ids=title)
def test_reads_what_java_reads(case: Any) -> None:
    serde = serde_named(case["serde"])
    data = bytes.fromhex(case["hex"])
    expected = SerializationError if "error" in case else value_of(serde, case["value"])
    expected = BETTER_THAN_JAVA.get((case["serde"], case["hex"]), expected)
    if expected is SerializationError:
        with pytest.raises(SerializationError):
            serde.deserialize(data)
    else:
        value = serde.deserialize(data)
        assert type(value) is type(expected)
        assert repr(value) == repr(expected)  # distinguishes NaN, -0.0 and nested types, unlike ==


def test_exceptions_from_java_are_in_the_file() -> None:
    read = {(case["serde"], case["hex"]) for case in VECTORS["read"]}
    assert BETTER_THAN_JAVA.keys() <= read


def test_malformed_text_is_replaced_as_in_java() -> None:
    """All texts of up to four bytes, over an alphabet with every kind of UTF-8 byte."""
    alphabet = bytes.fromhex(VECTORS["utf8"]["alphabet"])
    read = String().deserialize
    digest = hashlib.sha256()
    for length in range(VECTORS["utf8"]["max_length"] + 1):
        for text in product(alphabet, repeat=length):
            digest.update(read(bytes(text)).encode() + b"\n")
    assert digest.hexdigest() == VECTORS["utf8"]["sha256"]
