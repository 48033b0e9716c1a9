"""What happens to a record that a delivery cannot read, or that its target cannot hold: the error handlers decide."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from penstock import machine
from penstock.errors import ProcessingError
from penstock.handlers import DeadLetter, ErrorHandlers, Failure, FailureKind, LogAndFail, settle
from penstock.kafka.records import TopicRecord
from penstock.lanes.failures import DEAD_LETTER, dead_letter_row, named
from penstock.lanes.outbox import Row
from penstock.records import RecordMetadata
from penstock.topology import SinkNode

_log = logging.getLogger(__name__)

NO_EPOCH = -1
"""The epoch in such a dead letter: a delivery is behind all of them."""


class Undelivered:
    """Calls the handlers and does what they decide.

    `send` writes a dead letter, and returns once it is in its topic. That is not part of the target's transaction, so a letter
    may be there twice. `on_dropped` counts a record that was left out, by node and reason.
    """

    def __init__(
        self,
        application_id: str,
        handlers: ErrorHandlers,
        send: Callable[[Row], None],
        on_dropped: Callable[[str, str], None],
    ) -> None:
        self._id = application_id
        self._handlers = handlers
        self._send = send
        self._on_dropped = on_dropped

    def unreadable(self, sink: SinkNode, record: TopicRecord, error: Exception) -> None:
        """Handle a record that the sink's serdes cannot read."""
        failure = _failure(FailureKind.DESERIALIZATION, sink, record, error)
        self._act(failure, named(failure, sink, record.key), record.topic)

    def unfit(self, sink: SinkNode, record: TopicRecord, key: Any, error: Exception) -> None:
        """Handle a record that the sink's target cannot hold."""
        failure = _failure(FailureKind.PRODUCTION, sink, record, error)
        fatal = ProcessingError(
            f"{named(failure, sink, key)}\n  {sink.target!r} cannot hold it: give the target row=, which returns what it can "
            f"hold, or let production_errors= drop such records or make them dead letters"
        )
        self._act(failure, fatal, record.topic)

    def _act(self, failure: Failure, fatal: ProcessingError, topic: str) -> None:
        """Return once the record may be left out; raise to end the application."""
        outcome = settle(self._handlers.of(failure.kind), failure)
        about = (failure.node, failure.place, type(failure.error).__name__, failure.error)
        if isinstance(outcome, LogAndFail):
            raise fatal from failure.error
        if isinstance(outcome, DeadLetter):
            if outcome.topic == topic:
                again = f"it cannot be a dead letter again: it was read from dead-letter topic {topic!r}"
                raise ProcessingError(f"{fatal}\n  {again}") from failure.error
            fatal.__cause__ = failure.error
            self._send(dead_letter_row(outcome.topic, failure, fatal, self._id, NO_EPOCH, machine.now_ms()))
            self._on_dropped(failure.node, DEAD_LETTER)
            _log.warning("%s cannot deliver the record from %s, now a dead letter: %s: %s", *about)
        else:
            self._on_dropped(failure.node, f"{failure.kind.value} error")
            _log.warning("%s cannot deliver the record from %s, leaving it out: %s: %s", *about)


def _failure(kind: FailureKind, sink: SinkNode, record: TopicRecord, error: Exception) -> Failure:
    place = RecordMetadata(record.topic, record.partition, record.offset)
    return Failure(kind, error, sink.name, place, record.key, record.value, record.timestamp, record.headers, record.topic)
