"""When a table's changes are emitted: immediately, or at the end of the epoch and then once per key."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.operators.emission import emitter
from penstock.records import Change, Headers, Windowed
from penstock.serdes import Json, String, serde_of
from penstock.state import StoreKind, StoreSpec

Sent = tuple[Any, Change, int]
HEADERS = (("trace", b"1"),)


class Epoch:
    """A host with one store, and an epoch that the test flushes."""

    def __init__(self, *, cached: bool, key: Any = str, send_old_values: bool = True) -> None:
        self.sent: list[Sent] = []
        self.headers: list[Headers] = []
        self._spec = StoreSpec("t", StoreKind.TIMESTAMPED, serde_of(key), Json(), cached=cached)
        self._pending: dict[Any, Any] = {}
        self._flush: Any = None
        host: Any = self  # as much of one as an emitter needs
        self.emit = emitter(host, "t", self._forward, send_old_values)

    def _forward(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.sent.append((key, value, timestamp))
        self.headers.append(headers)

    def spec(self, name: str) -> StoreSpec:
        return self._spec

    def pending(self, store: str, flush: Any) -> dict[Any, Any]:
        self._flush = flush
        return self._pending

    def change(self, key: Any, new: Any, old: Any, timestamp: int = 0, record_timestamp: int = 0) -> None:
        self.emit(key, Change(new, old), timestamp, HEADERS, record_timestamp)

    def flushed(self) -> list[Sent]:
        self._flush(self._pending)
        sent, self.sent = self.sent, []
        return sent


class TestAtOnce:
    def test_every_change_is_sent_as_it_is(self) -> None:
        epoch = Epoch(cached=False)
        epoch.change("a", 1, None, 5)
        epoch.change("a", None, 1, 6)
        epoch.emit("a", Change(2, 1, False), 7, (), 7)
        assert epoch.sent == [("a", Change(1, None), 5), ("a", Change(None, 1), 6), ("a", Change(2, 1, False), 7)]
        assert epoch.headers[0] == HEADERS

    def test_old_values_are_omitted_unless_requested(self) -> None:
        epoch = Epoch(cached=False, send_old_values=False)
        epoch.emit("a", Change(2, 1, False), 7, (), 7)
        assert epoch.sent == [("a", Change(2, None, False), 7)]


class TestDeferred:
    def test_only_the_last_change_of_a_key_is_sent_with_the_value_before_the_first(self) -> None:
        epoch = Epoch(cached=True)
        epoch.change("a", 1, 0, 5)
        epoch.change("a", 2, 1, 6)
        assert epoch.sent == []
        assert epoch.flushed() == [("a", Change(2, 0), 6)]
        assert epoch.flushed() == []

    def test_the_next_epoch_starts_empty(self) -> None:
        epoch = Epoch(cached=True)
        epoch.change("a", 1, None)
        epoch.flushed()
        epoch.change("a", 2, 1)
        assert epoch.flushed() == [("a", Change(2, 1), 0)]

    def test_keys_go_in_the_order_of_their_last_changes(self) -> None:
        epoch = Epoch(cached=True)
        for key in ("a", "b", "c", "a"):
            epoch.change(key, 1, None)
        assert [key for key, _, _ in epoch.flushed()] == ["b", "c", "a"]

    def test_a_key_added_and_deleted_within_an_epoch_is_not_sent(self) -> None:
        epoch = Epoch(cached=True)
        epoch.change("a", 1, None)
        epoch.change("a", None, 1)
        epoch.change("b", None, 1)
        assert epoch.flushed() == [("b", Change(None, 1), 0)]

    def test_a_deletion_has_the_time_of_its_record(self) -> None:
        epoch = Epoch(cached=True)
        epoch.change("a", None, 1, timestamp=9, record_timestamp=4)
        epoch.change("b", 2, 1, timestamp=9, record_timestamp=4)
        assert [time for _, _, time in epoch.flushed()] == [4, 9]

    def test_omitted_old_values_still_decide_what_is_sent(self) -> None:
        epoch = Epoch(cached=True, send_old_values=False)
        epoch.change("a", None, 1)
        epoch.change("b", None, None)
        assert epoch.flushed() == [("a", Change(None, None), 0)]

    def test_a_change_made_while_flushing_waits_for_the_next_flush(self) -> None:
        epoch: Any = Epoch(cached=True)

        def come_round(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            epoch.change("b", 1, None)

        looping = emitter(epoch, "t", come_round, True)
        looping("a", Change(1, None), 0, (), 0)
        epoch.flushed()
        assert list(epoch._pending) == ["b"]

    @pytest.mark.parametrize(
        ("one", "same", "other"),
        [({"x": 1, "y": 2}, {"x": 1, "y": 2}, {"x": 2}), (Windowed([1], 0, 5), Windowed([1], 0, 5), Windowed([1], 5, 10))],
    )
    def test_keys_without_identity_are_compared_by_their_bytes(self, one: Any, same: Any, other: Any) -> None:
        epoch = Epoch(cached=True, key=Json())
        for key in (one, same, other):
            epoch.change(key, 1, None)
        assert [key for key, _, _ in epoch.flushed()] == [one, other]

    def test_text_keys_are_compared_directly(self) -> None:
        assert String().identity
        epoch = Epoch(cached=True)
        epoch.change("a", 1, None)
        assert list(epoch._pending) == ["a"]
