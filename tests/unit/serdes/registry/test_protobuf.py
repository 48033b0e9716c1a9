"""`Protobuf`: the wire format with its path of messages, files that import others, and the plain form."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from penstock.errors import SerializationError, TopologyError
from penstock.serdes import Protobuf, Serde
from penstock.serdes.registry.memory import MemorySource
from penstock.serdes.registry.registry import Registry
from penstock.serdes.registry.schemas import Reference
from penstock.serdes.registry.serde import connected
from tests.unit.serdes.registry.messages import Inner, Money, Order


def of_topic(kind: Any, registry: Registry, **usage: Any) -> Serde[Any]:
    return connected(Protobuf(kind, **usage), registry).for_topic("orders", is_key=False)


def test_the_first_message_of_a_file_has_a_zero_for_its_path(registry: Registry) -> None:
    serde = of_topic(Money, registry)
    assert serde.serialize(Money(cents=5)) == b"\0\0\0\0\1" + b"\0" + b"\x08\x05"
    assert serde.deserialize(b"\0\0\0\0\1\0\x08\x05") == Money(cents=5)


def test_the_path_of_a_nested_message_is_written(registry: Registry) -> None:
    serde = of_topic(Inner, registry)
    # two numbers, 1 and 1, with their sign in the lowest bit: 4, 2, 2
    assert serde.serialize(Inner(id="a"))[5:] == b"\x04\x02\x02" + b"\x0a\x01a"
    assert serde.deserialize(serde.serialize(Inner(id="a"))) == Inner(id="a")


def test_another_path_is_skipped(registry: Registry) -> None:
    # the same message may be elsewhere in the writer's file; a path of one number 0 may also be written as 2, 0
    assert of_topic(Money, registry).deserialize(b"\0\0\0\0\1" + b"\x02\x00" + b"\x08\x05") == Money(cents=5)
    assert of_topic(Money, registry).deserialize(b"\0\0\0\0\1" + b"\x02\xac\x02" + b"\x08\x05") == Money(cents=5)


def test_reading_asks_nothing(registry: Registry, source: MemorySource) -> None:
    assert of_topic(Money, registry).deserialize(b"\0\0\0\0\7\0\x08\x05").cents == 5
    assert source.subjects == {}


def test_a_file_that_imports_another_refers_to_it(registry: Registry, source: MemorySource) -> None:
    of_topic(Order, registry).serialize(Order(id="a", price=Money(cents=5)))
    assert list(source.subjects) == ["acme/money.proto", "orders-value"]
    [order] = source.subjects["orders-value"]
    assert base64.b64decode(order) == Order.DESCRIPTOR.file.serialized_pb
    assert source.by_version("orders-value", 1).schema.references == (Reference("acme/money.proto", "acme/money.proto", 1),)


def test_nothing_is_registered_if_not_wanted(registry: Registry, source: MemorySource) -> None:
    with pytest.raises(SerializationError, match=r"does not have the schema in subject 'acme/money.proto'"):
        of_topic(Order, registry, register=False).serialize(Order(id="a"))
    assert source.subjects == {}


@pytest.mark.parametrize("data", [b"\0\0\0\0\1", b"\0\0\0\0\1\x80", b"\0\0\0\0\1\xff\xff\xff\xff\x0f", b"\0\0\0\0\1\0\xff"])
def test_damaged_bytes_are_refused(registry: Registry, data: bytes) -> None:
    with pytest.raises(SerializationError, match=f"cannot read {len(data)} bytes that were written with schema 1"):
        of_topic(Money, registry).deserialize(data)


def test_the_plain_form_is_the_message() -> None:
    assert Protobuf(Money).serialize(Money(cents=5)) == b"\x08\x05"
    assert Protobuf(Money).deserialize(b"\x08\x05") == Money(cents=5)
    assert Protobuf(Money).deserialize(b"") == Money()


@pytest.mark.parametrize("serde", [Protobuf(Money), Protobuf(Money).for_topic("orders", is_key=False)])
def test_another_class_is_refused(registry: Registry, serde: Serde[Any]) -> None:
    with pytest.raises(SerializationError, match="cannot write a value of type Inner: TypeError: expected Money"):
        connected(serde, registry).serialize(Inner())


def test_only_generated_classes_are_taken() -> None:
    with pytest.raises(TopologyError, match="takes a class that protoc has generated, not <class 'dict'>"):
        Protobuf(dict)
