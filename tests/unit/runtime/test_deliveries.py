"""Deliveries without Kafka: a list is the topic, and a target that fails when it is told to."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from penstock import StreamsBuilder
from penstock.delivery import Delivered, Target
from penstock.errors import FencedError, SerializationError, TopicError, TopologyError
from penstock.kafka.records import TopicRecord
from penstock.records import Partition
from penstock.runtime import deliveries
from penstock.runtime.deliveries import Deliveries, Follower
from penstock.topology import SinkNode

WAIT_S = 10
NEVER = threading.Event()


class Log:
    """A topic of two partitions as a list, and its reader."""

    def __init__(self) -> None:
        self.records: list[TopicRecord] = []
        self.begins: dict[Partition, int] = {("out", 0): 0, ("out", 1): 0}

    def add(self, partition: int, value: bytes | None) -> None:
        offset = sum(record.partition == partition for record in self.records)
        self.records.append(TopicRecord("out", partition, offset, b"k", value, 5, ()))

    def begin(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {place: self.begins[place] for place in partitions}

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {place: sum(record.partition == place[1] for record in self.records) for place in partitions}

    def read(self, positions: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Iterator[TopicRecord]:
        for record in list(self.records):
            place = record.topic, record.partition
            if positions[place] <= record.offset < ends[place]:
                yield record

    def close(self) -> None:
        pass


class Shelf(Target):
    """A target in memory; `errors` are raised one after the other, before or after a write has taken effect."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, Any]] = []
        self.offsets: dict[int, int] = {}
        self.errors: list[Exception] = []
        self.is_late = False
        self.opened = 0

    def open(self, name: str) -> Mapping[int, int]:
        assert name == "shop/out"
        self.opened += 1
        return dict(self.offsets)

    def write(self, rows: Sequence[Delivered], begins: Mapping[int, int], ends: Mapping[int, int]) -> None:
        if self.errors and not self.is_late:
            raise self.errors.pop(0)
        if any(self.offsets.get(partition, begin) != begin for partition, begin in begins.items()):
            raise FencedError("someone else")
        self.rows += [(row.partition, row.offset, row.value) for row in rows]
        self.offsets |= ends
        if self.errors:
            raise self.errors.pop(0)

    def close(self) -> None:
        pass


class Hung(Shelf):
    """A target whose connection hangs."""

    is_asked = False
    answered: threading.Event

    def write(self, rows: Sequence[Delivered], begins: Mapping[int, int], ends: Mapping[int, int]) -> None:
        self.is_asked = True
        self.answered.wait(WAIT_S)


def delivered(log: Log, *targets: Target) -> Deliveries:
    builder = StreamsBuilder()
    source = builder.stream("in", value=dict)
    for target in targets:
        source.to("out", deliver_to=target)
    sinks = [node for node in builder.build().nodes.values() if isinstance(node, SinkNode)]
    return Deliveries("shop", sinks, Follower(lambda topic: list(log.begins), log.begin, log.ends, lambda: log))


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "_PATIENCE_S", (0.01,))
    monkeypatch.setattr(deliveries, "_LOOK_EVERY_S", 0.01)
    monkeypatch.setattr(deliveries, "_PARTITIONS_EVERY_S", 0.0)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def delivering(log: Log, shelf: Shelf) -> Iterator[Deliveries]:
    made = delivered(log, shelf)
    yield made
    made.stop()


def wait(delivering: Deliveries, until: Any) -> None:
    end = time.monotonic() + WAIT_S
    while not until():
        delivering.check()
        assert time.monotonic() < end, "not in time"
        time.sleep(0.005)


def test_each_record_is_delivered_once(log: Log, shelf: Shelf, delivering: Deliveries) -> None:
    log.add(0, b'{"a": 1}')
    log.add(1, None)
    delivering.start()
    delivering.finish(NEVER)
    assert shelf.rows == [(0, 0, {"a": 1}), (1, 0, None)]
    log.add(0, b'{"a": 2}')
    delivering.after_commit(1)
    wait(delivering, lambda: len(shelf.rows) == 3)
    assert shelf.offsets == {0: 2, 1: 1}


