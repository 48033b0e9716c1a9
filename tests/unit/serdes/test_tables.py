"""Changes and timestamped values of tables, with every part that may be missing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records import Change, ValueAndTimestamp
from penstock.serdes import ChangeSerde, Int64, Json, SerializationError, String, ValueAndTimestampSerde

pytestmark = pytest.mark.security(27)

int64s = st.integers(-(2**63), 2**63 - 1)


@given(st.none() | st.text(), st.none() | st.text(), st.booleans())
def test_changes_round_trip(new: Any, old: Any, is_latest: Any) -> None:
    serde = ChangeSerde(String())
    read = serde.deserialize(serde.serialize(Change(new, old, is_latest)))
    assert type(read) is Change
    assert read == Change(new, old, is_latest)


@given(st.none() | int64s, st.none() | int64s, st.booleans())
def test_changes_of_numbers_round_trip(new: Any, old: Any, is_latest: Any) -> None:
    serde = ChangeSerde(Int64())
    assert serde.deserialize(serde.serialize(Change(new, old, is_latest))) == Change(new, old, is_latest)


@given(st.binary())
def test_any_bytes_are_a_change_or_an_error(data: Any) -> None:
    serde = ChangeSerde(String())
    try:
        change = serde.deserialize(data)
    except SerializationError:
        return
    assert serde.deserialize(serde.serialize(change)) == change


@pytest.mark.parametrize(
    "data", [b"", b"\x08", b"\xff", b"\x04+", b"\x00\x00", b"\x03", b"\x07\x00\x00\x00", b"\x03\x00\x00\x00\x02a"]
)
def test_bytes_that_are_not_a_change_are_an_error(data: Any) -> None:
    with pytest.raises(SerializationError, match="change"):
        ChangeSerde(String()).deserialize(data)


@given(st.text(), int64s)
def test_timestamped_values_round_trip(value: Any, timestamp: Any) -> None:
    serde = ValueAndTimestampSerde(String())
    read = serde.deserialize(serde.serialize(ValueAndTimestamp(value, timestamp)))
    assert type(read) is ValueAndTimestamp
    assert read == ValueAndTimestamp(value, timestamp)


@pytest.mark.parametrize("entry", [ValueAndTimestamp("a", 2**63), ("a", 0.5), ("a",), None])
def test_refuses_a_value_without_a_timestamp(entry: Any) -> None:
    with pytest.raises(SerializationError, match="Not a value with a timestamp"):
        ValueAndTimestampSerde(String()).serialize(entry)


def test_errors_of_the_inner_serde_are_passed_on() -> None:
    with pytest.raises(SerializationError, match="String expects str, got int"):
        ValueAndTimestampSerde(String()).serialize(ValueAndTimestamp(1, 0))
    with pytest.raises(SerializationError, match="Int64 expects exactly 8 bytes"):
        ValueAndTimestampSerde(Int64()).deserialize(bytes(9))
    with pytest.raises(SerializationError, match=r"Json\(\) cannot write a value of type object"):
        ChangeSerde(Json()).serialize(Change(object()))


def test_table_values_have_no_identity() -> None:
    assert not ChangeSerde(String()).identity
    assert not ValueAndTimestampSerde(String()).identity
