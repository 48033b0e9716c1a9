"""Values as columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from penstock.delivery.target import columns_of


@dataclass
class Order:
    amount: int
    note: bytes


class Item(msgspec.Struct):
    name: str


class Customer(BaseModel):
    name: str


@pytest.mark.parametrize(
    ("value", "columns"),
    [
        ({"amount": 3}, {"amount": 3}),
        (Order(3, b"x"), {"amount": 3, "note": b"x"}),
        (Item("pen"), {"name": "pen"}),
        (Customer(name="ann"), {"name": "ann"}),
        (5, {"value": 5}),
        ("text", {"value": "text"}),
        (b"bytes", {"value": b"bytes"}),
        ([1, 2], {"value": [1, 2]}),
    ],
)
def test_fields_are_columns(value: Any, columns: dict[str, Any]) -> None:
    assert columns_of(value) == columns
