"""Windowed keys: round trips, and invalid windows."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records import Windowed
from penstock.serdes import Float64, Int64, SerializationError, SessionWindowed, String, TimeWindowed
from penstock.state import LaneState, StoreKind, StoreSpec, memory_engine

pytestmark = pytest.mark.security(27)

LONG_MAX = 2**63 - 1
times = st.integers(0, LONG_MAX)


@given(st.text(), st.integers(0, LONG_MAX - 1), st.integers(1, LONG_MAX))
def test_time_windows_round_trip(key: Any, start: Any, size: Any) -> None:
    serde = TimeWindowed(String(), size)
    windowed = Windowed(key, start, min(start + size, LONG_MAX))
    read = serde.deserialize(serde.serialize(windowed))
    assert type(read) is Windowed
    assert read == windowed


@given(st.text(), st.tuples(times, times).map(sorted))
def test_sessions_round_trip(key: Any, ends: Any) -> None:
    serde = SessionWindowed(String())
    windowed = Windowed(key, *ends)
    read = serde.deserialize(serde.serialize(windowed))
    assert type(read) is Windowed
    assert read == windowed


@given(st.lists(st.tuples(times, times).map(sorted), min_size=2))
def test_a_key_s_sessions_sort_by_end_then_start(sessions: Any) -> None:
    data = [SessionWindowed(str).serialize(Windowed("k", start, end)) for start, end in sessions]
    in_order = sorted(sessions, key=lambda session: (session[1], session[0]))
    assert [SessionWindowed(str).deserialize(each)[1:] for each in sorted(data)] == [tuple(session) for session in in_order]


@pytest.mark.parametrize(
    "value", [Windowed("a", -1, 9), Windowed("a", 2**63, 0), ("a", 0.5, 1), ("a", 1), "a", None, Windowed(None, 0, 10)]
)
def test_invalid_time_windows_are_refused(value: Any) -> None:
    with pytest.raises(SerializationError):
        TimeWindowed(String(), 10).serialize(value)


@pytest.mark.parametrize("value", [Windowed("a", -1, 9), Windowed("a", 2, 1), Windowed("a", 0, 2**63), ("a", 1), 7, None])
def test_invalid_sessions_are_refused(value: Any) -> None:
    with pytest.raises(SerializationError):
        SessionWindowed(String()).serialize(value)


def test_bytes_of_invalid_windows_are_errors() -> None:
    for data in (b"short", b"\xff" * 8, LONG_MAX.to_bytes(8, "big")):
        with pytest.raises(SerializationError, match="TimeWindowed"):
            TimeWindowed(String(), 1).deserialize(data)
    for data in (b"short", b"\xff" * 16, bytes(15) + b"\x01"):
        with pytest.raises(SerializationError, match="SessionWindowed"):
            SessionWindowed(String()).deserialize(data)


def test_empty_bytes_are_read_as_none_as_in_java() -> None:
    assert TimeWindowed(String(), 1).deserialize(b"") is None
    assert SessionWindowed(String()).deserialize(b"") is None


def test_identity_is_that_of_the_key() -> None:
    assert TimeWindowed(Int64(), 1).identity
    assert SessionWindowed(Int64()).identity
    assert not TimeWindowed(Float64(), 1).identity
    assert not SessionWindowed(Float64()).identity


def test_an_invalid_window_size_is_refused() -> None:
    with pytest.raises(ValueError, match="Invalid window size 0 ms: it must be at least 1 ms"):
        TimeWindowed(String(), 0)


@given(st.text(), st.integers(0, LONG_MAX - 10))
def test_keys_of_a_changelog_have_a_sequence_number_after_the_start(key: str, start: int) -> None:
    serde = TimeWindowed(str, 10, changelog=True)
    windowed = Windowed(key, start, start + 10)
    data = serde.serialize(windowed)
    assert data == TimeWindowed(str, 10).serialize(windowed) + bytes(4)
    assert serde.deserialize(data) == serde.deserialize(data[:-1] + b"\x07") == windowed


def test_a_serde_of_changelogs_differs_from_the_normal_one() -> None:
    serde = TimeWindowed(str, 10, changelog=True)
    assert serde != TimeWindowed(str, 10)
    assert pickle.loads(pickle.dumps(serde)) == serde
    with pytest.raises(SerializationError):
        serde.deserialize(bytes(11))


def test_the_changelog_of_a_window_store_can_be_read() -> None:
    lane = LaneState(memory_engine())
    spec = StoreSpec("w", StoreKind.WINDOW, String(), String(), retention_ms=60_000, window_size_ms=10)
    lane.store(spec).put("k", "v", 20)
    [keys] = [change.keys for change in lane.commit(0) if change.store == "w"]
    assert list(map(TimeWindowed(str, 10, changelog=True).deserialize, keys)) == [Windowed("k", 20, 30)]
