"""Round trips of single values, and what each serde refuses."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.serdes import (
    Boolean,
    Bytes,
    Float32,
    Float64,
    Int16,
    Int32,
    Int64,
    Serde,
    SerializationError,
    String,
    UUIDs,
    Void,
)

pytestmark = pytest.mark.security(27)

VALUES = {
    Int16(): st.integers(-(2**15), 2**15 - 1),
    Int32(): st.integers(-(2**31), 2**31 - 1),
    Int64(): st.integers(-(2**63), 2**63 - 1),
    Float32(): st.floats(width=32, allow_nan=False),
    Float64(): st.floats(allow_nan=False),
    String(): st.text(),
    Bytes(): st.binary(),
    UUIDs(): st.uuids(),
    Boolean(): st.booleans(),
}
ANYTHING_ELSE = {
    Int16(): [2**15, -(2**15) - 1, 1.0, "1", None],
    Int32(): [2**31, -(2**31) - 1, 1.0, b"1", None],
    Int64(): [2**63, -(2**63) - 1, 1.0, "1", [], None],
    Float32(): [1e39, "1.0", b"1", None],
    Float64(): [10**400, "1.0", None],
    String(): [b"bytes", 1, None],
    Bytes(): ["text", 3, [1, 2], None],
    UUIDs(): ["f81d4fae-7dec-11d0-a765-00a0c91e6bf6", 1, bytes(16), None],
    Boolean(): ["true", 2, [], None],
    Void(): [0, "", b""],
}


@pytest.mark.parametrize("serde", VALUES, ids=repr)
@given(data=st.data())
def test_round_trip(serde: Any, data: Any) -> None:
    value = data.draw(VALUES[serde])
    written = serde.serialize(value)
    read = serde.deserialize(written)
    assert type(written) is bytes
    assert type(read) is type(value)
    assert read == value


@pytest.mark.parametrize(
    ("serde", "value"),
    [(serde, value) for serde, values in ANYTHING_ELSE.items() for value in values],
    ids=lambda case: repr(case)[:20],
)
def test_refuses_other_values(serde: Any, value: Any) -> None:
    with pytest.raises(SerializationError, match=type(serde).__name__):
        serde.serialize(value)


def test_nan_and_both_zeros_survive() -> None:
    for serde in (Float32(), Float64()):
        assert math.isnan(serde.deserialize(serde.serialize(math.nan)))
        assert math.copysign(1, serde.deserialize(serde.serialize(-0.0))) == -1
        assert not serde.identity


def test_numbers_of_other_classes_are_written() -> None:
    assert Int64().serialize(True) == Int64().serialize(1)
    assert Float64().serialize(1) == Float64().serialize(1.0)
    assert Float64().serialize(cast("Any", Decimal("1.5"))) == struct.pack(">d", 1.5)


@given(st.lists(st.characters() | st.characters(categories=["Cs"])).map("".join))
def test_any_str_is_written_as_the_utf16_java_would_see(text: Any) -> None:
    units = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    assert String().serialize(text) == "".join("?" if "\ud800" <= char <= "\udfff" else char for char in units).encode()


@given(st.binary())
def test_any_bytes_are_read_as_text(data: Any) -> None:
    text = String().deserialize(data)
    assert String().deserialize(String().serialize(text)) == text


def test_long_malformed_text_takes_linear_time() -> None:
    assert String().deserialize(b"\xed\xa0\x80" * 200_000) == "\ufffd" * 200_000


def test_bytes_are_copied_only_if_necessary() -> None:
    data = b"raw"
    assert Bytes().serialize(data) is data
    assert Bytes().deserialize(data) is data
    for view in (bytearray(data), memoryview(data)):
        assert type(Bytes().serialize(view)) is bytes  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 2**16 - 1), min_size=5, max_size=5))
def test_uuid_groups_may_be_short_as_in_java(groups: Any) -> None:
    text = "-".join(f"{group:x}" for group in groups)
    padded = "-".join(f"{group:0{width}x}" for group, width in zip(groups, (8, 4, 4, 4, 12), strict=True))
    assert UUIDs().deserialize(text.encode()) == UUID(padded)


@pytest.mark.parametrize("serde", [Int16(), Int32(), Int64(), String(), Bytes(), UUIDs(), Boolean(), Void()], ids=repr)
def test_identity(serde: Serde) -> None:
    assert serde.identity
