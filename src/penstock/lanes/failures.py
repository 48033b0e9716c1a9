"""What a lane does about a record that fails: it calls the error handler, and acts on its decision."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import ATTRIBUTED, FAILURES, ProcessingError, Raised, SerializationError, failure_of, shown, text_of
from penstock.expressions.functions import with_plain_functions
from penstock.handlers import (
    DeadLetter,
    ErrorHandler,
    ErrorHandlers,
    Failure,
    FailureKind,
    LogAndContinue,
    LogAndFail,
    Outcome,
    Retry,
    decide,
    settle,
)
from penstock.lanes.clocks import Clocks
from penstock.lanes.outbox import Outbox, Row, RowKind
from penstock.lanes.position import RawRecord
from penstock.lanes.retries import retried, retrying
from penstock.letters import failure_headers
from penstock.processor import Operator
from penstock.records import LAST_TIMESTAMP, NO_HEADERS, RecordMetadata
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

LATE = "late"
"""The reason under which records that are late for their source are counted."""

DEAD_LETTER = "dead letter"
"""The reason under which records that became dead letters are counted."""

INVALID_TIMESTAMP = "invalid timestamp"
"""The reason under which records are counted that a timestamp extractor has given no time."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class FailurePolicy:
    """The error handlers of an application, and the facts that its dead letters carry."""

    handlers: ErrorHandlers = field(default_factory=ErrorHandlers)
    application_id: str = ""
    epoch: int = 0
    sleep: Callable[[float], object] = time.sleep