def test_it_continues_where_the_target_is(log: Log, shelf: Shelf, delivering: Deliveries) -> None:
    for number in range(4):
        log.add(0, b'{"a": %d}' % number)
    shelf.offsets = {0: 3}
    delivering.start()
    delivering.finish(NEVER)
    assert shelf.rows == [(0, 3, {"a": 3})]


@pytest.mark.parametrize("is_late", [False, True], ids=["before it is stored", "after it is stored"])
@pytest.mark.parametrize("error", [ConnectionError("gone"), FencedError("taken over")], ids=["lost", "fenced"])
def test_a_target_that_fails_for_a_while_is_opened_again(
    log: Log, shelf: Shelf, delivering: Deliveries, error: Exception, is_late: bool
) -> None:
    shelf.errors, shelf.is_late = [error, error], is_late
    log.add(0, b'{"a": 1}')
    log.add(0, b'{"a": 2}')
    delivering.start()
    wait(delivering, lambda: len(shelf.rows) == 2)
    delivering.finish(NEVER)
    assert shelf.rows == [(0, 0, {"a": 1}), (0, 1, {"a": 2})]
    assert shelf.opened >= 2


def test_a_stop_does_not_wait_for_a_target_that_is_down(
    log: Log, shelf: Shelf, delivering: Deliveries, caplog: pytest.LogCaptureFixture
) -> None:
    shelf.errors = [ConnectionError("gone")] * 100_000
    log.add(0, b'{"a": 1}')
    delivering.start()
    stop = threading.Event()
    finishing = threading.Thread(target=delivering.finish, args=[stop], daemon=True)
    finishing.start()
    finishing.join(0.2)
    assert finishing.is_alive()  # a run with a bound delivers everything, unless it is stopped
    stop.set()
    finishing.join(WAIT_S)
    assert not finishing.is_alive()
    assert "the next start delivers the rest" in caplog.text


def test_several_targets_that_hang_are_given_up_together(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "_STOP_S", 0.3)
    shelves, answered = [Hung(), Hung(), Hung()], threading.Event()
    for shelf in shelves:
        shelf.answered = answered
    delivering = delivered(log, *shelves)
    log.add(0, b'{"a": 1}')
    delivering.start()
    wait(delivering, lambda: all(shelf.is_asked for shelf in shelves))
    began = time.monotonic()
    delivering.stop()
    assert time.monotonic() - began < 0.6
    answered.set()


def test_an_error_that_will_not_pass_is_raised(log: Log, shelf: Shelf, delivering: Deliveries) -> None:
    shelf.errors = [ValueError("no such column")]
    log.add(0, b'{"a": 1}')
    delivering.start()
    with pytest.raises(ValueError, match="no such column"):
        delivering.finish(NEVER)


def test_a_record_that_cannot_be_read_is_named(log: Log, delivering: Deliveries) -> None:
    log.add(1, b"{")
    delivering.start()
    with pytest.raises(SerializationError, match="out-1 at offset 0"):
        delivering.finish(NEVER)


@pytest.mark.parametrize(("begin", "stored"), [(5, 3), (0, 9)], ids=["deleted", "created again"])
def test_a_gap_is_refused(log: Log, shelf: Shelf, delivering: Deliveries, begin: int, stored: int) -> None:
    log.add(0, b'{"a": 1}')
    log.begins["out", 0], shelf.offsets = begin, {0: stored}
    delivering.start()
    with pytest.raises(TopicError, match=f"everything before offset {stored}"):
        delivering.finish(NEVER)


def test_new_partitions_are_delivered_from_their_beginning(log: Log, shelf: Shelf, delivering: Deliveries) -> None:
    delivering.start()
    delivering.finish(NEVER)
    log.begins["out", 2] = 0
    log.add(2, b'{"a": 1}')
    wait(delivering, lambda: shelf.rows == [(2, 0, {"a": 1})])


def test_a_topic_that_a_function_chooses_cannot_be_delivered(shelf: Shelf) -> None:
    with pytest.raises(TopologyError, match="deliver_to= needs the name of a topic"):
        StreamsBuilder().stream("in", value=dict).to(lambda key, value, context: "out", deliver_to=shelf)
