"""`Transactions`: an application's transactions, one after the other, in which several processes may write.

Each has a producer epoch of its own. So what a writer sends late, of a transaction that was aborted or committed, is refused; and
an epoch that runs again begins another transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from aiokafka.protocol.transaction import AddOffsetsToTxnRequest, TxnOffsetCommitRequest

from penstock.errors import BrokerError, CommitError, ConfigError, FencedError, PenstockError
from penstock.faults import point
from penstock.kafka.writers.batches import Identity
from penstock.kafka.writers.brokers import GROUP, TRANSACTION, Brokers, NoAnswerError, first_error, refused
from penstock.kafka.writers.requests import end, take_over
from penstock.kafka.writers.writer import Writer
from penstock.records import Partition

if TYPE_CHECKING:
    from penstock.kafka.commit import SourceOffset

_END = "\0"
"""confluent-kafka commits metadata with this end, and reads beyond it if it is not there."""

FEATURE, LEVEL = "transaction.version", 2


def require_producer_epochs(brokers: Brokers) -> None:
    """Raise if the brokers do not give every transaction a producer epoch of its own."""
    level = brokers.run(brokers.levels()).get(FEATURE, 0)
    if level < LEVEL:
        raise ConfigError(
            f"writers: executors can write only if the brokers have {FEATURE}={LEVEL}, but it is {level}. "
            f"Upgrade the feature, or set writers to driver."
        )


@dataclass(frozen=True)
class Shared:
    """What a writer has to know about the transaction: who writes, and the partitions that were added already."""

    identity: Identity
    opened: frozenset[Partition]


class Transactions:
    """The transactions of a transactional id. Only one thread may use them at a time."""

    def __init__(self, brokers: Brokers, writer: Writer, transactional_id: str, timeout_ms: int) -> None:
        self._brokers = brokers
        self._writer = writer
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._identity = Identity(transactional_id, -1, -1)
        self._began: float | None = None
        self._shared: Shared | None = None
        self._written: dict[Partition, int] = {}
        self._last_written: frozenset[Partition] = frozenset()

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun, and has not ended."""
        return self._shared is not None

    def take_over(self) -> None:
        """Fence the producer before this one, and abort its transaction; raises if the brokers cannot raise producer epochs."""
        require_producer_epochs(self._brokers)
        what = "Cannot take over the transactional id"
        answer = self._ask(take_over(self._id, self._timeout_ms), what)
        if answer.error_code:
            raise refused(answer.error_code, what)
        self._identity = Identity(self._id, answer.producer_id, answer.producer_epoch)

    def begin(self) -> Shared:
        """Begin a transaction; one that is open is aborted, with everything that was written in it.

        The partitions that the last one wrote are added at once: many writers that add theirs at the same time would wait for
        each other.
        """
        if self._shared is not None:
            self.abort()
        self._began = self._brokers.clock()
        self._written = {}
        self._shared = Shared(self._identity, self._last_written)
        try:
            self._writer.open(self._identity, self._last_written)
        except PenstockError as error:
            raise self.explained(error) from error
        return self._shared

    def wrote(self, rows: Mapping[Partition, int]) -> None:
        """Note how many rows writers have written to each partition."""
        for place, count in rows.items():
            self._written[place] = self._written.get(place, 0) + count

    def write(self, rows: Mapping[Partition, pa.Table]) -> None:
        """Write rows, after those that were written to their partitions."""
        assert self._shared is not None
        opened = self._shared.opened | self._written.keys()
        try:
            self._writer.write(self._identity, rows, opened, self._written)
        except PenstockError as error:
            raise self.explained(error) from error
        self.wrote({place: own.num_rows for place, own in rows.items()})

    def send_offsets(self, group_id: str, offsets: Sequence[SourceOffset]) -> None:
        """Add the offsets of a group to the transaction."""
        what = "Cannot send offsets"
        answer = self._ask(AddOffsetsToTxnRequest(*self._identity, group_id), what)
        if answer.error_code:
            raise self.explained(refused(answer.error_code, what))
        by_topic: dict[str, list[tuple[int, int, str]]] = {}
        for offset in offsets:
            by_topic.setdefault(offset.topic, []).append((offset.partition, offset.offset, offset.metadata + _END))
        request = TxnOffsetCommitRequest(self._id, group_id, *self._identity[1:], list(by_topic.items()))
        try:
            found = self._brokers.run(self._brokers.ask(GROUP, group_id, request, first_error, what))
        except NoAnswerError as error:
            raise BrokerError(f"{error}.") from error
        if code := first_error(found):
            raise self.explained(refused(code, what))

    def commit(self) -> bool:
        """Commit; return False if the outcome is not known yet. To commit again is safe: the brokers know the transaction."""
        return self._end(is_commit=True)

    def abort(self) -> None:
        """Abort the transaction; what its writers still send is refused."""
        if not self._end(is_commit=False):
            raise BrokerError("No broker has confirmed that the transaction is aborted.")

    def _end(self, *, is_commit: bool) -> bool:
        what = "Cannot commit the transaction" if is_commit else "Cannot abort the transaction"
        point("transactions.before_end")
        request = end(*self._identity, is_commit)
        try:
            answer = self._brokers.run(self._brokers.ask(TRANSACTION, self._id, request, _error_code, what))
        except NoAnswerError:
            return False
        if answer.error_code:
            raise self.explained(refused(answer.error_code, what))
        self._identity = Identity(self._id, answer.producer_id, answer.producer_epoch)
        if is_commit:
            self._last_written = frozenset(self._written)
        self._shared = self._began = None
        point("transactions.after_end")
        return True

    def _ask(self, request: Any, what: str) -> Any:
        try:
            return self._brokers.run(self._brokers.ask(TRANSACTION, self._id, request, _error_code, what))
        except NoAnswerError as error:
            raise BrokerError(f"{error}.") from error

    def explained(self, error: PenstockError) -> PenstockError:
        """Return the reason of an error: a transaction that was open for too long is aborted by the broker, as if fenced."""
        took = 0.0 if self._began is None else self._brokers.clock() - self._began
        if isinstance(error, FencedError) and took * 1_000 >= self._timeout_ms:
            return CommitError(f"The transaction was open for {took:.0f} s, longer than transaction_timeout: it was aborted.")
        return error


def _error_code(answer: Any) -> int:
    return int(answer.error_code)
