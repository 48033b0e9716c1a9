"""Attempts at an epoch's job: one that is too large, or takes too long, is retried with fewer records.

If a single record is too large, the handler of processing errors decides.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.engines.port import LateError, SlotLostError, TaskFailedError
from penstock.epochs.bounds import Measured, measured_in
from penstock.epochs.program import Epoch
from penstock.errors import EpochTooLargeError
from penstock.records import Partition, Ranges
from penstock.runtime.epoch_size import EpochSize
from penstock.runtime.share import Room, take

_log = logging.getLogger(__name__)

_TRIES = 4
"""How often an epoch of the same size is run if a slot dies or fails: it may be too large, or someone has killed the slot."""

_SMALL_S = 0.1
"""A job that is expected to take longer than this is worth dividing, however few its records are: their functions are slow."""

_FEWER_HELPS = 0.9
"""If half the records still give more than this part of the output, the output does not depend on the records."""


class Jobs(Protocol):
    """Runs the jobs of epochs. A job that is too large raises `EpochTooLargeError`, or returns a row that says so."""

    def run(self, epoch: Epoch, is_small: bool, ranges: Ranges) -> pa.Table:
        """Process the records in these ranges of offsets, in one task if `is_small`; return the epoch's rows."""

    def tick(self, epoch: Epoch) -> pa.Table:
        """As `run`, without records."""

    def roll_back(self, epoch: Epoch) -> None:
        """Roll all lanes back to the last barrier, and fence tasks of earlier attempts."""

    def read(self, partition: Partition, offset: int) -> pa.Table:
        """Read one record from its topic: key, value, timestamp, headers; no row if it cannot be read."""


class Offer(NamedTuple):
    """What an epoch may take: from `offsets` to `read_to`, except from partitions that are `waiting`.

    `most`, if given, is the maximum number of records.
    """

    offsets: Mapping[Partition, int]
    read_to: Mapping[Partition, int]
    waiting: Collection[Partition] = ()
    most: int | None = None

    def count(self, ends: Mapping[Partition, int]) -> int:
        """Return the number of offsets up to `ends`."""
        return sum(ends[place] - offset for place, offset in self.offsets.items())

    def ranges(self, ends: Mapping[Partition, int]) -> dict[Partition, tuple[int, int]]:
        """Return the ranges of offsets up to `ends`."""
        return {place: (offset, ends[place]) for place, offset in self.offsets.items() if ends[place] > offset}


class Fitted(NamedTuple):
    """An epoch whose job is done: its rows, and the new offset of each partition."""

    epoch: Epoch
    rows: pa.Table
    ends: Mapping[Partition, int]


GiveUp = Callable[[Epoch, Partition, int, EpochTooLargeError], pa.Table | None]
"""Handles a record, given by its offset, that no epoch can hold: returns rows to send in its place, if any, or raises."""


Take = Callable[[Mapping[Partition, int], Mapping[Partition, int], Collection[Partition], Room], Mapping[Partition, int]]
"""Decides what an epoch takes, as `share.take` does."""


