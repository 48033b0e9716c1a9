"""Who is active, according to the lanes' topic: the last announcement counts, and nothing is read twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.history.committed import ACTIVE, FACTS_PARTITION, TOPOLOGY
from penstock.kafka.commit import Committer
from penstock.kafka.records import TopicRecord
from penstock.records import Partition
from penstock.runtime.standby.announcement import Announcement, Announcements, announce, encode_announcement

TOPIC = "app-lanes-changelog"
PLACE = (TOPIC, FACTS_PARTITION)
ONE, TWO = (Announcement(name, "127.0.0.1", 4_000, b"k" * 32) for name in ("one", "two"))


class Log:
    """A topic, and the requests about it."""

    def __init__(self) -> None:
        self.exists = True
        self.begin = 0
        self.rows: list[tuple[bytes, bytes | None]] = []
        self.reads: list[tuple[int, int]] = []

    def add(self, key: bytes, value: bytes | None) -> None:
        self.rows.append((key, value))

    def seen(self, names: Iterable[str]) -> dict[str, Any]:
        return dict.fromkeys(names) if self.exists else {}

    def begin_offsets(self, places: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(places, self.begin)

    def end_offsets(self, places: Iterable[Partition]) -> dict[Partition, int]:
        return dict.fromkeys(places, self.begin + len(self.rows))

    def read(self, positions: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Iterator[TopicRecord]:
        begin, end = positions[PLACE], ends[PLACE]
        self.reads.append((begin, end))
        for offset in range(begin, end):
            key, value = self.rows[offset - self.begin]
            yield TopicRecord(*PLACE, offset, key, value, 0, ())


@pytest.fixture
def log() -> Log:
    return Log()


def announcements(log: Log) -> Announcements:
    given: Any = log
    return Announcements("app", given, given)


def test_without_a_topic_nobody_is_active(log: Log) -> None:
    log.exists = False
    found = announcements(log)
    assert found.last() is None
    log.exists = True
    log.add(ACTIVE, encode_announcement(ONE))
    assert found.last() == ONE


def test_the_last_announcement_counts_whatever_else_is_there(log: Log) -> None:
    for key, value in ((ACTIVE, encode_announcement(ONE)), (TOPOLOGY, b"{}"), (b"registers", b"x"), (b"reset", None)):
        log.add(key, value)
    found = announcements(log)
    assert found.last() == ONE
    log.add(ACTIVE, encode_announcement(TWO))
    log.add(TOPOLOGY, b"{}")
    assert found.last() == TWO
    assert found.last() == TWO
    assert log.reads == [(0, 4), (4, 6), (6, 6)]


def test_reading_begins_where_the_topic_does(log: Log) -> None:
    log.begin = 7
    log.add(ACTIVE, encode_announcement(ONE))
    assert announcements(log).last() == ONE
    assert log.reads == [(7, 8)]


def test_a_topic_that_was_created_again_is_read_from_its_beginning(log: Log) -> None:
    for _ in range(5):
        log.add(ACTIVE, encode_announcement(ONE))
    found = announcements(log)
    assert found.last() == ONE
    log.rows = [(b"registers", b"x")]
    assert found.last() is None


def test_it_is_announced_in_a_transaction_of_its_own() -> None:
    did: list[Any] = []

    def commit() -> bool:
        did.append("commit")
        return True

    publisher: Any = SimpleNamespace(
        begin=lambda: did.append("begin"),
        produce=lambda rows: did.append(rows.to_pylist()),
        send_offsets=lambda offsets: did.append(list(offsets)),
        commit=commit,
    )
    announce(ONE, "app", Committer(publisher))
    begin, [row], offsets, committed = did
    assert (begin, offsets, committed) == ("begin", [], "commit")
    assert (row["topic"], row["partition"], row["key"], row["value"]) == (*PLACE, ACTIVE, encode_announcement(ONE))
