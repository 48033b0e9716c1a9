"""`Dispatcher`: brings an epoch from what it may take to its rows. Nothing else runs anything again, or counts how often.

    TAKEN ──► RUNNING ──► DONE
                 ├─ a slot is lost, or fails without a known reason ─► LOST: lanes are rolled back ─► RUNNING
                 ├─ too large, or late ─► TOO_LARGE: lanes are rolled back ─► TAKEN, with fewer records
                 │                            └─ it was a single record ─► GIVEN_UP: its handler decides ─► RUNNING, without it
                 └─ lanes are elsewhere ─► MOVED: lanes are restored ─► TAKEN

Engines report what has happened, and never retry; the commit of an epoch has a machine of its own (`penstock.kafka.commit`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock import machine
from penstock.engines.port import LateError, SlotLostError, TaskFailedError
from penstock.epochs.bounds import Measured, measured_in
from penstock.epochs.program import Attempt, Epoch
from penstock.errors import EpochTooLargeError, LaneMovedError
from penstock.records import Partition, Ranges
from penstock.runtime.loop.epoch_size import EpochSize
from penstock.runtime.loop.share import Room, take

_log = logging.getLogger(__name__)

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
        """Roll all lanes back to the last commit, and fence tasks of earlier attempts."""

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


def nothing(offsets: Mapping[Partition, int]) -> Offer:
    """Return the offer of an epoch of the clock, which has no records."""
    return Offer(offsets, offsets)


class Fitted(NamedTuple):
    """An epoch whose job is done: its rows, and the new offset of each partition."""

    epoch: Epoch
    rows: pa.Table
    ends: Mapping[Partition, int]


GiveUp = Callable[[Epoch, Partition, int, EpochTooLargeError], pa.Table | None]
"""Handles a record, given by its offset, that no epoch can hold: returns rows to send in its place, if any, or raises."""


Take = Callable[[Mapping[Partition, int], Mapping[Partition, int], Collection[Partition], Room], Mapping[Partition, int]]
"""Decides what an epoch takes, as `share.take` does."""


Restore = Callable[[int], Epoch]
"""Restores all lanes where they run next, for tasks of this attempt and later ones; returns the same epoch, begun anew."""


class Stage(Enum):
    """Where an epoch stands."""

    TAKEN = "taken"
    RUNNING = "running"
    LOST = "lost"
    TOO_LARGE = "too large"
    GIVEN_UP = "given up"
    MOVED = "moved"
    DONE = "done"


_TRIES = {Stage.RUNNING: 4, Stage.LOST: 4, Stage.TOO_LARGE: 4, Stage.MOVED: 10}
"""How often a stage may fail: with records of the same number, or for MOVED, in an epoch.

