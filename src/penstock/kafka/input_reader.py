"""`InputReader`: reads the source topics with one consumer, and keeps records as Arrow batches until epochs have taken them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping

import numpy as np
import pyarrow as pa
from confluent_kafka import Message, TopicPartition

from penstock import machine
from penstock.kafka.chunks import Chunk, by_partition, chunk_of, end_in
from penstock.kafka.clients import open_consumer
from penstock.kafka.statistics import OnStatistics
from penstock.records import Partition

_PIECE = 2_000
"""How many records are converted at a time: with more, they no longer fit into the processor's caches, and take twice as long."""


class _Kept:
    """How much of a partition is kept."""

    def __init__(self) -> None:
        self.records = 0
        self.size = 0

    def count(self, chunk: Chunk, sign: int) -> None:
        """Add a chunk, or with a `sign` of -1 remove it."""
        self.records += sign * chunk.batch.num_rows
        self.size += sign * chunk.batch.nbytes


class InputReader:
    """Reads from given offsets on; keeps at most about `most_records` or `most_bytes`.

    It keeps up to twice as much if the caller can use nothing of that and waits for other partitions. `fill` and `wait` may be
    called by any thread, one at a time.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        offsets: Mapping[Partition, int],
        most_records: int,
        most_bytes: int,
        on_statistics: OnStatistics | None = None,
    ) -> None:
        self._most_records = most_records
        self._most_bytes = most_bytes
        self._chunks: dict[Partition, deque[Chunk]] = {place: deque() for place in offsets}
        self._read_to = dict(offsets)
        self._latest: dict[Partition, int] = {}
        self._kept = {place: _Kept() for place in offsets}
        self._paused: set[Partition] = set()
        self._reading = machine.lock()
        self._changing = machine.lock()
        self._consumer = open_consumer(settings, on_statistics)
        self._consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()])

    @property
    def read_to(self) -> dict[Partition, int]:
        """The offset up to which each partition is read; control records have offsets too."""
        with self._changing:
            return dict(self._read_to)

    def wait(self, offsets: Mapping[Partition, int], timeout_s: float) -> dict[Partition, int]:
        """Wait until there are records after `offsets`, at most for `timeout_s`; return the offsets up to which there are.

        If `offsets` are beyond what was read, someone else has read the records before them, and they are skipped.
        """
        deadline = machine.monotonic() + timeout_s
        with self._reading:
            self._skip_to(offsets)
            while True:
                self._fill()
                found = self.read_to
                left = deadline - machine.monotonic()
                if left <= 0 or any(end > offsets[place] for place, end in found.items()):
                    return found
                if not self._has_room():
                    self._pause(self._full())
                message = self._consumer.poll(left)
                if message is not None:
                    self._add([message])

    def fill(self) -> None:
        """Take over what the consumer has prefetched, as far as there is room."""
        with self._reading:
            self._fill()

    def idle(self, timeout_s: float) -> None:
        """Serve the consumer for this long without reading further: it has callbacks, errors and log lines to deliver."""
        with self._reading:
            self._pause(self._kept.keys())
            message = self._consumer.poll(timeout_s)
            if message is not None:
                self._add([message])

    def between(self, ranges: Mapping[Partition, tuple[int, int]]) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """Return the records in these ranges of offsets: offset, timestamp, key, value, headers."""
        for place, (begin, end) in ranges.items():
            with self._changing:
                chunks = list(self._chunks[place])
            for chunk in chunks:
                first, last = np.searchsorted(chunk.offsets, (begin, end)).tolist()
                if first < last:
                    yield place, chunk.batch.slice(first, last - first)

    def latest(self, place: Partition) -> int:
        """Return the highest timestamp that was read from a partition; -1 if nothing was."""
        return self._latest.get(place, -1)

    def read_up_to(self, timestamp_ms: int) -> dict[Partition, int]:
        """Return how far each partition is read without records after a time."""
        with self._changing:
            return {place: self._first_after(timestamp_ms, place) for place in self._chunks}

    def _first_after(self, timestamp_ms: int, place: Partition) -> int:
        for chunk in self._chunks[place]:
            if chunk.highest[-1] > timestamp_ms:
                return int(chunk.offsets[np.searchsorted(chunk.highest, timestamp_ms, "right")])
        return self._read_to[place]

    def release(self, offsets: Mapping[Partition, int]) -> None:
        """Forget the records before these offsets; if that is more than was read, read on from there."""
        with self._changing:
            for place, offset in offsets.items():
                chunks = self._chunks[place]
                while chunks and chunks[0].offsets[-1] < offset:
                    self._kept[place].count(chunks.popleft(), -1)
        if any(offset > self._read_to[place] for place, offset in offsets.items()):
            with self._reading:  # or records that `fill` is adding would be read twice
                self._skip_to(offsets)

    def close(self) -> None:
        """Close the consumer."""
        with self._reading:
            self._consumer.close()

    def _skip_to(self, offsets: Mapping[Partition, int]) -> None:
        for place, offset in offsets.items():
            if offset > self._read_to[place]:
                self._consumer.seek(TopicPartition(*place, offset))
                with self._changing:
                    self._read_to[place] = offset

    def _fill(self) -> None:
        self._resume()
        while self._has_room():
            messages = self._consumer.consume(_PIECE, 0.0)
            self._add(messages)
            if self._paused:
                self._pause(self._full())
            if len(messages) < _PIECE:
                return

    def _has_room(self) -> bool:
        """Whether more may be kept. While partitions are paused, the others have their shares, whatever those have used."""
        kept = self._kept.values()
        if sum(each.records for each in kept) < self._most_records and sum(each.size for each in kept) < self._most_bytes:
            return True
        return bool(self._paused) and any(not self._has_used(1.0, place) for place in self._kept.keys() - self._paused)

    def _has_used(self, part: float, place: Partition) -> bool:
        """Whether a partition has used up this part of an equal share."""
        part, kept = part / len(self._kept), self._kept[place]
        return kept.records >= part * self._most_records or kept.size >= part * self._most_bytes

    def _full(self) -> set[Partition]:
        """Return the partitions that have used up their shares; while these pause, the others can be read."""
        return {place for place in self._kept if self._has_used(1.0, place)}

    def _pause(self, places: Collection[Partition]) -> None:
        """Do not read these partitions, until `_resume`.

        The consumer forgets what it has prefetched of a paused partition, so this is the exception.
        """
        more = set(places) - self._paused
        self._paused |= more
        self._consumer.pause([TopicPartition(*place) for place in more])

    def _resume(self) -> None:
        """Read the paused partitions again that have room."""
        if self._paused:
            empty = {place for place in self._paused if not self._has_used(0.5, place)}
            self._paused -= empty
            self._consumer.resume([TopicPartition(*place) for place in empty])

    def _add(self, messages: list[Message]) -> None:
        """Add records, and note where partitions end."""
        if any(error is not None for error in map(Message.error, messages)):
            self._handle([message for message in messages if message.error() is not None])
            messages = [message for message in messages if message.error() is None]
        if not messages:
            return
        for place, mine in by_partition(messages).items():
            chunk = chunk_of(mine, self.latest(place))
            with self._changing:
                self._latest[place] = int(chunk.highest[-1])
                self._chunks[place].append(chunk)
                # The end of the partition may be noted already, behind control records that follow these.
                self._read_to[place] = max(self._read_to[place], int(chunk.offsets[-1]) + 1)
                self._kept[place].count(chunk, 1)

    def _handle(self, messages: list[Message]) -> None:
        """Note the ends of partitions."""
        for place, end in filter(None, map(end_in, messages)):
            with self._changing:
                self._read_to[place] = max(self._read_to[place], end)
