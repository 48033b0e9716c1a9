"""Protobuf classes as `protoc` generates them, built from descriptors: two files, one of which imports the other."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_pool = descriptor_pool.DescriptorPool()
_TEXT, _INT64, _MESSAGE = 9, 3, 11


def _field(name: str, number: int, kind: int, of: str = "") -> dict[str, Any]:
    return {"name": name, "number": number, "type": kind, "label": 1, "json_name": name, **({"type_name": of} if of else {})}


def _file(**content: Any) -> None:
    _pool.Add(descriptor_pb2.FileDescriptorProto(syntax="proto3", package="acme", **content))


_file(name="acme/money.proto", message_type=[{"name": "Money", "field": [_field("cents", 1, _INT64)]}])
_file(
    name="acme/order.proto",
    dependency=["acme/money.proto"],
    message_type=[
        {"name": "Order", "field": [_field("id", 1, _TEXT), _field("price", 2, _MESSAGE, ".acme.Money")]},
        {
            "name": "Outer",
            "nested_type": [{"name": "First", "field": []}, {"name": "Inner", "field": [_field("id", 1, _TEXT)]}],
        },
    ],
)


def message_class(name: str) -> Any:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(name))


Money, Order, Inner = message_class("acme.Money"), message_class("acme.Order"), message_class("acme.Outer.Inner")
