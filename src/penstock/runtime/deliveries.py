"""The deliveries of an application: each follows a topic in a thread of its own, and hands its committed records to a target.

The target stores offsets together with the records, so nothing else has to be remembered: a start continues where the target
is. A target that cannot be reached delays its delivery, but not the application.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from penstock import faults
from penstock.errors import BrokerError, FencedError, SerializationError, TopicError
from penstock.kafka.records import TopicRecord
from penstock.records import Delivered, Partition
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


class Reader(Protocol):
    """Reads committed records."""

    def read(self, positions: Offsets, ends: Offsets) -> Iterator[TopicRecord]:
        """Yield the records from `positions` up to `ends`, in order within each partition."""

    def close(self) -> None:
        """Disconnect."""


@dataclass(frozen=True, slots=True)
class Follower:
    """How topics are followed: their partitions, where those begin and where their committed records end, and a reader."""

    partitions: Callable[[str], Sequence[Partition]]
    begins: Callable[[Iterable[Partition]], Offsets]
    ends: Callable[[Iterable[Partition]], Offsets]
    reader: Callable[[], Reader]


class Deliveries:
    """All deliveries of an application."""

    def __init__(self, application_id: str, sinks: Iterable[SinkNode], follower: Follower) -> None:
        self._deliveries = [
            _Delivery(f"{application_id}/{sink.topic}", sink, sink.target, follower) for sink in sinks if sink.target is not None
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

    def finish(self, stop: threading.Event) -> None:
        """Wait until everything that is committed now is delivered, or `stop` is set: the next start delivers the rest."""
        for delivery in self._deliveries:
            delivery.finish(stop)

    def stop(self) -> None:
        """Stop after the current batch; a target that does not answer is given up."""
        deadline = time.monotonic() + _STOP_S
        for delivery in self._deliveries:
            delivery.end()
        for delivery in self._deliveries:
            delivery.join(deadline)


class _Delivery:
    """One topic and its target."""

    def __init__(self, name: str, sink: SinkNode, target: Target, follower: Follower) -> None:
        assert isinstance(sink.topic, str)
        self._name = name
        self._topic = sink.topic
        self._target = target
        self._follower = follower
        self._key = sink.key.for_topic(self._topic, is_key=True).deserialize
        self._value = sink.value.for_topic(self._topic, is_key=False).deserialize
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._passes = 0
        self._looked_at = 0.0
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"penstock-{name}", daemon=True)

    def start(self) -> None:
        self._wanted.set()
        self._thread.start()

    def wake(self) -> None:
        self._wanted.set()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def finish(self, stop: threading.Event) -> None:
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
            self._thread.join(max(0.0, deadline - time.monotonic()))

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
        known = self._target.open(self._name)
        partitions = self._follower.partitions(self._topic)
        begins, ends = self._follower.begins(partitions), self._follower.ends(partitions)
        at = {place: known.get(place[1], begins[place]) for place in partitions}
        for place, offset in at.items():
            if not begins[place] <= offset <= ends[place]:
                raise TopicError(
                    f"Cannot deliver {place[0]}-{place[1]} to {self._target!r}: it has everything before offset {offset}, "
                    f"but the topic has offsets {begins[place]} to {ends[place]}. Records were deleted before they were "
                    f"delivered, or the topic was created again. Deliver to a new table or directory, or change the stored "
                    f"offset."
                )
        return at

    def _new_partitions(self, known: Mapping[Partition, int]) -> Offsets:
        """Return where partitions begin that were added to the topic."""
        self._looked_at = time.monotonic()
        return self._follower.begins([place for place in self._follower.partitions(self._topic) if place not in known])

    def _pass(self, reader: Reader, at: dict[Partition, int]) -> dict[Partition, int]:
        """Deliver everything that is committed now; return where to continue."""
        if time.monotonic() - self._looked_at > _PARTITIONS_EVERY_S:
            at = {**self._new_partitions(at), **at}
        records = reader.read(at, self._follower.ends(at))
        while batch := list(islice(records, _BATCH)):
            if self._stopping.is_set():
                return at
            last = {(record.topic, record.partition): record.offset + 1 for record in batch}
            begins = {partition: at[self._topic, partition] for _, partition in last}
            rows = list(self._decoded(batch))
            faults.point("delivery.before_write")
            self._target.write(rows, begins, {partition: offset for (_, partition), offset in last.items()})
            faults.point("delivery.after_write")
            at = {**at, **last}
        return at  # not `ends`: what follows the last record there is of transactions, and was not stored

    def _decoded(self, batch: Iterable[TopicRecord]) -> Iterator[Delivered]:
        for record in batch:
            try:
                key = None if record.key is None else self._key(record.key)
                value = None if record.value is None else self._value(record.value)
            except Exception as error:
                place = f"{record.topic}-{record.partition} at offset {record.offset}"
                raise SerializationError(f"Cannot deliver the record from {place}: {error}") from error
            yield Delivered(key, value, record.timestamp, record.headers, record.partition, record.offset)