class Attempts:
    """Runs the jobs of epochs, and learns from them how large they can be.

    An epoch of up to `small` records runs in one task unless they are slow, a larger one in `lanes` tasks. `on_retry` is called
    before each retry.
    """

    def __init__(
        self,
        jobs: Jobs,
        size: EpochSize,
        give_up: GiveUp,
        *,
        small: int,
        lanes: int,
        on_retry: Callable[[Epoch], None],
        take: Take = take,
    ) -> None:
        self._jobs = jobs
        self._size = size
        self._give_up = give_up
        self._small = small
        self._lanes = lanes
        self._on_retry = on_retry
        self._take = take
        self._attempt = 0
        self._bytes_out = 0
        self._is_unbounded = False
        self._is_over_bound = False

    def tick(self, epoch: Epoch) -> pa.Table:
        """Return the rows of an epoch without records; its size is not limited, because it cannot be made smaller."""
        try:
            rows = self._carried(replace(epoch, most_bytes=0), self._jobs.tick)
            self._learn(epoch, 0, measured_in(rows))
        except EpochTooLargeError as error:
            cure = "Give the machine or container more memory, or raise epoch_timeout."
            raise EpochTooLargeError(
                f"Epoch {epoch.number} is too large, although it has no records: {error}\n  {cure}"
            ) from error
        return rows

    def roll_back(self, epoch: Epoch) -> None:
        """Roll all lanes back to the epoch before this one, and fence the tasks of earlier attempts."""
        self._attempt += 1
        self._rolled_back(epoch)

    def _rolled_back(self, epoch: Epoch) -> None:
        """Roll back for the current attempt; again if a slot is lost meanwhile, or fails without a reason that is known."""
        for left in reversed(range(_TRIES)):
            try:
                self._jobs.roll_back(replace(epoch, attempt=self._attempt))
            except (SlotLostError, TaskFailedError) as error:
                if not left:
                    raise
                _log.warning("rolling epoch %d back again: %s", epoch.number, error)
            else:
                return

    def begin_anew(self) -> int:
        """Count another attempt, and return its number: tasks of earlier ones must no longer open lanes."""
        self._attempt += 1
        return self._attempt

    def run(self, epoch: Epoch, given: Offer) -> Fitted:
        """Run the epoch with as much of its input as fits."""
        self._bytes_out, self._is_unbounded = 0, False
        while True:
            room = self._size.room
            if given.most is not None:
                room = room._replace(records=min(room.records, given.most))
            ends = self._take(given.offsets, given.read_to, given.waiting, room)
            epoch = replace(epoch, attempt=self._attempt, most_bytes=self._most_bytes(given.count(ends)))
            try:
                rows = self._tried(epoch, given, ends)
            except EpochTooLargeError as error:
                self._on_retry(epoch)
                instead = self._smaller(epoch, given, ends, error)
                if instead is not None:
                    return instead
            else:
                self._size.sent(given.count(ends), rows.nbytes)
                return Fitted(epoch, rows, ends)

    def _tried(self, epoch: Epoch, given: Offer, ends: Mapping[Partition, int]) -> pa.Table:
        count, ranges = given.count(ends), given.ranges(ends)
        is_small = self._is_small(count)
        if not ranges:
            return self.tick(epoch)
        began = time.monotonic()
        try:
            rows = self._carried(epoch, lambda attempt: self._jobs.run(attempt, is_small, ranges))
        except EpochTooLargeError as error:
            if isinstance(error.__cause__, LateError):
                self._size.job_took(count, time.monotonic() - began)
            self._is_over_bound = False
            self._attempt += 1  # fences tasks of the failed job that still run
            raise
        self._size.job_took(count, time.monotonic() - began)
        self._learn(epoch, count, measured_in(rows))
        return rows

    def _is_small(self, count: int) -> bool:
        """Whether one task runs so many records."""
        return count <= self._small and self._size.job_s(count) <= _SMALL_S

    def _carried(self, epoch: Epoch, run: Callable[[Epoch], pa.Table]) -> pa.Table:
        """Run the job of an epoch; again, after a roll-back, if a slot was lost or has failed without a reason that is known."""
        for left in reversed(range(_TRIES)):
            try:
                return run(replace(epoch, attempt=self._attempt))
            except LateError as error:
                raise EpochTooLargeError(f"The epoch took too long: {error}") from error
            except SlotLostError as error:
                if not left:
                    raise EpochTooLargeError(f"The epoch was given up, probably because of its size: {error}") from error
                _log.warning("retrying epoch %d: %s", epoch.number, error)
            except TaskFailedError as error:
                if not left:
                    raise
                _log.warning("retrying epoch %d: %s", epoch.number, error)
            self.roll_back(epoch)
        raise AssertionError

    def _learn(self, epoch: Epoch, records: int, measurements: list[Measured]) -> None:
        for measured in measurements:
            self._size.read({epoch.origins[origin]: size for origin, size in measured.sizes.items()})
        reasons = [measured.too_large for measured in measurements if measured.too_large]
        if not reasons:
            return
        self._is_over_bound = True
        bytes_out = sum(measured.bytes_out for measured in measurements)
        if bytes_out and records:
            self._size.sent(records, bytes_out)
            self._is_unbounded = bytes_out > _FEWER_HELPS * self._bytes_out > 0
            self._bytes_out = bytes_out
        raise EpochTooLargeError(reasons[0])

    def _smaller(self, epoch: Epoch, given: Offer, ends: Mapping[Partition, int], error: EpochTooLargeError) -> Fitted | None:
        """Prepare another attempt and return None; or, if none is possible, return the epoch without its only record."""
        count = given.count(ends)
        epoch = replace(epoch, attempt=self._attempt)
        if count > 1:
            self._size.was_too_large(count)  # before lanes are rolled back: if they have moved, the epoch begins anew
        self._rolled_back(epoch)
        if count > 1:
            _log.warning("an epoch of %d records was too large; retrying with fewer: %s", count, error)
            return None
        if count == 0:
            raise error
        if epoch.most_bytes and self._is_over_bound:
            self._is_unbounded = True
            return None
        [(place, (offset, _))] = given.ranges(ends).items()
        rows = self._give_up(epoch, place, offset, error)
        self._size.was_given_up()
        ticked = self.tick(epoch)
        return Fitted(epoch, ticked if rows is None else pa.concat_tables([rows, ticked]), ends)

    def _most_bytes(self, count: int) -> int:
        """Return the limit for one task; 0 (no limit) for an epoch that cannot be made smaller."""
        if self._is_unbounded or not count:
            return 0
        most = self._size.most_bytes
        return most * 3 // 2 if self._is_small(count) else max(2 * most // self._lanes, most // 4)
