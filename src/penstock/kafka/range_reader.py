"""`RangeReader`: reads given ranges of offsets of some partitions, one range after the other, and prefetches between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from math import inf

import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaException, TopicPartition

from penstock import machine
from penstock.errors import BrokerError
from penstock.kafka.chunks import Chunk, by_partition, chunk_of, end_in
from penstock.kafka.clients import open_consumer
from penstock.kafka.failures import translated
from penstock.records import Partition, Ranges

_PIECE = 2_000
_POLL_S = 0.1
_MOST_AHEAD = 50_000
"""A partition that is this many records ahead of what was asked for waits for the others."""


class RangeReader:
    """Reads partitions whose ranges usually continue from one call to the next; what is read again is kept for one call.

    It reads at most about `most_bytes` ahead of what was asked for; up to twice as much if partitions are uneven. A call fails if
    nothing arrives for `timeout_s`.
    """

    def __init__(self, settings: Mapping[str, str], timeout_s: float, most_bytes: int) -> None:
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes
        self._chunks: dict[Partition, deque[Chunk]] = {}
        self._sizes: dict[Partition, deque[int]] = {}
        self._begins: dict[Partition, int] = {}
        self._read_to: dict[Partition, int] = {}
        self._paused: set[Partition] = set()
        self._consumer = open_consumer(settings)

    def read(self, ranges: Ranges) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """Return the records in these ranges: offset, timestamp, key, value, headers."""
        self._begin(ranges)
        try:
            self._read_up_to({place: end for place, (_, end) in ranges.items()})
        except KafkaException as error:
            raise translated(error, "Cannot read the source topics") from error
        for place, (begin, end) in ranges.items():
            for chunk in self._chunks[place]:
                first, last = np.searchsorted(chunk.offsets, (begin, end)).tolist()
                if first < last:
                    yield place, chunk.batch.slice(first, last - first)

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close()

    def _begin(self, ranges: Ranges) -> None:
        """Forget what is before the ranges; start over where they do not continue what is kept."""
        begins = {place: begin for place, (begin, _) in ranges.items()}
        if all(self._begins.get(place, begin + 1) <= begin <= self._read_to[place] for place, begin in begins.items()):
            for place, begin in begins.items():
                chunks = self._chunks[place]
                while chunks and chunks[0].offsets[-1] < begin:
                    chunks.popleft()
                    self._sizes[place].popleft()
                self._begins[place] = begin
            self._resume(ranges)
            return
        self._begins, self._read_to = begins, dict(begins)
        self._chunks = {place: deque() for place in begins}
        self._sizes = {place: deque() for place in begins}
        self._let_go_on(list(self._paused))
        self._consumer.assign([TopicPartition(*place, offset) for place, offset in self._read_to.items()])

    def _resume(self, ranges: Ranges) -> None:
        self._let_go_on([place for place in self._paused if place in ranges and self._read_to[place] < ranges[place][1]])

    def _let_go_on(self, ready: Collection[Partition]) -> None:
        if ready:
            self._paused.difference_update(ready)
            self._consumer.resume([TopicPartition(*place) for place in ready])

    def _read_up_to(self, ends: Mapping[Partition, int]) -> None:
        heard = machine.monotonic()
        while any(self._read_to[place] < end for place, end in ends.items()):
            messages = self._consumer.consume(_PIECE, _POLL_S)
            if messages:
                heard = machine.monotonic()
            elif machine.monotonic() - heard > self._timeout_s:
                waiting = ", ".join(f"{topic}-{number}" for topic, number in sorted(ends)[:5])
                raise BrokerError(f"Received nothing from {waiting} for {self._timeout_s:g} s. Check that the brokers are up.")
            records = [message for message in messages if message.error() is None]
            for place, mine in by_partition(records).items():
                chunk = chunk_of(mine, -1)
                self._chunks[place].append(chunk)
                self._sizes[place].append(chunk.batch.nbytes)
                self._read_to[place] = max(self._read_to[place], int(chunk.offsets[-1]) + 1)
            for message in messages:
                if message.error() is not None and (found := end_in(message)) is not None:
                    place, end = found
                    self._read_to[place] = max(self._read_to[place], end)
            self._pause(ends)

    def _pause(self, ends: Mapping[Partition, int]) -> None:
        """Let the partitions wait that are far ahead, so that what is kept stays bounded; none that has not reached its end."""
        wanted = {**self._begins, **ends}
        ahead = {place: self._bytes_after(end, place) for place, end in wanted.items() if self._read_to[place] > end}
        share = self._most_bytes / len(wanted) if sum(ahead.values()) > self._most_bytes else inf
        far = [
            place
            for place, size in ahead.items()
            if (self._read_to[place] - wanted[place] > _MOST_AHEAD or size > share) and place not in self._paused
        ]
        if far:
            self._paused.update(far)
            self._consumer.pause([TopicPartition(*place) for place in far])

    def _bytes_after(self, end: int, place: Partition) -> int:
        """Return the size of a partition's chunks that begin at an offset or later."""
        kept = zip(reversed(self._chunks[place]), reversed(self._sizes[place]), strict=True)
        return sum(size for _, size in takewhile(lambda each: each[0].offsets[0] >= end, kept))
