"""Writes to shared stores as values: what they do to a key, their serde, and what cannot be shared."""

from __future__ import annotations

from operator import add, mul
from typing import Any

import pytest

from penstock import shared_store
from penstock.errors import SerializationError, StateError
from penstock.serdes import Int64
from penstock.state import Act, Sharing, StoreKind, StoreSpec, Write, write_serde

SPEC = shared_store("kept", value=int, merge=add, operations=[mul, lambda current, argument: None], argument=str)


@pytest.mark.parametrize(
    ("write", "current", "after"),
    [
        (Write(Act.PUT, 7), 1, 7),
        (Write(Act.PUT, None), 1, None),
        (Write(Act.PUT_IF_ABSENT, 7), None, 7),
        (Write(Act.PUT_IF_ABSENT, 7), 0, 0),
        (Write(Act.MERGE, 7), None, 7),
        (Write(Act.MERGE, 7), 0, 7),
        (Write(Act.MERGE, 7), 5, 12),
        (Write(Act.COMPUTE, 7, 0), 5, 35),
        (Write(Act.COMPUTE, None, 1), 5, None),
    ],
)
def test_what_a_write_does(write: Write, current: Any, after: Any) -> None:
    assert write.done(SPEC, current) == after


@pytest.mark.parametrize(
    "write",
    [Write(Act.PUT, 7), Write(Act.PUT, None), Write(Act.MERGE, 7), Write(Act.COMPUTE, "x", 1), Write(Act.COMPUTE, None, 300)],
)
def test_a_write_round_trips(write: Write) -> None:
    serde = write_serde(SPEC)
    assert serde.deserialize(serde.serialize(write)) == write


def test_arguments_use_the_value_serde_by_default() -> None:
    serde = write_serde(shared_store("kept", value=int, operations=[mul]))
    assert serde.serialize(Write(Act.COMPUTE, 7)).endswith(Int64().serialize(7))


@pytest.mark.parametrize("data", [b"", b"\x09\x00\x00\x01rest"])
def test_invalid_writes_are_rejected(data: bytes) -> None:
    with pytest.raises(SerializationError, match="Invalid write to a shared store"):
        write_serde(SPEC).deserialize(data)


def test_only_plain_and_timestamped_stores_are_shared() -> None:
    with pytest.raises(StateError, match="'kept': only key-value and timestamped stores without a TTL can be shared"):
        StoreSpec("kept", StoreKind.KEY_VALUE, Int64(), Int64(), ttl_ms=5, sharing=Sharing())
    with pytest.raises(StateError, match="can be shared"):
        StoreSpec("kept", StoreKind.VERSIONED, Int64(), Int64(), retention_ms=5, sharing=Sharing())
    table = StoreSpec("kept", StoreKind.TIMESTAMPED, Int64(), Int64(), sharing=Sharing())
    assert not table.takes_writes
    assert SPEC.takes_writes