class Failures:
    """Applies the error handlers of an application in one lane, which it has to be bound to."""

    __slots__ = ("_clocks", "_outbox", "_policy")

    _policy: FailurePolicy
    _clocks: Clocks
    _outbox: Outbox

    def bind(self, policy: FailurePolicy, clocks: Clocks, outbox: Outbox) -> None:
        """Handle the failures of this lane from now on; user objects that stay have been bound to an earlier one."""
        self._policy = policy
        self._clocks = clocks
        self._outbox = outbox

    def deserialization(self, node: SourceNode, error: Exception, raw: RawRecord, origin: RecordMetadata) -> None:
        """Handle a record that cannot be read; `error` names the record, and its cause is the serde's error."""
        cause = error.__cause__
        why = error if cause is None else failure_of(cause)
        read_from = node.topics[0] if node.internal else origin.topic
        failure = Failure(FailureKind.DESERIALIZATION, why, node.name, origin, *raw, read_from)
        self._act(failure, settle(self._policy.handlers.deserialization, failure), error)

    def processing(self, node: Node, raised: Raised, key: Any) -> None:
        """Handle a failure of a node's code, on a record or in a timer."""
        error = failure_of(raised)
        if isinstance(error, DecidedError):
            node, failure, outcome = error.node, error.failure, error.outcome
        else:
            failure = self._failure(FailureKind.PROCESSING, node, error)
            outcome = settle(self._policy.handlers.processing, failure)
        self._act(failure, outcome, named(failure, node, key))

    def production(self, node: Node, raised: Raised, key: Any) -> None:
        """Handle a record that a sink cannot serialize or route."""
        failure = self._failure(FailureKind.PRODUCTION, node, failure_of(raised))
        self._act(failure, settle(self._policy.handlers.production, failure), named(failure, node, key))

    def late(self, node: Node, handler: ErrorHandler, error: Exception, key: Any) -> None:
        """Handle a record that is late for its source. It is not logged: there may be any number of them."""
        failure = self._failure(FailureKind.LATE, node, error)
        outcome = settle(handler, failure)
        if isinstance(outcome, LogAndContinue):
            self._outbox.drop(node.name, LATE)
        else:
            self._act(failure, outcome, named(failure, node, key))

    def untimed(self, node: SourceNode, timestamp: int, origin: RecordMetadata) -> None:
        """Skip a record that its source's extractor gave a negative time; of those of an epoch, the first is logged."""
        if (node.name, INVALID_TIMESTAMP) not in self._outbox.dropped:
            place = f"{origin.topic}-{origin.partition} at offset {origin.offset}"
            what = "%s skips the record from %s: its timestamp= function returned %d (%s). Others like it are only counted."
            _log.warning(what, node.name, place, timestamp, node.line)
        self._outbox.drop(node.name, INVALID_TIMESTAMP)

    def unhandled(self, node: Node, raised: Raised) -> ProcessingError:
        """Return the error for a failure of a node's code that no handler decides on."""
        return named(self._failure(FailureKind.PROCESSING, node, failure_of(raised)), node, None)

    def retrying(self, node: ProcessorNode) -> Operator:
        """Return the node's operator, ready to bind: with functions that are retried on failure if a handler may decide so."""
        operator = with_plain_functions(node.operator)
        if not self._policy.handlers.may_retry:
            return operator
        return retrying(operator, lambda error, attempt, is_clean: self._retry(node, error, attempt, is_clean))

    def retried(self, node: Node, attempt: Callable[..., Any]) -> Callable[..., Any]:
        """Return what a node does without effects, retried on failure if a handler may decide so."""
        if not self._policy.handlers.may_retry:
            return attempt
        return retried(attempt, lambda error, again, is_clean: self._retry(node, error, again, is_clean))

    def _retry(self, node: Node, error: Exception, attempt: Callable[[], Any], is_clean: Callable[[], bool]) -> Any:
        """Retry as often as the handler allows; return the result, or raise the decision about the last failure."""
        failure = self._failure(FailureKind.PROCESSING, node, error)
        decision = decide(self._policy.handlers.processing, failure)
        if not isinstance(decision, Retry):
            raise DecidedError(node, failure, decision) from error
        for wait_ms in decision.waits_ms():
            if not is_clean():
                break
            _log.info("%s failed on the record from %s; retrying in %d ms: %s", node.name, failure.place, wait_ms, shown(error))
            self._policy.sleep(wait_ms / 1000)
            try:
                return attempt()
            except ATTRIBUTED:
                raise
            except FAILURES as latest:
                error = failure_of(latest)
        failure = replace(failure, error=error)
        raise DecidedError(node, failure, settle(decision.then, failure)) from error

    def _failure(self, kind: FailureKind, node: Node, error: Exception) -> Failure:
        """Return a failure of the current record."""
        position = self._outbox.cursor.position
        raw = position.raw() or RawRecord(None, None, self._clocks.time_of(node.name), NO_HEADERS)
        return Failure(kind, error, node.name, position.metadata(), *raw, position.read_from())

    def _act(self, failure: Failure, outcome: Outcome, fatal: Exception) -> None:
        """Carry out a decision; `fatal` is the error to raise if the decision is to fail."""
        if isinstance(failure.error, MemoryError):  # perhaps not caused by this record: the epoch is retried with fewer
            raise failure.error
        about = (failure.node, failure.place, type(failure.error).__name__, text_of(failure.error))
        if isinstance(outcome, LogAndFail):
            _log.error("%s failed on the record from %s, stopping the lane: %s: %s", *about)
            raise fatal from failure.error
        if isinstance(outcome, DeadLetter):
            if failure.metadata is not None and failure.metadata.topic == outcome.topic:
                raise ProcessingError(
                    f"{fatal}\n  it cannot be a dead letter again: it was read from dead-letter topic {outcome.topic!r}"
                ) from failure.error
            fatal.__cause__ = failure.error
            policy, now_ms = self._policy, self._clocks.wall_clock()
            row = dead_letter_row(outcome.topic, failure, fatal, policy.application_id, policy.epoch, now_ms)
            self._outbox.send_dead_letter(row)
            self._outbox.drop(failure.node, DEAD_LETTER)
            _log.warning("%s failed on the record from %s, now a dead letter: %s: %s", *about)
        else:
            self._outbox.drop(failure.node, f"{failure.kind.value} error")
            _log.warning("%s failed on the record from %s, dropping it: %s: %s", *about)


class DecidedError(Exception):
    """Carries the decision about a failure that is not retried (any more) to the node that carries it out."""

    def __init__(self, node: Node, failure: Failure, outcome: Outcome) -> None:
        super().__init__(failure.node)
        self.node = node
        self.failure = failure
        self.outcome = outcome


def named(failure: Failure, node: Node, key: Any) -> ProcessingError:
    """Return the error that names the node, the user's line and the record."""
    error = failure.error
    serdes = ""
    if isinstance(node, SinkNode) and isinstance(error, SerializationError):
        serdes = f"\n  it writes keys with {node.key!r} and values with {node.value!r}; key= and value= set others"
    return ProcessingError(
        f"{failure.node} failed on the record from {failure.place} (key {shown(key)}): {type(error).__name__}: {text_of(error)}\n"
        f"  the node was declared at {node.line}{serdes}"
    )


def dead_letter_row(topic: str, failure: Failure, fatal: Exception, application_id: str, epoch: int, now_ms: int) -> Row:
    """Return the record as it was read, with headers about the failure; `fatal` is the error that names node, line and record."""
    # Kafka accepts no negative timestamps, and retention soon deletes records of 1970.
    timestamp = failure.timestamp if 0 <= failure.timestamp <= LAST_TIMESTAMP else now_ms
    headers = failure.headers + failure_headers(failure, fatal, application_id, epoch, now_ms)
    return Row(topic, failure.key, failure.value, timestamp, headers, kind=RowKind.DEAD_LETTER)
