"""Handles a record that is too large even for an epoch of its own: the error handler decides, as for any failed record."""

from __future__ import annotations

import logging

import pyarrow as pa

from penstock.epochs.output import letters_sent
from penstock.epochs.program import Epoch, Program
from penstock.epochs.wire import Control, control_row, out
from penstock.errors import EpochTooLargeError, PenstockError, ProcessingError
from penstock.handlers import DeadLetter, Failure, FailureKind, LogAndFail, settle
from penstock.lanes.failures import DEAD_LETTER, dead_letter_row
from penstock.lanes.position import RawRecord, headers_of
from penstock.records import NO_HEADERS, Partition, RecordMetadata
from penstock.runtime.loop.dispatcher import Jobs
from penstock.topology import SourceNode

_log = logging.getLogger(__name__)

CURE = (
    "Give the machine or container more memory, raise epoch_timeout, produce less output per record, or set a handler of "
    "processing errors that skips the record."
)


class GivingUp:
    """Calls the handler of processing errors for a record, and does what it decides."""

    def __init__(self, program: Program, jobs: Jobs) -> None:
        self._program = program
        self._jobs = jobs

    def __call__(self, epoch: Epoch, partition: Partition, offset: int, error: EpochTooLargeError) -> pa.Table:
        """Return the rows that replace the record: a dead letter, if any, and its count; or raise to end the application."""
        node = self._source(partition[0])
        metadata = RecordMetadata(*partition, offset)
        failure = Failure(FailureKind.PROCESSING, error, node.name, metadata, *self._raw(partition, offset), partition[0])
        fatal = ProcessingError(
            f"The record from {failure.place} is too large, even for an epoch of its own: {error}\n"
            f"  It was read by {node.name}, declared at {node.line}. {CURE}"
        )
        outcome = settle(self._program.handlers.processing, failure)
        if isinstance(outcome, LogAndFail):
            raise fatal from error
        tables = []
        if isinstance(outcome, DeadLetter):
            if outcome.topic == partition[0]:
                raise ProcessingError(f"{fatal}\n  It cannot be a dead letter again: it comes from that topic.") from error
            fatal.__cause__ = error
            row = dead_letter_row(outcome.topic, failure, fatal, self._program.application_id, epoch.number, epoch.wall_clock)
            tables.append(letters_sent(self._program, [row]))
        reason = DEAD_LETTER if tables else f"{FailureKind.PROCESSING.value} error"
        tables.append(control_row(Control(dropped=[(node.name, reason, 1)]), 0))
        _log.warning("skipping the record from %s, which is too large even for an epoch of its own: %s", failure.place, error)
        return out(pa.concat_tables([table for table in tables if table is not None]))

    def _source(self, topic: str) -> SourceNode:
        nodes = [self._program.nodes[name] for name in self._program.sources]
        return next(node for node in nodes if isinstance(node, SourceNode) and node.reads(topic))

    def _raw(self, partition: Partition, offset: int) -> RawRecord:
        """Return the record as it was read; without its content, if that cannot be read."""
        try:
            found = self._jobs.read(partition, offset).to_pylist()
        except PenstockError as error:
            _log.warning("cannot read %s-%d at offset %d alone: %s", *partition, offset, error)
            found = []
        if not found:
            return RawRecord(None, None, 0, NO_HEADERS)
        [row] = found
        return RawRecord(row["key"], row["value"], row["timestamp"], headers_of(row["headers"]))
