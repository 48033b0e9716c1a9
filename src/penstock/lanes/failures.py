"""What a lane does about a record that fails: it asks the handler, and acts on the answer."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import ATTRIBUTED, ProcessingError
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
from penstock.lanes.retries import persistent
from penstock.letters import failure_headers
from penstock.processor import Operator
from penstock.records import LAST_TIMESTAMP, NO_HEADERS, RecordMetadata
from penstock.topology.nodes import Node, ProcessorNode, SourceNode

LATE = "late"
"""The reason under which records that came too late for their source are counted."""

DEAD_LETTER = "dead letter"
"""The reason under which records that went to a dead-letter topic are counted."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class FailurePolicy:
    """What an application does about records that fail, and what its dead letters name."""

    handlers: ErrorHandlers = field(default_factory=ErrorHandlers)
    application_id: str = ""
    epoch: int = 0
    sleep: Callable[[float], object] = time.sleep


class Failures:
    """The handlers of an application, as a lane of it uses them."""

    __slots__ = ("_clocks", "_outbox", "_policy")

    def __init__(self, policy: FailurePolicy, clocks: Clocks, outbox: Outbox) -> None:
        self._policy = policy
        self._clocks = clocks
        self._outbox = outbox

    def deserialization(self, node: SourceNode, error: Exception, raw: RawRecord, origin: RecordMetadata) -> None:
        """A record cannot be read; `error` names it, and is caused by what the serde has to say."""
        cause = error.__cause__
        why = cause if isinstance(cause, Exception) else error
        read_from = node.topics[0] if node.internal else origin.topic
        failure = Failure(FailureKind.DESERIALIZATION, why, node.name, origin, *raw, read_from)
        self._act(failure, settle(self._policy.handlers.deserialization, failure), error)

    def processing(self, node: Node, error: Exception, key: Any) -> None:
        """A node's code failed, on a record or in a timer."""
        if isinstance(error, DecidedError):
            node, failure, outcome = error.node, error.failure, error.outcome
        else:
            failure = self._failure(FailureKind.PROCESSING, node, error)
            outcome = settle(self._policy.handlers.processing, failure)
        self._act(failure, outcome, named(failure, node, key))

    def production(self, node: Node, error: Exception, key: Any) -> None:
        """A sink cannot make bytes of a record, or cannot tell where it goes."""
        failure = self._failure(FailureKind.PRODUCTION, node, error)
        self._act(failure, settle(self._policy.handlers.production, failure), named(failure, node, key))

    def late(self, node: Node, handler: ErrorHandler, error: Exception, key: Any) -> None:
        """A record came too late for its source. That is nothing to log: there may be any number of them."""
        failure = self._failure(FailureKind.LATE, node, error)
        outcome = settle(handler, failure)
        if isinstance(outcome, LogAndContinue):
            self._outbox.drop(node.name, LATE)
        else:
            self._act(failure, outcome, named(failure, node, key))

    def unhandled(self, node: Node, error: Exception) -> ProcessingError:
        """What a node's code failed with, in the node's name, where no handler is asked."""
        return named(self._failure(FailureKind.PROCESSING, node, error), node, None)

    def persistent(self, node: ProcessorNode) -> Operator:
        """What the node does, with functions that are called again if a handler may ask for it; else as it is."""
        if not self._policy.handlers.may_retry:
            return node.operator
        return persistent(node.operator, lambda error, attempt, is_clean: self._again(node, error, attempt, is_clean))

    def _again(self, node: Node, error: Exception, attempt: Callable[[], Any], is_clean: Callable[[], bool]) -> Any:
        """What the function gives when it is called again, as often as the handler allows; if it gives nothing, what then."""
        failure = self._failure(FailureKind.PROCESSING, node, error)
        decision = decide(self._policy.handlers.processing, failure)
        if not isinstance(decision, Retry):
            raise DecidedError(node, failure, decision) from error
        for wait_ms in decision.waits_ms():
            if not is_clean():
                break
            _log.info("%s failed on the record from %s and is tried again in %d ms: %r", node.name, failure.place, wait_ms, error)
            self._policy.sleep(wait_ms / 1000)
            try:
                return attempt()
            except ATTRIBUTED:
                raise
            except Exception as latest:
                error = latest
        failure = replace(failure, error=error)
        raise DecidedError(node, failure, settle(decision.then, failure)) from error

    def _failure(self, kind: FailureKind, node: Node, error: Exception) -> Failure:
        """A failure of the record in hand."""
        position = self._outbox.cursor.position
        raw = position.raw() or RawRecord(None, None, self._clocks.time_of(node.name), NO_HEADERS)
        return Failure(kind, error, node.name, position.metadata(), *raw, position.read_from())

    def _act(self, failure: Failure, outcome: Outcome, fatal: Exception) -> None:
        """Do what was decided; `fatal` is the error that ends the lane if that is it."""
        if isinstance(failure.error, MemoryError):  # which the record need not be to blame for: the epoch is tried with fewer
            raise failure.error
        about = (failure.node, failure.place, type(failure.error).__name__, failure.error)
        if isinstance(outcome, LogAndFail):
            _log.error("%s failed on the record from %s, which ends the lane: %s: %s", *about)
            raise fatal from failure.error
        if isinstance(outcome, DeadLetter):
            if failure.metadata is not None and failure.metadata.topic == outcome.topic:
                raise ProcessingError(
                    f"{fatal}\n  it cannot be a dead letter again: it comes from that very topic"
                ) from failure.error
            fatal.__cause__ = failure.error
            policy, now_ms = self._policy, self._clocks.wall_clock()
            row = dead_letter_row(outcome.topic, failure, fatal, policy.application_id, policy.epoch, now_ms)
            self._outbox.send_dead_letter(row)
            self._outbox.drop(failure.node, DEAD_LETTER)
            _log.warning("%s failed on the record from %s, now a dead letter: %s: %s", *about)
        else:
            self._outbox.drop(failure.node, f"{failure.kind.value} error")
            _log.warning("%s failed on the record from %s, which is left out: %s: %s", *about)


class DecidedError(Exception):
    """On its way from a function that was not, or not any more, to be called again, to the node that acts on it."""

    def __init__(self, node: Node, failure: Failure, outcome: Outcome) -> None:
        super().__init__(failure.node)
        self.node = node
        self.failure = failure
        self.outcome = outcome


def named(failure: Failure, node: Node, key: Any) -> ProcessingError:
    """The error that names the node, the user's line and the record."""
    error = failure.error
    return ProcessingError(
        f"{failure.node} failed on the record from {failure.place} (key {key!r}): {type(error).__name__}: {error}\n"
        f"  the node was declared at {node.line}"
    )


def dead_letter_row(topic: str, failure: Failure, fatal: Exception, application_id: str, epoch: int, now_ms: int) -> Row:
    """The record as it was read, with headers that say what happened; `fatal` is the error that names node, line and record."""
    # A topic takes no negative time, and soon deletes what is of 1970.
    timestamp = failure.timestamp if 0 <= failure.timestamp <= LAST_TIMESTAMP else now_ms
    headers = failure.headers + failure_headers(failure, fatal, application_id, epoch, now_ms)
    return Row(topic, failure.key, failure.value, timestamp, headers, kind=RowKind.DEAD_LETTER)
