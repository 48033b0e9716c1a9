"""Deliveries without Kafka: a list is the topic, and a target that fails when it is told to."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamsBuilder
from penstock.delivery import Delivered, Files, Target
from penstock.delivery.target import refuse_new_topic
from penstock.errors import FencedError, ProcessingError, RegistryError, TopicError, TopologyError
from penstock.handlers import ErrorHandlers, dead_letter, log_and_continue
from penstock.kafka.records import TopicRecord
from penstock.kafka.topics import Topic
from penstock.lanes.outbox import Row
from penstock.letters import Letter
from penstock.records import Partition, RecordMetadata
from penstock.runtime.beyond import deliveries
from penstock.runtime.beyond.deliveries import Deliveries, Follower, OnLost
from penstock.runtime.beyond.undelivered import Undelivered
from penstock.serdes import Json
from penstock.topology import SinkNode

WAIT_S = 10
NEVER = threading.Event()


class Log:
    """A topic of two partitions as a list, and its reader."""

    def __init__(self) -> None:
        self.records: list[TopicRecord] = []
        self.begins: dict[Partition, int] = {("out", 0): 0, ("out", 1): 0}
        self.topic_id = "first"
        self.marks: set[tuple[int, int]] = set()

    def topic(self, name: str) -> Topic | None:
        return Topic(name, self.topic_id, len(self.begins), {}) if self.topic_id else None

    def create_again(self) -> None:
        self.records, self.topic_id = [], "second"

    def add(self, partition: int, value: bytes | None) -> None:
        offset = sum(record.partition == partition for record in self.records)
        self.records.append(TopicRecord("out", partition, offset, b"k", value, 5, ()))

    def end_transaction(self, partition: int) -> None:
        """Add a control record: it has an offset, but no reader gets it."""
        self.add(partition, None)
        self.marks.add((partition, self.records[-1].offset))

    def begin(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {place: self.begins[place] for place in partitions}

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {place: sum(record.partition == place[1] for record in self.records) for place in partitions}

    def read(self, positions: Mapping[Partition, int], ends: Mapping[Partition, int]) -> Iterator[TopicRecord]:
        for record in list(self.records):
            place = record.topic, record.partition
            if positions[place] < self.begins[place] and positions[place] < ends[place]:
                raise TopicError("the next record is gone")
            is_mark = (record.partition, record.offset) in self.marks
            if positions[place] <= record.offset < ends[place] and not is_mark:
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
        self.topic_id = ""
        self.opened = 0

    def open(self, name: str, topic_id: str) -> Mapping[int, int]:
        assert name == "shop/out"
        refuse_new_topic(self.topic_id, topic_id, "Take another shelf.")
        self.topic_id = topic_id
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


class Outcome:
    """What a run has done with records that it could not deliver."""

    def __init__(self) -> None:
        self.letters: list[Row] = []
        self.dropped = Counter[tuple[str, str]]()

    def drop(self, node: str, reason: str) -> None:
        self.dropped[node, reason] += 1


def delivered(
    log: Log,
    *targets: Target,
    on_lost: OnLost | None = None,
    handlers: ErrorHandlers | None = None,
    outcome: Outcome | None = None,
) -> Deliveries:
    builder = StreamsBuilder()
    source = builder.stream("in", value=dict)
    for target in targets:
        source.to("out", deliver_to=target)
    sinks = [node for node in builder.build().nodes.values() if isinstance(node, SinkNode)]
    outcome = outcome or Outcome()
    undelivered = Undelivered("shop", handlers or ErrorHandlers(), outcome.letters.append, outcome.drop)
    return Deliveries("shop", sinks, Follower(log.topic, log.begin, log.ends, lambda: log), undelivered, on_lost)


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
    with pytest.raises(ProcessingError, match=r"KSTREAM-SINK.* out-1 at offset 0 .*\n.*declared at"):
        delivering.finish(NEVER)


def test_what_follows_the_last_record_is_stored_too(log: Log, shelf: Shelf, delivering: Deliveries) -> None:
    log.add(0, b'{"a": 1}')
    log.end_transaction(0)
    delivering.start()
    delivering.finish(NEVER)
    assert shelf.offsets == {0: 2, 1: 0}
    log.end_transaction(0)  # of a transaction that was aborted
    wait(delivering, lambda: shelf.offsets == {0: 3, 1: 0})
    assert shelf.rows == [(0, 0, {"a": 1})]


@pytest.mark.parametrize("is_running", [True, False])
def test_a_topic_that_is_all_delivered_may_lose_everything(log: Log, shelf: Shelf, is_running: bool) -> None:
    log.add(0, b'{"a": 1}')
    log.end_transaction(0)
    delivering = delivered(log, shelf)
    delivering.start()
    delivering.finish(NEVER)
    if not is_running:
        delivering.stop()
        delivering = delivered(log, shelf)
    log.begins["out", 0] = 2  # by retention
    if not is_running:
        delivering.start()
    log.add(0, b'{"a": 2}')
    wait(delivering, lambda: shelf.rows == [(0, 0, {"a": 1}), (0, 2, {"a": 2})])
    delivering.stop()


def test_nothing_is_stored_before_the_first_record(log: Log, shelf: Shelf, delivering: Deliveries) -> None:
    log.end_transaction(0)
    delivering.start()
    delivering.finish(NEVER)
    assert shelf.offsets == {}
    log.add(0, b'{"a": 1}')
    wait(delivering, lambda: shelf.rows == [(0, 1, {"a": 1})])


@pytest.mark.parametrize(
    ("begin", "stored", "why"),
    [
        (5, 3, "offsets 3 to 4 of out-0 were deleted before they were delivered"),
        (0, 9, "out-0 ends at offset 8, but is delivered up to offset 9"),
    ],
    ids=["deleted", "truncated"],
)
def test_a_gap_is_refused(log: Log, shelf: Shelf, delivering: Deliveries, begin: int, stored: int, why: str) -> None:
    for _ in range(8):
        log.add(0, b'{"a": 1}')
    log.begins["out", 0], shelf.offsets = begin, {0: stored}
    delivering.start()
    with pytest.raises(TopicError, match=f"KSTREAM-SINK.* cannot deliver 'out' .*{why}.*set on_lost_input = continue"):
        delivering.finish(NEVER)


def test_a_gap_while_running_says_what_is_missing(log: Log, shelf: Shelf, delivering: Deliveries) -> None:
    shelf.errors = [ConnectionError("gone")] * 20
    log.add(0, b'{"a": 1}')
    delivering.start()
    wait(delivering, lambda: shelf.opened > 2)
    log.begins["out", 0] = 1
    with pytest.raises(TopicError, match="offsets 0 to 0 of out-0 were deleted"):
        wait(delivering, lambda: False)


def test_a_gap_may_be_skipped(log: Log, shelf: Shelf) -> None:
    for number in range(8):
        log.add(0, b'{"a": %d}' % number)
    log.begins["out", 0], shelf.offsets = 5, {0: 3}
    lost = Counter[Partition]()
    delivering = delivered(log, shelf, on_lost=lambda place, count: lost.update({place: count}))
    delivering.start()
    delivering.finish(NEVER)
    delivering.stop()
    assert [offset for _, offset, _ in shelf.rows] == [5, 6, 7]
    assert lost == {("out", 0): 2}


def test_a_topic_that_was_created_again_is_refused(log: Log, shelf: Shelf, delivering: Deliveries) -> None:
    log.create_again()
    log.add(0, b'{"a": 1}')
    log.add(0, b'{"a": 2}')
    shelf.offsets, shelf.topic_id = {0: 1}, "first"
    delivering.start()
    with pytest.raises(TopicError, match=r"KSTREAM-SINK.* cannot deliver 'out' .*deleted and created again .*Take another shelf"):
        delivering.finish(NEVER)
    assert not shelf.rows


def test_a_topic_that_is_created_again_meanwhile_is_refused(
    log: Log, shelf: Shelf, delivering: Deliveries, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "_PARTITIONS_EVERY_S", 3_600.0)  # it looks before it writes, too
    log.add(0, b'{"a": 1}')
    delivering.start()
    delivering.finish(NEVER)
    log.create_again()
    for number in range(3):
        log.add(0, b'{"a": %d}' % number)
    delivering.after_commit(1)
    with pytest.raises(TopicError, match="deleted and created again"):
        wait(delivering, lambda: False)
    assert shelf.rows == [(0, 0, {"a": 1})]


def test_a_topic_that_is_gone_is_named(log: Log, shelf: Shelf, delivering: Deliveries) -> None:
    log.topic_id = ""
    delivering.start()
    with pytest.raises(TopicError, match=r"'out' to .*: the topic does not exist"):
        wait(delivering, lambda: False)


def test_a_target_that_refuses_a_topic_ends_the_application(log: Log, tmp_path: Path) -> None:
    other = Files(tmp_path)
    other.open("shop/returns")
    other.write([Delivered("k", {"a": 1}, 1, (), 0, 0)], {0: 0}, {0: 1})
    log.add(0, b'{"a": 1}')
    delivering = delivered(log, Files(tmp_path))
    delivering.start()
    with pytest.raises(TopicError, match=r"KSTREAM-SINK.* cannot deliver 'out' .* has the records of 'shop/returns'"):
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


class Picky(Shelf):
    """A target that cannot hold some values."""

    def write(self, rows: Sequence[Delivered], begins: Mapping[int, int], ends: Mapping[int, int]) -> None:
        if any("bad" in (row.value or {}) for row in rows):
            raise ValueError("no room for it")
        super().write(rows, begins, ends)

    def is_of_record(self, error: Exception) -> bool:
        return isinstance(error, ValueError)


def poisoned(log: Log) -> None:
    """Send records, some of which a picky target cannot hold, or nobody can read."""
    for number in range(20):
        log.add(number % 2, b'{"bad": %d}' % number if number in (6, 7, 19) else b'{"a": %d}' % number)
    log.end_transaction(0)
    log.end_transaction(1)


class TestARecordThatCannotBeDelivered:
    def test_it_ends_the_application_and_is_named(self, log: Log) -> None:
        poisoned(log)
        shelf = Picky()
        delivering = delivered(log, shelf)
        delivering.start()
        why = r"KSTREAM-SINK.* out-0 at offset 3 \(key .*\): .*: no room for it\n.*declared at .*\n.*cannot hold it: .*row"
        with pytest.raises(ProcessingError, match=why):
            delivering.finish(NEVER)
        assert [value["a"] for _, _, value in shelf.rows] == [*range(6)]  # and what precedes it is delivered

    def test_it_may_be_left_out(self, log: Log, caplog: pytest.LogCaptureFixture) -> None:
        poisoned(log)
        shelf, outcome = Picky(), Outcome()
        delivering = delivered(log, shelf, handlers=ErrorHandlers(production=log_and_continue()), outcome=outcome)
        delivering.start()
        delivering.finish(NEVER)
        delivering.stop()
        assert sorted(value["a"] for _, _, value in shelf.rows) == [*range(6), *range(8, 19)]
        assert shelf.offsets == {0: 11, 1: 11}
        assert outcome.dropped == {("KSTREAM-SINK-0000000001", "production error"): 3}
        assert "cannot deliver the record from out-1 at offset 9, leaving it out: ValueError" in caplog.text

    def test_it_may_become_a_dead_letter(self, log: Log) -> None:
        poisoned(log)
        shelf, outcome = Picky(), Outcome()
        delivering = delivered(log, shelf, handlers=ErrorHandlers(production=dead_letter("failed")), outcome=outcome)
        delivering.start()
        delivering.finish(NEVER)
        delivering.stop()
        place = RecordMetadata("failed", 0, 0)
        letters = [Letter(place, row.key, row.value, row.timestamp, row.headers) for row in outcome.letters]
        assert [(letter.source, letter.value) for letter in letters] == [
            (RecordMetadata("out", 0, 3), b'{"bad": 6}'),
            (RecordMetadata("out", 1, 3), b'{"bad": 7}'),
            (RecordMetadata("out", 1, 9), b'{"bad": 19}'),
        ]
        assert {(letter.kind, letter.node, letter.application, letter.epoch) for letter in letters} == {
            ("production", "KSTREAM-SINK-0000000001", "shop", -1)
        }
        assert {row.topic for row in outcome.letters} == {"failed"}

    def test_one_that_cannot_be_read_goes_to_the_other_handler(self, log: Log, shelf: Shelf) -> None:
        for value in (b'{"a": 1}', b"{", b'{"a": 2}', b"}"):
            log.add(0, value)
        outcome = Outcome()
        delivering = delivered(log, shelf, handlers=ErrorHandlers(deserialization=log_and_continue()), outcome=outcome)
        delivering.start()
        delivering.finish(NEVER)
        delivering.stop()
        assert [value["a"] for _, _, value in shelf.rows] == [1, 2]
        assert outcome.dropped == {("KSTREAM-SINK-0000000001", "deserialization error"): 2}
        assert shelf.offsets == {0: 4, 1: 0}

    def test_a_dead_letter_topic_does_not_get_its_own_records(self, log: Log) -> None:
        poisoned(log)
        delivering = delivered(log, Picky(), handlers=ErrorHandlers(production=dead_letter("out")))
        delivering.start()
        with pytest.raises(ProcessingError, match="cannot be a dead letter again"):
            delivering.finish(NEVER)

    def test_an_error_of_the_target_drops_nothing(self, log: Log) -> None:
        poisoned(log)
        shelf = Picky()
        shelf.errors = [KeyError("no such table")]
        delivering = delivered(log, shelf, handlers=ErrorHandlers(production=log_and_continue()))
        shelf.is_late = False
        delivering.start()
        with pytest.raises(KeyError, match="no such table"):
            delivering.finish(NEVER)
        assert not shelf.rows

    def test_a_registry_that_is_down_drops_nothing(self, log: Log, shelf: Shelf) -> None:
        class Registered(Json):
            def deserialize(self, data: bytes) -> Any:
                raise RegistryError("no answer")

        log.add(0, b'{"a": 1}')
        builder = StreamsBuilder()
        builder.stream("in", value=dict).to("out", value=Registered(), deliver_to=shelf)
        sinks = [node for node in builder.build().nodes.values() if isinstance(node, SinkNode)]
        outcome = Outcome()
        handlers = ErrorHandlers(deserialization=log_and_continue())
        undelivered = Undelivered("shop", handlers, outcome.letters.append, outcome.drop)
        delivering = Deliveries("shop", sinks, Follower(log.topic, log.begin, log.ends, lambda: log), undelivered)
        delivering.start()
        with pytest.raises(RegistryError):
            delivering.finish(NEVER)
