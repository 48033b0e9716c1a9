"""What a user may give as `key=` and `value=`."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Annotated, Any, NewType, Optional
from uuid import UUID

import msgspec
import pydantic
import pytest

from penstock.records import Windowed
from penstock.serdes import (
    Boolean,
    Bytes,
    Float64,
    Int32,
    Int64,
    Json,
    List,
    Serde,
    String,
    TimeWindowed,
    UUIDs,
    Void,
    serde_of,
)

UserId = NewType("UserId", str)


@dataclass
class Order:
    id: int


class Click(msgspec.Struct):
    page: str


class Account(pydantic.BaseModel):
    owner: str


class Color(enum.Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("kind", "serde"),
    [
        (str, String()),
        (bytes, Bytes()),
        (int, Int64()),
        (float, Float64()),
        (bool, Boolean()),
        (UUID, UUIDs()),
        (type(None), Void()),
        (dict, Json()),
        (list, Json()),
        (object, Json()),
        (Any, Json()),
        (None, Json()),
        (list[int], Json(list[int])),
        (dict[str, Order], Json(dict[str, Order])),
        (Order, Json(Order)),
        (Click, Json(Click)),
        (Account, Json(Account)),
        (Color, Json(Color)),
        (str | None, String()),
        (Optional[Order], Json(Order)),  # noqa: UP045 - the older spelling is what is tested
        (Order | Color | None, Json(Order | Color | None)),
        (Annotated[int, msgspec.Meta(gt=0)], Json(Annotated[int, msgspec.Meta(gt=0)])),
        (UserId, String()),
        (Int32(), Int32()),
    ],
    ids=str,
)
def test_serde_of(kind: Any, serde: Any) -> None:
    assert serde_of(kind) == serde


def test_a_serde_is_itself() -> None:
    serde = Json(Order)
    assert serde_of(serde) is serde


def test_types_with_unhashable_parts() -> None:
    kind = Annotated[int, {"not": "hashable"}]
    assert serde_of(kind) == Json(kind)
    assert hash(serde_of(kind)) == hash(Json(kind))


class Unknown:
    pass


@pytest.mark.parametrize(
    ("kind", "cure"),
    [
        (Unknown, r"Unknown has no mapping to documents\. Use a dataclass"),
        (list[Unknown], "Unknown within list"),
        ("str", "'str' has no mapping"),
        (7, "7 has no mapping"),
        ({}, "{} has no mapping"),
        (len, "Use a dataclass"),
        (Int32, r"Write Int32\(...\)"),
        (List, r"Write List\(...\)"),
        (Serde, "is a Serde class"),
        (Windowed, r"Use TimeWindowed\(key, window_size_ms\) or SessionWindowed\(key\)"),
        (Windowed[str], r"Use TimeWindowed\(key, window_size_ms\) or SessionWindowed\(key\)"),
        (bytearray, "Use bytes"),
        (memoryview, "Use bytes"),
    ],
    ids=str,
)
def test_other_values_are_refused_with_a_cure(kind: Any, cure: Any) -> None:
    with pytest.raises(TypeError, match=cure):
        serde_of(kind)


def test_inner_serdes_come_from_types_too() -> None:
    assert List(str) == List(String())
    assert TimeWindowed(Order, 10) == TimeWindowed(Json(Order), 10)
    with pytest.raises(TypeError, match="Unknown has no mapping"):
        List(Unknown)
