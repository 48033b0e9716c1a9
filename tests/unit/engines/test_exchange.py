"""Rows from slot to slot, here between two inboxes of this process: over Unix sockets, and secured as between hosts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.engines import exchange as module
from penstock.engines.connections import connected, listening
from penstock.engines.exchange import Exchange, Parcel, RowsLostError, Way
from penstock.engines.messages import Kind, send
from tests.unit.epochs.spread import KEY

PATIENCE_S = 10.0
Opened = Callable[[], Exchange]


def rows(*numbers: int) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict({"number": pa.array(numbers, pa.int64())})]


def numbers(batches: list[pa.RecordBatch]) -> list[int]:
    return [number for batch in batches for number in batch.column("number").to_pylist()]


@pytest.fixture(params=["one machine", "hosts"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    made: list[Exchange] = []

    def open_one() -> Exchange:
        where: Any = "127.0.0.1" if request.param == "hosts" else tmp_path_factory.mktemp("inbox") / "rows"
        made.append(Exchange(where, KEY))
        return made[-1]

    yield open_one
    for each in made:
        each.close()


def way(number: int, *exchanges: Exchange) -> Way:
    return Way(number, tuple(exchange.inbox.address for exchange in exchanges))


def test_each_lane_gets_the_rows_of_all_senders_in_their_order(opened: Opened) -> None:
    one, other = opened(), opened()
    there = way(0, one, other, one)
    assert other.hand_over(there, 1, sender=1, parts={0: rows(4), 1: rows(5), 2: []}, most_bytes=0)
    assert one.hand_over(there, 1, sender=0, parts={0: rows(1), 1: rows(2), 2: rows(3)}, most_bytes=0)
    found = [exchange.inbox.take(0, 1, lane, senders=2) for lane, exchange in enumerate((one, other, one))]
    assert list(map(numbers, found)) == [[1, 4], [2, 5], [3]]


def test_rows_are_taken_once(opened: Opened) -> None:
    one = opened()
    one.hand_over(way(0, one), 1, 0, {0: rows(1)}, most_bytes=0)
    one.inbox.take(0, 1, 0, senders=1)
    with pytest.raises(RowsLostError):
        one.inbox.take(0, 1, 0, senders=1)


def test_rows_of_steps_do_not_mix(opened: Opened) -> None:
    one = opened()
    for at in (1, 2):
        one.hand_over(way(0, one), at, 0, {0: rows(at)}, most_bytes=0)
    assert numbers(one.inbox.take(0, 2, 0, senders=1)) == [2]
    assert numbers(one.inbox.take(0, 1, 0, senders=1)) == [1]


def test_rows_that_are_missing_are_an_error_and_not_awaited(opened: Opened) -> None:
    """The driver requests a step when all slots have sent: what is missing was sent to a slot that has ended."""
    one = opened()
    one.hand_over(way(0, one), 1, 0, {0: rows(1)}, most_bytes=0)
    with pytest.raises(RowsLostError, match="lane 0"):
        one.inbox.take(0, 1, 0, senders=2)


def test_rows_of_an_earlier_walk_are_refused(opened: Opened) -> None:
    """They come from a slot that was suspended: the epoch runs again without it."""
    one, late = opened(), opened()
    one.hand_over(way(0, one), 1, 0, {0: rows(1)}, most_bytes=0)
    one.hand_over(way(1, one), 1, 0, {0: rows(2)}, most_bytes=0)
    with pytest.raises(RowsLostError):
        late.hand_over(way(0, one), 1, 1, {0: rows(3)}, most_bytes=0)
    with pytest.raises(RowsLostError):
        one.inbox.take(0, 1, 0, senders=1)
    assert numbers(one.inbox.take(1, 1, 0, senders=1)) == [2]


def test_an_inbox_keeps_no_more_of_a_lane_than_an_epoch_may_have(opened: Opened) -> None:
    one, other = opened(), opened()
    there, size = way(0, one, one), rows(1, 2)[0].nbytes
    assert one.hand_over(there, 1, 0, {0: rows(1, 2), 1: []}, most_bytes=size)
    assert not other.hand_over(there, 1, 1, {0: rows(3), 1: rows(4)}, most_bytes=size)
    assert numbers(one.inbox.take(0, 1, 1, senders=2)) == [4]  # another lane has room


def test_a_slot_that_has_ended_loses_the_rows_and_its_successor_gets_the_next(opened: Opened) -> None:
    one, other = opened(), opened()
    one.hand_over(way(0, other), 1, 0, {0: rows(1)}, most_bytes=0)
    other.close()
    for _ in range(2):
        with pytest.raises(RowsLostError, match="lane 0"):
            one.hand_over(way(1, other), 1, 0, {0: rows(1)}, most_bytes=0)
    successor = opened()
    assert one.hand_over(way(2, successor), 1, 0, {0: rows(2)}, most_bytes=0)
    assert numbers(successor.inbox.take(2, 1, 0, senders=1)) == [2]


def test_an_inbox_that_does_not_answer_is_not_awaited_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process was suspended: its system still accepts connections."""
    monkeypatch.setattr(module, "_ANSWER_S", 0.2)
    listener, address = listening(tmp_path / "suspended")
    one = Exchange(tmp_path / "one", b"")
    with listener, pytest.raises(RowsLostError, match="timed out"):
        one.hand_over(Way(0, (address,)), 1, 0, {0: rows(1)}, most_bytes=0)
    one.close()


@pytest.mark.parametrize("sent", [b"", b"\xc1", b"\x91\x01"])
def test_what_is_no_parcel_ends_the_connection_and_nothing_else(opened: Opened, sent: bytes) -> None:
    one = opened()
    with connected(one.inbox.address, KEY) as connection:
        for _ in range(2):
            send(connection, Kind.ROWS, sent)
        connection.settimeout(PATIENCE_S)
        assert not connection.recv(1)
    assert one.hand_over(way(0, one), 1, 0, {0: rows(1)}, most_bytes=0)


def test_whoever_does_not_know_the_key_reaches_no_inbox_of_another_host() -> None:
    one = Exchange("127.0.0.1", KEY)
    stranger = Exchange("127.0.0.1", bytes(len(KEY)))
    with pytest.raises(Exception, match="key"):
        stranger.hand_over(way(0, one), 1, 0, {0: rows(1)}, most_bytes=0)
    one.close()
    stranger.close()


def test_a_closed_inbox_leaves_neither_threads_nor_files(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    one, other = (Exchange(tmp_path / name, b"") for name in ("one", "other"))
    one.hand_over(way(0, other), 1, 0, {0: rows(1)}, most_bytes=0)
    one.close()
    other.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert list(tmp_path.iterdir()) == []


def test_parcels_cross_as_they_are() -> None:
    parcel = Parcel(3, 1, 2, 0, 77)
    assert (parcel.number, parcel.at, parcel.lane, parcel.sender, parcel.most_bytes) == (3, 1, 2, 0, 77)
