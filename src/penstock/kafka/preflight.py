"""Finds rows that are too large for their topic before a transaction begins, and does what the error handler decides.

A record that the broker refuses fails its whole transaction, and would do so again after every restart.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ProductionError
from penstock.handlers import DeadLetter, ErrorHandler, Failure, FailureKind, LogAndContinue, settle
from penstock.kafka.limits import SizeLimits
from penstock.letters import SIZE_HEADER

logger: logging.Logger = logging.getLogger(__name__)

SINK, CHANGELOG, DEAD_LETTER = 1, 2, 3
"""The kinds of rows."""

RECORD_OVERHEAD = 100
HEADER_OVERHEAD = 10
"""Upper bounds of what Kafka's format adds to a record that is alone in its batch, and to a header."""

_NO_LIMIT = np.iinfo(np.int64).max


class Preflight:
    """Checks rows against the size limits of their topics; `topics` are those that rows name by index."""

    def __init__(self, topics: Sequence[str], limits: SizeLimits, production: ErrorHandler) -> None:
        self._topics = list(topics)
        self._limits = limits
        self._production = production
        # The last entry has no limit: it is what rows find whose name is -1.
        self._limit_by_name = np.array([*map(limits.of, topics), _NO_LIMIT])

    def check(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows to send: the same ones, unless one is too large."""
        sizes = _sizes(rows)
        too_large = np.flatnonzero(sizes > self._limits_of(rows))
        if not len(too_large):
            return rows
        keep = np.ones(rows.num_rows, np.bool_)
        keep[too_large] = False
        others = []
        for index in too_large.tolist():
            others += self._instead(rows.slice(index, 1).to_pylist()[0], int(sizes[index]))
        return pa.concat_batches([rows.filter(pa.array(keep)), pa.RecordBatch.from_pylist(others, schema=rows.schema)])

    def _limits_of(self, rows: pa.RecordBatch) -> Any:
        """The limit of each row's topic."""
        limits = self._limit_by_name[rows.column("name").to_numpy(zero_copy_only=False)]
        if not (limits == _NO_LIMIT).any():
            return limits
        chosen = rows.column("topic").dictionary_encode()
        known = np.array([*map(self._limits.of, chosen.dictionary.to_pylist()), _NO_LIMIT])
        of_chosen = known[pc.fill_null(chosen.indices, -1).to_numpy(zero_copy_only=False)]
        return np.where(limits == _NO_LIMIT, of_chosen, limits)

    def _topic(self, row: Mapping[str, Any]) -> str:
        return self._topics[row["name"]] if row["name"] >= 0 else str(row["topic"])

    def _instead(self, row: dict[str, Any], size: int) -> list[dict[str, Any]]:
        """Return the rows to send in place of one that is too large."""
        topic = self._topic(row)
        key = f"key {row['key'][:50]!r}" if row["key"] is not None else "no key"
        error = ProductionError(
            f"A record of {size} bytes with {key} is too large for topic {topic!r}, which accepts {self._limits.of(topic)} bytes."
        )
        if row["kind"] == CHANGELOG:
            raise ProductionError(f"{error} Store less under this key, or raise max.message.bytes of the changelog.")
        if row["kind"] == DEAD_LETTER:
            return [self._without_value(row, topic, size, error)]
        headers = tuple((header["name"], header["value"]) for header in row["headers"] or ())
        failure = Failure(
            FailureKind.PRODUCTION, error, f"the sink of {topic!r}", None, row["key"], row["value"], row["timestamp"], headers
        )
        outcome = settle(self._production, failure)
        if isinstance(outcome, LogAndContinue):
            logger.warning("skipped a record: %s", error)
            return []
        if isinstance(outcome, DeadLetter):
            logger.warning("wrote a record to dead-letter topic %r, without its value: %s", outcome.topic, error)
            return [self._without_value({**row, "partition": None}, outcome.topic, size, error)]
        raise error

    def _without_value(self, row: dict[str, Any], topic: str, size: int, error: ProductionError) -> dict[str, Any]:
        """Return a dead letter with the error in its headers and without the value; raise if even that is too large."""
        about = [
            {"name": "__streams.errors.exception", "value": b"penstock.errors.ProductionError"},
            {"name": "__streams.errors.message", "value": str(error).encode("utf-8", "backslashreplace")},
        ]
        headers = [*(row["headers"] or about), {"name": SIZE_HEADER, "value": str(size).encode()}]
        letter = {**row, "kind": DEAD_LETTER, "name": -1, "topic": topic, "value": None, "headers": headers}
        rest = sum(len(header["name"]) + len(header["value"] or b"") + HEADER_OVERHEAD for header in headers)
        if len(row["key"] or b"") + rest + RECORD_OVERHEAD > self._limits.of(topic):
            raise ProductionError(f"{error} Its key and headers alone are too large for dead-letter topic {topic!r}.") from error
        return letter


def _sizes(rows: pa.RecordBatch) -> Any:
    sizes = _lengths(rows.column("key")) + _lengths(rows.column("value")) + RECORD_OVERHEAD
    headers = rows.column("headers")
    if headers.null_count < len(headers):
        each = headers.flatten()
        lengths = _lengths(each.field("name")) + _lengths(each.field("value")) + HEADER_OVERHEAD
        parents = pc.list_parent_indices(headers).to_numpy(zero_copy_only=False)
        sizes = sizes + np.bincount(parents, weights=lengths, minlength=rows.num_rows).astype(np.int64)
    return sizes


def _lengths(column: Any) -> Any:
    return pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
