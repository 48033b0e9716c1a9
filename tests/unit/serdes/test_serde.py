"""Serdes as values: equal if created with the same arguments, also after a transfer to another process."""

from __future__ import annotations

import enum
import pickle
import re
import uuid
from copy import copy
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple, TypedDict

import cloudpickle
import msgspec
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from penstock import records, serdes
from penstock.errors import PenstockError
from penstock.serdes import (
    Boolean,
    Bytes,
    ChangeSerde,
    Float32,
    Float64,
    Int16,
    Int32,
    Int64,
    Json,
    List,
    MsgPack,
    Serde,
    SerializationError,
    SessionWindowed,
    String,
    TimeWindowed,
    UUIDs,
    ValueAndTimestampSerde,
    Void,
)


@dataclass
class Order:
    id: int


class Reversed(Serde[str]):
    """The simplest serde that a user can write."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding

    def serialize(self, value: str) -> bytes:
        return value[::-1].encode(self.encoding)

    def deserialize(self, data: bytes) -> str:
        return data.decode(self.encoding)[::-1]


class OfTopic(Serde[bytes]):
    """A serde with a schema per topic."""

    def __init__(self, subject: str = "") -> None:
        self.subject = subject

    def serialize(self, value: bytes) -> bytes:
        return self.subject.encode() + value

    def deserialize(self, data: bytes) -> bytes:
        return data.removeprefix(self.subject.encode())

    def for_topic(self, topic: str, is_key: bool) -> OfTopic:
        return OfTopic(f"{topic}-{'key' if is_key else 'value'}:")


ALL: list[tuple[Serde[Any], Any, str]] = [
    (String(), "a", "String()"),
    (Bytes(), b"a", "Bytes()"),
    (Int16(), 1, "Int16()"),
    (Int32(), 1, "Int32()"),
    (Int64(), 1, "Int64()"),
    (Float32(), 1.0, "Float32()"),
    (Float64(), 1.0, "Float64()"),
    (UUIDs(), uuid.UUID(int=1), "UUIDs()"),
    (Boolean(), True, "Boolean()"),
    (List(String()), ["a", None], "List(String())"),
    (List(Int32()), [1, None], "List(Int32())"),
    (TimeWindowed(String(), 10), records.Windowed("a", 0, 10), "TimeWindowed(String(), 10)"),
    (TimeWindowed(String(), 20), records.Windowed("a", 0, 20), "TimeWindowed(String(), 20)"),
    (SessionWindowed(Int64()), records.Windowed(1, 2, 3), "SessionWindowed(Int64())"),
    (Json(), {"a": 1}, "Json()"),
    (Json(Order), Order(1), "Json(Order)"),
    (Json(list[int]), [1], "Json(list[int])"),
    (MsgPack(), {"a": 1}, "MsgPack()"),
    (MsgPack(Order), Order(1), "MsgPack(Order)"),
    (ChangeSerde(String()), records.Change("a", "b"), "ChangeSerde(String())"),
    (ValueAndTimestampSerde(Json(Order)), records.ValueAndTimestamp(Order(1), 5), "ValueAndTimestampSerde(Json(Order))"),
    (Reversed("utf-8"), "ab", "Reversed('utf-8')"),
    (Reversed("utf-16-le"), "ab", "Reversed('utf-16-le')"),
]
JOURNEYS = {
    "pickle": lambda serde: pickle.loads(pickle.dumps(serde)),
    "cloudpickle": lambda serde: cloudpickle.loads(cloudpickle.dumps(serde)),
    "copy": copy,
}


@pytest.fixture(params=ALL, ids=lambda case: case[2])
def case(request: Any) -> tuple[Serde[Any], Any, str]:
    case: tuple[Serde[Any], Any, str] = request.param
    return case


@pytest.mark.parametrize("journey", JOURNEYS.values(), ids=JOURNEYS)
def test_survives(case: Any, journey: Any) -> None:
    serde, value, _ = case
    data = serde.serialize(value)  # creates the functions that are made on first use
    arrived = journey(serde)
    assert arrived == serde
    assert hash(arrived) == hash(serde)
    assert arrived.serialize(value) == data
    assert arrived.deserialize(data) == value


@pytest.mark.parametrize("kind", [Json, MsgPack])
def test_serdes_of_classes_of_a_script_can_be_pickled(kind: Any) -> None:
    @dataclass
    class Entry:
        id: int

    class Shape(enum.Enum):
        ROUND = "round"

    class Pair(NamedTuple):
        one: int

    class Struct(msgspec.Struct):
        id: int

    class Keyed(TypedDict):
        id: int

    for of, data in [
        (Entry, {"id": 1}),
        (Shape, "round"),
        (Pair, [1]),
        (Struct, {"id": 1}),
        (Keyed, {"id": 1}),
        (list[Entry], []),
    ]:
        arrived = cloudpickle.loads(cloudpickle.dumps(kind(of)))
        cloudpickle.dumps(of)  # as from a user's function
        assert kind().serialize(data) == arrived.serialize(arrived.deserialize(kind().serialize(data)))


def test_the_repr_is_the_code_that_creates_it(case: Any) -> None:
    serde, _, text = case
    assert repr(serde) == text


def test_serdes_with_other_arguments_are_not_equal() -> None:
    for one, other in combinations([serde for serde, _, _ in ALL], 2):
        assert one != other
    assert String() != "String()"
    assert Json(Any) == Json()


def test_void_is_a_serde_too() -> None:
    assert pickle.loads(pickle.dumps(Void())) == Void()


def test_most_serdes_are_the_same_for_all_topics(case: Any) -> None:
    serde, _, _ = case
    assert serde.for_topic("orders", is_key=True) is serde


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (List(OfTopic()), [b"a"]),
        (TimeWindowed(OfTopic(), 10), records.Windowed(b"a", 0, 10)),
        (SessionWindowed(OfTopic()), records.Windowed(b"a", 0, 10)),
        (ChangeSerde(OfTopic()), records.Change(b"a")),
        (ValueAndTimestampSerde(OfTopic()), records.ValueAndTimestamp(b"a", 0)),
        (List(List(OfTopic())), [[b"a"]]),
    ],
    ids=repr,
)
def test_the_topic_reaches_the_inner_serde(serde: Any, value: Any) -> None:
    before = serde.serialize(value)
    of_topic = serde.for_topic("orders", is_key=True)
    assert b"orders-key:a" in of_topic.serialize(value)
    assert of_topic.deserialize(of_topic.serialize(value)) == value
    assert serde.serialize(value) == before


def test_a_serde_needs_both_functions() -> None:
    class Half(Serde[str]):
        def serialize(self, value: str) -> bytes:
            return value.encode()

    with pytest.raises(TypeError, match="deserialize"):
        Half()  # type: ignore[abstract]


def test_a_users_serde_has_no_identity_by_default() -> None:
    assert not Reversed("utf-8").identity


def test_errors_are_penstock_s() -> None:
    assert issubclass(SerializationError, PenstockError)
    assert issubclass(SerializationError, ValueError)


@pytest.mark.parametrize("name", serdes.__all__)
def test_the_example_in_the_docstring_holds(name: Any) -> None:
    if name == "SerializationError":  # its home is penstock.errors
        return
    docstring = getattr(serdes, name).__doc__
    example = re.search(r"`([^`]+ == [^`]+|[^`]+\)` raises `\w+)`", docstring)
    assert example, f"{name} has no example"
    expression, _, error = example[1].partition("` raises `")
    names = {**vars(serdes), **vars(records), "UUID": uuid.UUID, "Timestamp": Timestamp}
    if error:
        with pytest.raises(getattr(serdes, error)):
            eval(expression, names)
    else:
        assert eval(expression, names) is True
