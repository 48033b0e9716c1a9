"""The deliveries of an application: each follows a topic in a thread of its own, and hands its committed records to a target.

The target stores offsets together with the records, so nothing else has to be remembered: a start continues where the target
is. A target that cannot be reached delays its delivery, but not the application.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from penstock import faults, machine
from penstock.errors import ATTRIBUTED, BrokerError, FencedError, TopicError
from penstock.history.past import Lost, lost_input
from penstock.kafka.records import TopicRecord
from penstock.kafka.topics import Topic, partitions_of
from penstock.records import Delivered, Partition
from penstock.runtime.beyond.undelivered import Undelivered
from penstock.runtime.input.topic_watch import MISSED_LOOKS
from penstock.topology import SinkNode

if TYPE_CHECKING:
    from penstock.delivery.target import Target

_log = logging.getLogger(__name__)

_BATCH = 5_000
_LOOK_EVERY_S = 1.0
"""How often a delivery looks for records that no commit of this application has announced: of other writers."""
_PARTITIONS_EVERY_S = 30.0
"""How often it looks for new partitions."""
_PATIENCE_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_STOP_S = 30.0
"""How long a shutdown waits for all batches that are being written."""
_POLL_S = 0.05

Offsets = Mapping[Partition, int]
OnLost = Callable[[Partition, int], None]
Pair = tuple[TopicRecord, Delivered]


class Reader(Protocol):
    """Reads committed records."""

    def read(self, positions: Offsets, ends: Offsets) -> Iterator[TopicRecord]:
        """Yield the records from `positions` up to `ends`, in order within each partition."""

    def close(self) -> None:
        """Disconnect."""


@dataclass(frozen=True, slots=True)
class Follower:
    """How topics are followed: what they are, where partitions begin and where their committed records end, and a reader.

    `topic` returns None for a topic that does not exist.
    """

    topic: Callable[[str], Topic | None]
    begins: Callable[[Iterable[Partition]], Offsets]
    ends: Callable[[Iterable[Partition]], Offsets]
    reader: Callable[[], Reader]


class Deliveries:
    """All deliveries of an application.

    `on_lost` is called for a partition whose next records are gone, with the number of offsets that are skipped; without it, the
    application ends.
    """

    def __init__(
        self,
        application_id: str,
        sinks: Iterable[SinkNode],
        follower: Follower,
        undelivered: Undelivered,
        on_lost: OnLost | None = None,
    ) -> None:
        self._deliveries = [
            _Delivery(f"{application_id}/{sink.topic}", sink, sink.target, follower, undelivered, on_lost)
            for sink in sinks
            if sink.target is not None
        ]

    def start(self) -> None:
        """Start all of them."""
        for delivery in self._deliveries:
            delivery.start()

    def after_commit(self, epoch: int) -> None:
        """Let them look for new records."""
        for delivery in self._deliveries:
            delivery.wake()

    def check(self) -> None:
        """Raise the error that has ended a delivery, if any."""
        for delivery in self._deliveries:
            delivery.check()

    def finish(self, stop: machine.Event) -> None:
        """Wait until everything that is committed now is delivered, or `stop` is set: the next start delivers the rest."""
        for delivery in self._deliveries:
            delivery.finish(stop)

    def stop(self) -> None:
        """Stop after the current batch; a target that does not answer is given up."""
        deadline = machine.monotonic() + _STOP_S
        for delivery in self._deliveries:
            delivery.end()
        for delivery in self._deliveries:
            delivery.join(deadline)


class _Delivery:
    """One topic and its target."""

    def __init__(
        self,
        name: str,
        sink: SinkNode,
        target: Target,
        follower: Follower,
        undelivered: Undelivered,
        on_lost: OnLost | None,
    ) -> None:
        assert isinstance(sink.topic, str)
        self._name = name
        self._node = f"{sink.name} (declared at {sink.line})"
        self._sink = sink
        self._topic = sink.topic
        self._target = target
        self._follower = follower
        self._undelivered = undelivered
        self._on_lost = on_lost
        self._key = sink.key.for_topic(self._topic, is_key=True).deserialize
        self._value = sink.value.for_topic(self._topic, is_key=False).deserialize
        self._wanted = machine.event()
        self._stopping = machine.event()
        self._passes = 0
        self._looked_at = 0.0
        self._missed = 0
        self._topic_id = ""
        self._stored: Offsets = {}
        self._is_empty = True
        self._failure: BaseException | None = None
        self._thread = machine.thread(self._run, f"penstock-{name}")

    def start(self) -> None:
        self._wanted.set()
        self._thread.start()

    def wake(self) -> None:
        self._wanted.set()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def finish(self, stop: machine.Event) -> None:
        """Wait for the end of a pass that began after this call, or for `stop`."""
        after = self._passes + 2
        while self._passes < after and self._thread.is_alive() and not stop.wait(_POLL_S):
            self._wanted.set()
        self.check()
        if self._passes < after:
            _log.warning("stopped before all of %s was delivered; the next start delivers the rest", self._topic)

    def end(self) -> None:
        self._stopping.set()
        self._wanted.set()

    def join(self, deadline: float) -> None:
        if self._thread.is_alive():
            self._thread.join(max(0.0, deadline - machine.monotonic()))

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            before = self._passes
            try:
                self._deliver()
            except Exception as error:  # noqa: BLE001 - raised by `check`, unless it may pass
                if not (isinstance(error, FencedError | BrokerError) or self._target.is_temporary(error)):
                    self._failure = error
                    return
                failures = 0 if self._passes > before else failures + 1
                wait_s = _PATIENCE_S[min(failures, len(_PATIENCE_S) - 1)]
                _log.warning("cannot deliver %s to %r; retrying in %g s: %s", self._topic, self._target, wait_s, error)
                self._stopping.wait(wait_s)

    def _deliver(self) -> None:
        """Deliver until stopped. After an error the target is opened again: it is not known whether it has stored a batch."""
        reader = self._follower.reader()
        try:
            at = self._open()
            while not self._stopping.is_set():
                self._wanted.wait(_LOOK_EVERY_S)
                self._wanted.clear()
                at = self._pass(reader, at)
                self._passes += 1
        finally:
            reader.close()
            self._target.close()

    def _open(self) -> dict[Partition, int]:
        """Connect to the target; return where to continue."""
        topic = self._same()
        try:
            known = self._target.open(self._name, topic.topic_id)
        except TopicError as error:
            raise self._refused(error) from error
        self._topic_id, self._is_empty = topic.topic_id, not known
        # Of a partition of which the target has nothing, what was its beginning is remembered from the first time.
        self._stored = self._grown({**self._stored, **{(self._topic, number): offset for number, offset in known.items()}})
        return self._without_gaps(self._stored)

    def _seen(self) -> Topic:
        """Return the topic as it is now."""
        topic = self._follower.topic(self._topic)
        self._missed = self._missed + 1 if topic is None else 0
        if topic is None:
            error = self._refused("the topic does not exist. Create it.")
            raise error if self._missed >= MISSED_LOOKS else BrokerError(str(error))
        return topic

    def _same(self) -> Topic:
        """Return the topic as it is now; raise if it was created again since the target was first opened."""
        topic = self._seen()
        if self._topic_id not in {"", topic.topic_id}:
            raise self._refused("the topic was deleted and created again while the application was running. Start again.")
        return topic

    def _grown(self, known: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return where to continue, with the partitions that are not known yet: from their beginning."""
        fresh = [place for place in partitions_of([self._same()]) if place not in known]
        self._looked_at = machine.monotonic()
        return {**self._follower.begins(fresh), **known}

    def _without_gaps(self, at: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return where to continue; raise if something is gone that was not delivered, unless it may be skipped."""
        lost = lost_input(at, self._follower.begins(at), self._follower.ends(at))
        if lost and self._on_lost is None:
            raise self._refused(
                f"{'; '.join(map(_gap, lost))}. Keep records for longer (retention.ms). To continue without these, set "
                f"on_lost_input = continue."
            )
        for each in lost:
            assert self._on_lost is not None
            _log.warning("%s; continuing at offset %d (on_lost_input = continue)", _gap(each), each.goes_on_at)
            self._on_lost((each.topic, each.partition), each.count)
        return {**at, **{(each.topic, each.partition): each.goes_on_at for each in lost}}

    def _refused(self, why: object) -> TopicError:
        return TopicError(f"{self._node} cannot deliver {self._topic!r} to {self._target!r}: {why}")

    def _pass(self, reader: Reader, at: dict[Partition, int]) -> dict[Partition, int]:
        """Deliver everything that is committed now; return where to continue."""
        if machine.monotonic() - self._looked_at > _PARTITIONS_EVERY_S:
            at, self._stored = self._grown(at), self._grown(self._stored)
        ends = {place: max(at[place], end) for place, end in self._follower.ends(at).items()}
        records = reader.read(at, ends)
        is_more = True
        while is_more and not self._stopping.is_set():
            batch = _next(records)
            is_more = len(batch) == _BATCH
            begins = at
            # What follows the last record are the ends of transactions. They are stored, too: retention deletes them with the
            # records, and then nobody could tell that nothing was lost.
            at = {**at, **{(record.topic, record.partition): record.offset + 1 for record in batch}} if is_more else ends
            if batch:
                self._same()  # after they are read: these are not of a topic that is created later
            self._hand_over(list(self._decoded(batch)), begins, at)
        return at

    def _hand_over(self, batch: Sequence[Pair], begins: Offsets, ends: Offsets) -> None:
        """Write records that are between these offsets; find each that the target cannot hold, and handle it."""
        if not batch and (ends == self._stored or self._is_empty):
            return
        try:
            self._write([row for _, row in batch], ends)
        except Exception as error:
            if not batch or not self._target.is_of_record(error):
                raise
            if len(batch) == 1:
                [(record, row)] = batch
                self._undelivered.unfit(self._sink, record, row.key, error)
                return  # its offset is stored with the next records, or at the end of the pass
        else:
            return
        half = len(batch) // 2
        between = {**begins, **{(record.topic, record.partition): record.offset + 1 for record, _ in batch[:half]}}
        self._hand_over(batch[:half], begins, between)
        self._hand_over(batch[half:], between, ends)

    def _write(self, rows: Sequence[Delivered], ends: Mapping[Partition, int]) -> None:
        faults.point("delivery.before_write")
        try:
            self._target.write(rows, _by_number(self._stored), _by_number(ends))
        except TopicError as error:
            raise self._refused(error) from error
        faults.point("delivery.after_write")
        self._stored, self._is_empty = ends, False

    def _decoded(self, batch: Iterable[TopicRecord]) -> Iterator[Pair]:
        for record in batch:
            try:
                key = None if record.key is None else self._key(record.key)
                value = None if record.value is None else self._value(record.value)
            except Exception as error:
                if isinstance(error, ATTRIBUTED):  # no record is at fault
                    raise
                self._undelivered.unreadable(self._sink, record, error)
            else:
                yield record, Delivered(key, value, record.timestamp, record.headers, record.partition, record.offset)


def _next(records: Iterator[TopicRecord]) -> list[TopicRecord]:
    """Return the next records. If they are gone, the target is opened again, which finds out what is missing."""
    try:
        return list(islice(records, _BATCH))
    except TopicError as error:
        raise BrokerError(str(error)) from error


def _gap(lost: Lost) -> str:
    place = f"{lost.topic}-{lost.partition}"
    if lost.goes_on_at < lost.offset:
        return f"{place} ends at offset {lost.goes_on_at}, but is delivered up to offset {lost.offset}: it has lost records"
    return (
        f"offsets {lost.offset} to {lost.goes_on_at - 1} of {place} were deleted before they were delivered, whether they were "
        f"records or only the ends of transactions"
    )


def _by_number(offsets: Offsets) -> dict[int, int]:
    return {number: offset for (_, number), offset in offsets.items()}
