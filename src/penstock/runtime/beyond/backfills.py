"""Loads what a source has outside of Kafka into its history topic, once, before the first epoch that could miss it.

Rows are loaded in transactions, each of which also says how many rows are loaded so far: a start that follows a crash continues
there. A topic of its own keeps that, because state without committed offsets would be refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any

import msgspec
import pyarrow as pa

from penstock import faults
from penstock.history.backfilled import Loaded, known
from penstock.kafka.commit import Committer
from penstock.runtime.beyond.row_records import RowRecord, batch_of, record_maker
from penstock.topology import Backfill, SourceNode

_log = logging.getLogger(__name__)

_CHUNK = 20_000

Rows = Callable[[Backfill, int], Iterable[Mapping[str, Any]]]
"""`rows(backfill, skip)`: the rows of a backfill, in order, without the first `skip`."""


class Backfills:
    """The backfills of an application that are not complete; the records of `topic` say how far each is."""

    def __init__(self, sources: Iterable[SourceNode], topic: str, kept: Iterable[tuple[bytes, bytes | None]]) -> None:
        found = known(kept)
        self._topic = topic
        self._left = [
            (source, source.backfill, at)
            for source in sources
            if source.backfill is not None and not (at := found.get(source.backfill.topic, Loaded())).is_complete
        ]

    @property
    def are_complete(self) -> bool:
        """Whether there is nothing to load."""
        return not self._left

    def load(self, rows: Rows, committer: Committer) -> None:
        """Load all rows that are missing."""
        epoch = 0
        for source, backfill, begun in self._left:
            if begun.rows:
                _log.info("continuing to load %s after %d rows", backfill.topic, begun.rows)
            loaded = begun.rows
            records = map(record_maker(source, backfill.topic, _timed(backfill)), rows(backfill, loaded))
            while chunk := list(islice(records, _CHUNK)):
                loaded += len(chunk)
                faults.point("backfill.before_commit")
                epoch += 1
                committer.commit(epoch, [batch_of(backfill.topic, chunk), self._noted(backfill, Loaded(loaded))], [])
                faults.point("backfill.after_commit")
                _log.info("loaded %d rows into %s", loaded, backfill.topic)
            epoch += 1
            committer.commit(epoch, [self._noted(backfill, Loaded(loaded, is_complete=True))], [])
            faults.point("backfill.complete")
            _log.info("%s is complete: %d rows", backfill.topic, loaded)

    def _noted(self, backfill: Backfill, loaded: Loaded) -> pa.RecordBatch:
        return batch_of(self._topic, [RowRecord(backfill.topic.encode(), msgspec.json.encode(loaded), 0)])


def _timed(backfill: Backfill) -> Callable[[Mapping[str, Any]], tuple[Any, Any, int]]:
    """Return the user's function, with times in milliseconds."""

    def made(row: Mapping[str, Any]) -> tuple[Any, Any, int]:
        key, value, time = backfill.record(row)
        # Spark's times have no time zone: they are local.
        return key, value, round(time.timestamp() * 1000) if isinstance(time, datetime) else int(time)

    return made
