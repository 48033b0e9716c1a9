"""Nested lists, nulls anywhere, and bytes that are not a list."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.serdes import Boolean, Int32, Int64, List, SerializationError, String, UUIDs

pytestmark = pytest.mark.security(27)

int64s = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.none() | int64s))
def test_round_trip_of_constant_size(values: Any) -> None:
    serde = List(Int64())
    data = serde.serialize(values)
    assert data[0] == 0
    assert serde.deserialize(data) == values


@given(st.lists(st.none() | st.text()))
def test_round_trip_of_variable_size(values: Any) -> None:
    serde = List(String())
    data = serde.serialize(values)
    assert data[0] == 1
    assert serde.deserialize(data) == values


@given(st.lists(st.none() | st.lists(st.none() | st.uuids())))
def test_round_trip_of_lists_in_lists(values: Any) -> None:
    serde = List(List(UUIDs()))
    assert serde.deserialize(serde.serialize(values)) == values


@pytest.mark.parametrize("inner", [Int32(), String(), List(String())], ids=repr)
@given(data=st.binary())
def test_any_bytes_are_a_list_or_an_error(inner: Any, data: Any) -> None:
    try:
        values = List(inner).deserialize(data)
    except SerializationError:
        return
    assert isinstance(values, list)


@pytest.mark.parametrize(("serde", "values"), [(List(Int64()), [1, None, 2]), (List(String()), ["a", None, "bc"])], ids=repr)
def test_truncated_lists_are_errors(serde: List[Any], values: Any) -> None:
    written = serde.serialize(values)
    for length in range(len(written)):
        with pytest.raises(SerializationError):
            serde.deserialize(written[:length])


def test_entries_of_negative_size_are_errors() -> None:
    with pytest.raises(SerializationError, match="entry of -2"):
        List(String()).deserialize(struct.pack(">bii", 1, 1, -2))


def test_an_entry_count_in_the_billions_allocates_nothing() -> None:
    for data in (struct.pack(">bi", 1, 2**31 - 1), struct.pack(">bii", 0, 0, 2**31 - 1), struct.pack(">bi", 0, 2**31 - 1)):
        with pytest.raises(SerializationError, match="cannot hold 2147483647 entries"):
            List(Int32()).deserialize(data)


def test_constant_size_needs_an_inner_serde_of_known_size() -> None:
    with pytest.raises(SerializationError, match=r"List of String\(\): unknown format 0"):
        List(String()).deserialize(List(Int32()).serialize([1]))


def test_either_layout_is_read() -> None:
    assert List(Int32()).deserialize(struct.pack(">biii", 1, 1, 4, 7)) == [7]


def test_booleans_have_no_constant_size_in_java() -> None:
    assert List(Boolean()).serialize([True])[0] == 1


@pytest.mark.parametrize("value", ["text", 1, {1: 2}, None])
def test_refuses_what_is_not_a_list(value: Any) -> None:
    with pytest.raises(SerializationError, match="List expects a list or a tuple"):
        List(String()).serialize(value)


def test_refuses_entries_of_another_type() -> None:
    with pytest.raises(SerializationError, match="String expects str, got int"):
        List(String()).serialize([1])  # type: ignore[list-item]


def test_tuples_are_written_as_lists() -> None:
    assert List(int).serialize((1, None)) == List(int).serialize([1, None])  # type: ignore[arg-type]


def test_lists_have_no_identity() -> None:
    assert not List(String()).identity
