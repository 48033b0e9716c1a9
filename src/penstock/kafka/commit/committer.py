"""`Committer`: takes an epoch's commit through its phases, once and in order, and stops for good at the first failure.

There is no recovery here. A process that fails ends, and the next one starts from what Kafka has committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from penstock import machine
from penstock.errors import BrokerError, CommitError, PenstockError
from penstock.faults import point
from penstock.kafka.commit.ports import Publisher, SourceOffset

logger: logging.Logger = logging.getLogger(__name__)


class Phase(Enum):
    """Where an epoch's commit stands."""

    IDLE = "idle"
    """Nothing is open."""
    BEGUN = "begun"
    """A transaction is open..."""
    PRODUCED = "produced"
    """...with all rows handed over..."""
    OFFSETS_SENT = "offsets_sent"
    """...and the offsets."""
    COMMITTING = "committing"
    """The broker was asked to commit and may have done so: from now on, only `commit` may be called."""
    COMMITTED = "committed"
    """The whole epoch is visible; idle follows at once."""
    FAILED = "failed"
    """No further epoch is accepted."""


_ABORTABLE = (Phase.BEGUN, Phase.PRODUCED, Phase.OFFSETS_SENT)


class Committer:
    """Commits the epochs of a start through a publisher, and what a start writes before them.

    `on_phase` receives each phase that is reached and how many seconds it took. A commit whose outcome is unknown is retried
    for `patience_ms`; `on_retry` is called each time.
    """

    def __init__(
        self,
        publisher: Publisher,
        patience_ms: int = 120_000,
        clock: Callable[[], float] = machine.monotonic,
        on_phase: Callable[[Phase, float], None] = lambda phase, seconds: None,
        on_retry: Callable[[], None] = lambda: None,
    ) -> None:
        self._publisher = publisher
        self._patience = patience_ms / 1_000
        self._clock = clock
        self._on_phase = on_phase
        self._on_retry = on_retry
        self._phase = Phase.IDLE
        self._entered = clock()
        self._epoch: int | None = None
        self._offsets: dict[tuple[str, int], int] = {}

    @property
    def phase(self) -> Phase:
        """The phase of the current commit."""
        return self._phase

    def commit(self, epoch: int, batches: Iterable[Any], offsets: Sequence[SourceOffset]) -> None:
        """Publish the epoch's rows and offsets atomically; when this returns, that is decided.

        Readers may see them a moment later: brokers answer before they have noted the end in every partition.
        """
        self._publish(epoch, batches, offsets)
        self._epoch = epoch

    def write(self, batches: Iterable[Any], offsets: Sequence[SourceOffset] = ()) -> None:
        """As `commit`, for rows and offsets that belong to no epoch."""
        self._publish(None, batches, offsets)

    def continue_from(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Accept these offsets next, even if they are before those that were committed: partitions have lost records."""
        self._offsets.update(offsets)

    def _publish(self, epoch: int | None, batches: Iterable[Any], offsets: Sequence[SourceOffset]) -> None:
        what = "rows without an epoch" if epoch is None else f"epoch {epoch}"
        if self._phase is not Phase.IDLE:
            raise CommitError(f"Cannot commit {what}: the committer is {self._phase.value}. Start again.")
        self._entered = self._clock()
        try:
            self._check_order(epoch, offsets)
            self._begin()
            self._produce(batches)
            self._send_offsets(offsets)
            self._commit(what)
        except BaseException:
            self._fail(what)
            raise
        self._offsets.update({(offset.topic, offset.partition): offset.offset for offset in offsets})
        self._enter(Phase.IDLE)

    def _check_order(self, epoch: int | None, offsets: Sequence[SourceOffset]) -> None:
        """Raise if an epoch or an offset goes back: its records would be published twice."""
        if epoch is not None and self._epoch is not None and epoch <= self._epoch:
            raise CommitError(f"Epoch {epoch} cannot follow epoch {self._epoch}, which is already committed.")
        for new in offsets:
            last = self._offsets.get((new.topic, new.partition), 0)
            if new.offset < last:
                raise CommitError(f"Epoch {epoch}: {new.topic}-{new.partition} goes back from offset {last} to {new.offset}.")

    def _begin(self) -> None:
        point("barrier.before_begin")
        self._publisher.begin()
        self._enter(Phase.BEGUN)
        point("barrier.after_begin")

    def _produce(self, batches: Iterable[Any]) -> None:
        for rows in batches:
            self._publisher.produce(rows)
            point("barrier.mid_produce")
        self._enter(Phase.PRODUCED)
        point("barrier.after_produce")

    def _send_offsets(self, offsets: Sequence[SourceOffset]) -> None:
        self._publisher.send_offsets(offsets)
        self._enter(Phase.OFFSETS_SENT)
        point("barrier.after_offsets")
        point("barrier.before_commit")

    def _commit(self, what: str) -> None:
        self._enter(Phase.COMMITTING)
        deadline = self._clock() + self._patience
        while not self._publisher.commit():
            if self._clock() >= deadline:
                cure = "Start again: the start finds out whether it is committed, and continues from there."
                raise BrokerError(f"{what.capitalize()}: no broker has confirmed the commit within {self._patience:g} s. {cure}")
            logger.warning("%s: it is not known yet whether the commit succeeded; retrying", what)
            self._on_retry()
        self._enter(Phase.COMMITTED)
        point("barrier.after_commit")

    def _fail(self, what: str) -> None:
        abortable = self._phase in _ABORTABLE
        self._enter(Phase.FAILED)
        if abortable:
            try:
                self._publisher.abort()
            except PenstockError as error:
                logger.warning("%s: cannot abort the transaction, which will time out: %s", what, error)

    def _enter(self, phase: Phase) -> None:
        now = self._clock()
        self._phase, elapsed, self._entered = phase, now - self._entered, now
        self._on_phase(phase, elapsed)