An epoch that loses slots each time may be too large, or someone has killed them. What moves lanes ten times is the epoch itself.
"""


@dataclass
class _Run:
    """An epoch on its way."""

    epoch: Epoch
    given: Offer
    ends: Mapping[Partition, int] = field(default_factory=dict)
    """Up to where it takes its input."""
    rows: pa.Table | None = None
    too_large: EpochTooLargeError | None = None
    """Why the last attempt was too large."""
    is_over_bound: bool = False
    """Whether a task of that attempt has found itself above its limit, rather than failed."""
    bytes_out: int = 0
    """How large the output of that attempt was."""
    is_unbounded: bool = False
    """Whether fewer records would be of no use, so that tasks have no limit."""
    is_given_up: bool = False
    """Whether its only record is left out, because no epoch can hold it."""
    instead: pa.Table | None = None
    """The rows in place of that record."""
    failures: Counter[Stage] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """How many records it processes."""
        return 0 if self.is_given_up else self.given.count(self.ends)

    def may_fail(self, stage: Stage) -> bool:
        """Count a failure of a stage; return whether another attempt may follow."""
        self.failures[stage] += 1
        return self.failures[stage] < _TRIES.get(stage, 1)

    def begin_anew(self, epoch: Epoch) -> None:
        """Forget all attempts, but not how often lanes have moved."""
        self.epoch, self.instead = epoch, None
        self.bytes_out, self.is_unbounded, self.is_given_up = 0, False, False
        self.failures = Counter({Stage.MOVED: self.failures[Stage.MOVED]})

    def fitted(self) -> Fitted:
        """Return what came of it."""
        return Fitted(
            self.epoch, pa.concat_tables([table for table in (self.instead, self.rows) if table is not None]), self.ends
        )


class Dispatcher:
    """Runs epochs, and learns from them how large they can be.

    An epoch of up to `small` records runs in one task unless they are slow, a larger one in `lanes` tasks. `on_retry` is called
    before an epoch begins again with its full time. `restore` is None if lanes cannot move.
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
        restore: Restore | None = None,
    ) -> None:
        self._jobs = jobs
        self._size = size
        self._give_up = give_up
        self._small = small
        self._lanes = lanes
        self._on_retry = on_retry
        self._take = take
        self._restore = restore
        self.attempt: int = 0
        """The current attempt: tasks of earlier ones can no longer open lanes."""
        self._steps: Mapping[Stage, Callable[[_Run], Stage]] = {
            Stage.TAKEN: self._taken,
            Stage.RUNNING: self._running,
            Stage.LOST: self._lost,
            Stage.TOO_LARGE: self._too_large,
            Stage.GIVEN_UP: self._given_up,
            Stage.MOVED: self._moved,
        }

    def went_well(self, count: int, seconds: float) -> None:
        """Note how long an epoch of so many records took until its commit: later ones may take more."""
        self._size.went_well(count, seconds)

    def run(self, epoch: Epoch, given: Offer) -> Fitted:
        """Run an epoch with as much of its input as fits."""
        at = _Run(epoch, given)
        self._dispatch(at, Stage.TAKEN, Stage.DONE)
        return at.fitted()

    def roll_back(self, epoch: Epoch) -> None:
        """Roll all lanes back to the epoch before this one, and fence the tasks of earlier attempts."""
        self.attempt += 1
        self._dispatch(_Run(epoch, nothing({})), Stage.LOST, Stage.RUNNING)

    def _dispatch(self, at: _Run, stage: Stage, last: Stage) -> None:
        """Take an epoch from a stage to the last one."""
        while stage is not last:
            try:
                stage = self._steps[stage](at)
            except LaneMovedError as error:
                if self._restore is None or not at.may_fail(Stage.MOVED):
                    raise
                _log.warning("restoring lanes, then running epoch %d again: %s", at.epoch.number, error)
                stage = Stage.MOVED
            except (SlotLostError, TaskFailedError) as error:
                stage = self._after_loss(at, stage, error)

    def _taken(self, at: _Run) -> Stage:
        """Decide what it takes."""
        given, room = at.given, self._size.room
        if given.most is not None:
            room = room._replace(records=min(room.records, given.most))
        is_empty = given.read_to == given.offsets
        at.ends = given.offsets if is_empty else self._take(given.offsets, given.read_to, given.waiting, room)
        del at.failures[Stage.RUNNING]
        return Stage.RUNNING

    def _running(self, at: _Run) -> Stage:
        """Run its job, and learn how large epochs can be."""
        count, began = at.count, machine.monotonic()
        at.epoch = replace(at.epoch, attempt=Attempt(self.attempt, self._most_bytes(at)))
        try:
            if count:
                at.rows = self._jobs.run(at.epoch, self._is_small(count), at.given.ranges(at.ends))
            else:
                at.rows = self._jobs.tick(at.epoch)
        except LateError as error:
            if count:
                self._size.job_took(count, machine.monotonic() - began)
            return self._has_failed(at, f"The epoch took too long: {error}", error)
        except EpochTooLargeError as error:
            return self._has_failed(at, str(error), error)
        if count:
            self._size.job_took(count, machine.monotonic() - began)
        reason = self._learn(at, measured_in(at.rows))
        if reason is not None:
            at.is_over_bound = True
            return self._with_less(at, EpochTooLargeError(reason))
        if count:
            self._size.sent(count, at.rows.nbytes)
        return Stage.DONE

    def _lost(self, at: _Run) -> Stage:
        """Roll lanes back after an attempt whose slot was lost, or has failed."""
        self._roll_back(at, Stage.LOST)
        return Stage.RUNNING

    def _too_large(self, at: _Run) -> Stage:
        """Roll lanes back after an attempt that was too large."""
        self._roll_back(at, Stage.TOO_LARGE)
        if at.count > 1:
            _log.warning("an epoch of %d records was too large; retrying with fewer: %s", at.count, at.too_large)
            return Stage.TAKEN
        if at.epoch.attempt.most_bytes and at.is_over_bound:
            at.is_unbounded = True
            return Stage.TAKEN
        return Stage.GIVEN_UP

    def _given_up(self, at: _Run) -> Stage:
        """Have the handler decide about the only record of an epoch, which goes on without it."""
        [(place, (offset, _))] = at.given.ranges(at.ends).items()
        assert at.too_large is not None
        at.instead = self._give_up(at.epoch, place, offset, at.too_large)
        at.is_given_up = True
        self._size.was_given_up()
        return Stage.RUNNING

    def _moved(self, at: _Run) -> Stage:
        """Restore lanes where they run next; the epoch begins anew."""
        assert self._restore is not None
        self.attempt += 1
        at.begin_anew(self._restore(self.attempt))
        self._on_retry(at.epoch)
        return Stage.TAKEN

    def _after_loss(self, at: _Run, stage: Stage, error: SlotLostError | TaskFailedError) -> Stage:
        """Return the stage after one in which a slot was lost, or has failed without a reason that is known."""
        if stage is not Stage.RUNNING:
            if not at.may_fail(stage):
                raise error
            _log.warning("rolling epoch %d back again: %s", at.epoch.number, error)
            return stage
        if at.may_fail(stage):
            _log.warning("retrying epoch %d: %s", at.epoch.number, error)
            self.attempt += 1
            return Stage.LOST
        if isinstance(error, TaskFailedError):
            raise error
        return self._has_failed(at, f"The epoch was given up, probably because of its size: {error}", error)

    def _has_failed(self, at: _Run, why: str, error: Exception) -> Stage:
        """Return the stage after a job that has failed because of its size; its tasks may still run, and are fenced."""
        too_large = EpochTooLargeError(why)
        too_large.__cause__ = error
        at.is_over_bound = False
        self.attempt += 1
        return self._with_less(at, too_large)

    def _with_less(self, at: _Run, error: EpochTooLargeError) -> Stage:
        """Return the stage after an attempt that was too large: another one with fewer records, if it has any."""
        if not at.count:
            raise EpochTooLargeError(
                f"Epoch {at.epoch.number} is too large, although it has no records: {error}\n"
                f"  Give the machine or container more memory, or raise epoch_timeout."
            ) from error
        at.too_large = error
        self._on_retry(at.epoch)
        if at.count > 1:
            self._size.was_too_large(at.count)  # before lanes are rolled back: if they have moved, the epoch begins anew
        return Stage.TOO_LARGE

    def _roll_back(self, at: _Run, stage: Stage) -> None:
        self._jobs.roll_back(replace(at.epoch, attempt=Attempt(self.attempt)))
        del at.failures[stage]

    def _learn(self, at: _Run, measurements: list[Measured]) -> str | None:
        """Learn from what tasks have measured; return why they were above their limits, None if they were not."""
        for measured in measurements:
            self._size.read({at.epoch.origins[origin]: size for origin, size in measured.sizes.items()})
        reasons = [measured.too_large for measured in measurements if measured.too_large]
        if not reasons:
            return None
        bytes_out = sum(measured.bytes_out for measured in measurements)
        if bytes_out and at.count:
            self._size.sent(at.count, bytes_out)
            at.is_unbounded = bytes_out > _FEWER_HELPS * at.bytes_out > 0
            at.bytes_out = bytes_out
        return reasons[0]

    def _is_small(self, count: int) -> bool:
        """Whether one task runs so many records."""
        return count <= self._small and self._size.job_s(count) <= _SMALL_S

    def _most_bytes(self, at: _Run) -> int:
        """Return the limit for one task; 0 (no limit) for an epoch that cannot be made smaller."""
        if at.is_unbounded or not at.count:
            return 0
        most = self._size.most_bytes
        return most * 3 // 2 if self._is_small(at.count) else max(2 * most // self._lanes, most // 4)
