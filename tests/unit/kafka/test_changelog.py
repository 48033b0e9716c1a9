"""When a changelog partition counts as read to its end; the client itself is tested with a real broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import KafkaError

from penstock.advance import advancing
from penstock.errors import BrokerError, StateError
from penstock.kafka.changelog import _rows, read


@dataclass
class FakeMessage:
    """A message as the client hands it over."""

    at: int | None
    of: tuple[str, int] | None = ("log", 0)
    raw_key: bytes | None = b"k"
    raw_value: bytes | None = b"v"
    code: int | None = None
    retriable: bool = False

    def topic(self) -> str | None:
        return self.of[0] if self.of else None

    def partition(self) -> int | None:
        return self.of[1] if self.of else None

    def offset(self) -> int | None:
        return self.at

    def key(self) -> bytes | None:
        return self.raw_key

    def value(self) -> bytes | None:
        return self.raw_value

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code, retriable=self.retriable)


def eof(at: int) -> FakeMessage:
    return FakeMessage(at, code=KafkaError._PARTITION_EOF)


def rows(messages: list[Any], ends: dict[tuple[str, int], int]) -> tuple[list[Any], dict[tuple[str, int], int]]:
    left = dict(ends)
    return list(_rows(messages, left)), left


END = {("log", 0): 5}


@pytest.mark.parametrize(
    ("messages", "is_done"),
    [
        ([], False),
        ([FakeMessage(3)], False),
        ([FakeMessage(4)], True),  # the last offset is a record
        ([FakeMessage(2), eof(5)], True),  # only control records follow
        ([eof(5)], True),
        ([eof(7)], True),  # records were written after the end
        ([eof(4)], False),  # before our end
        ([FakeMessage(2), FakeMessage(6)], True),  # the next record is past the end
    ],
)
def test_a_partition_is_done_at_its_end(messages: list[FakeMessage], is_done: bool) -> None:
    assert (rows(messages, END)[1] == {}) == is_done


def test_rows_are_grouped_by_partition_in_order_up_to_the_end() -> None:
    other = ("other", 1)
    messages = [
        FakeMessage(0, raw_value=b"1"),
        FakeMessage(7, other),
        FakeMessage(2, raw_value=None),
        FakeMessage(9, other),
        FakeMessage(8, other),
        FakeMessage(5),
    ]
    found, left = rows(messages, {**END, other: 9})
    assert found == [("log", 0, [b"k", b"k"], [b"1", None]), ("other", 1, [b"k"], [b"v"])]
    assert left == {}


def test_a_row_without_a_key_is_refused() -> None:
    with pytest.raises(StateError, match="log-0 at offset 1: changelog record without a key"):
        rows([FakeMessage(1, raw_key=None)], END)


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE])
def test_a_position_that_no_longer_exists_requires_a_rebuild(code: int) -> None:
    with pytest.raises(StateError, match=r"log-0: the changelog no longer has the offset to continue from\. Rebuild"):
        rows([FakeMessage(1, code=code)], END)


def test_retriable_errors_are_skipped_and_others_raised() -> None:
    assert rows([FakeMessage(None, None, code=KafkaError._TRANSPORT, retriable=True), FakeMessage(None, None)], END) == ([], END)
    with pytest.raises(BrokerError, match="Cannot read changelogs"):
        rows([FakeMessage(None, None, code=KafkaError._ALL_BROKERS_DOWN)], END)


def test_nothing_to_read_needs_no_broker() -> None:
    assert not list(read({}, {("log", 0): 5}, END, 1_000))
    assert not list(read({}, {}, {("log", 0): 0}, 1_000))


def test_who_follows_a_restore_learns_up_to_where_it_has_read() -> None:
    with advancing() as followed:
        rows([FakeMessage(2), FakeMessage(3)], END)
        assert (followed.pieces, followed.where) == (1, "reading log-0 at offset 4")
        rows([FakeMessage(None, of=None, code=KafkaError._TRANSPORT, retriable=True)], END)
        assert followed.pieces == 1  # a client that only tells of its troubles has read nothing
        rows([eof(5)], END)
        assert (followed.pieces, followed.where) == (2, "reading log-0 at offset 5")
