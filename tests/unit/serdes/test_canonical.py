"""Canonical serdes: bytes that they can read are those they would write, so a key's bytes determine its shard."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serdes import (
    Boolean,
    Bytes,
    Float64,
    Int16,
    Int32,
    Int64,
    Json,
    MsgPack,
    Serde,
    SerializationError,
    SessionWindowed,
    String,
    TimeWindowed,
    UUIDs,
    Void,
)
from tests.unit.serdes.every_serde import SERDES

CANONICAL = [serde for serde in SERDES if serde.is_canonical]
SIZES = st.sampled_from([0, 1, 2, 4, 8, 9, 16, 17, 20, 24, 25])


@pytest.mark.parametrize("serde", CANONICAL, ids=repr)
@settings(max_examples=300)
@given(data=SIZES.flatmap(lambda size: st.binary(min_size=size, max_size=size)))
def test_bytes_that_can_be_read_are_those_that_would_be_written(serde: Serde[Any], data: bytes) -> None:
    try:
        value = serde.deserialize(data)
    except SerializationError:
        return
    assert value is None or serde.serialize(value) == data  # empty bytes are read as None


@pytest.mark.parametrize("data", ["7ff0000000000001", "7ff8000000000000", "fff8000000000001", "8000000000000000"])
def test_nan_and_negative_zero_keep_their_bytes(data: str) -> None:
    serde = Float64()
    assert serde.serialize(serde.deserialize(bytes.fromhex(data))) == bytes.fromhex(data)


@pytest.mark.parametrize(
    ("serde", "data"),
    [
        (Json(), b' {"b": 1, "a": 2}'),
        (MsgPack(), b"\xcd\x00\x01"),
        (String(), b"\xff"),
        (UUIDs(), b"1-2-3-4-5"),
        (TimeWindowed(String(), 10), b"\xff" + bytes(8)),
        (SessionWindowed(String()), b"\xff" + bytes(16)),
        (TimeWindowed(Bytes(), 10, changelog=True), b"k" + bytes(8) + b"\x00\x00\x00\x07"),
    ],
    ids=repr,
)
def test_serdes_that_read_the_same_from_different_bytes_are_not_canonical(serde: Serde[Any], data: bytes) -> None:
    assert not serde.is_canonical
    assert serde.serialize(serde.deserialize(data)) != data


def test_a_serde_is_not_canonical_by_default() -> None:
    class Upper(Serde[str]):
        serialize = staticmethod(str.encode)

        @staticmethod
        def deserialize(data: bytes) -> str:
            return data.decode().upper()

    assert not Upper().is_canonical
    assert {type(serde) for serde in CANONICAL} >= {Boolean, Bytes, Int16, Int32, Int64, Float64, Void}
