"""Loads what a source has outside of Kafka into its history topic, once, before the first epoch that could miss it.

Rows are loaded in transactions, each of which also says how many rows are loaded so far: a start that follows a crash continues
there. A topic of its own keeps that, because state without committed offsets would be refused.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from penstock import faults
from penstock.barrier import Barrier
from penstock.epochs.wire import OTHER_TOPIC, OUT, Kind
from penstock.errors import ProcessingError
from penstock.topology import Backfill, SourceNode

_log = logging.getLogger(__name__)

_CHUNK = 20_000

Rows = Callable[[Backfill, int], Iterable[Mapping[str, Any]]]
"""`rows(backfill, skip)`: the rows of a backfill, in order, without the first `skip`."""


class Loaded(msgspec.Struct, frozen=True):
    """How far a backfill is."""

    rows: int = 0
    is_complete: bool = False


_decode = msgspec.json.Decoder(Loaded).decode


def backfill_topic(application_id: str) -> str:
    """Return the name of the topic that has the progress of backfills."""
    return f"{application_id}-backfills"


def are_loaded(kept: Iterable[tuple[bytes, bytes | None]]) -> bool:
    """Whether all backfills that have begun are complete, according to the records of their topic."""
    return all(loaded.is_complete for loaded in _known(kept).values())


def _known(kept: Iterable[tuple[bytes, bytes | None]]) -> dict[str, Loaded]:
    return {key.decode(): _decode(value) for key, value in kept if value is not None}


class Backfills:
    """The backfills of an application that are not complete; the records of `topic` say how far each is."""

    def __init__(self, sources: Iterable[SourceNode], topic: str, kept: Iterable[tuple[bytes, bytes | None]]) -> None:
        known = _known(kept)
        self._topic = topic
        self._left = [
            (source, source.backfill, at)
            for source in sources
            if source.backfill is not None and not (at := known.get(source.backfill.topic, Loaded())).is_complete
        ]

    @property
    def are_complete(self) -> bool:
        """Whether there is nothing to load."""
        return not self._left

    def load(self, rows: Rows, barrier: Barrier) -> None:
        """Load all rows that are missing."""
        epoch = 0
        for source, backfill, begun in self._left:
            if begun.rows:
                _log.info("continuing to load %s after %d rows", backfill.topic, begun.rows)
            loaded = begun.rows
            records = map(_maker(source, backfill), rows(backfill, loaded))
            while chunk := list(islice(records, _CHUNK)):
                loaded += len(chunk)
                faults.point("backfill.before_commit")
                epoch += 1
                barrier.commit(epoch, [_batch(backfill.topic, chunk), self._noted(backfill, Loaded(loaded))], [])
                faults.point("backfill.after_commit")
                _log.info("loaded %d rows into %s", loaded, backfill.topic)
            epoch += 1
            barrier.commit(epoch, [self._noted(backfill, Loaded(loaded, is_complete=True))], [])
            faults.point("backfill.complete")
            _log.info("%s is complete: %d rows", backfill.topic, loaded)

    def _noted(self, backfill: Backfill, loaded: Loaded) -> pa.RecordBatch:
        return _batch(self._topic, [_Record(backfill.topic.encode(), msgspec.json.encode(loaded), 0)])


class _Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    timestamp: int


def _maker(source: SourceNode, backfill: Backfill) -> Callable[[Mapping[str, Any]], _Record]:
    """Return a function that makes the record of a row, as bytes."""
    serialize_key = source.key.for_topic(backfill.topic, is_key=True).serialize
    serialize = source.value.for_topic(backfill.topic, is_key=False).serialize

    def made(row: Mapping[str, Any]) -> _Record:
        try:
            key, value, time = backfill.record(row)
            # Spark's times have no time zone: they are local.
            at = round(time.timestamp() * 1000) if isinstance(time, datetime) else int(time)
            return _Record(None if key is None else serialize_key(key), None if value is None else serialize(value), at)
        except Exception as error:
            raise ProcessingError(
                f"{source.name} cannot make a record of row {dict(row)!r}: {type(error).__name__}: {error}\n"
                f"  the node was declared at {source.line}"
            ) from error

    return made


def _batch(topic: str, records: Iterable[_Record]) -> pa.RecordBatch:
    common = {"kind": int(Kind.SINK), "stage": 0, "name": OTHER_TOPIC, "topic": topic}
    return pa.RecordBatch.from_pylist([{**common, **record._asdict()} for record in records], schema=OUT)
