"""Records made of the rows of a DataFrame, as bytes, and the batches in which they are published."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.epochs.wire import OTHER_TOPIC, OUT, Kind
from penstock.errors import ProcessingError
from penstock.topology import SourceNode

Row = Mapping[str, Any]


class RowRecord(NamedTuple):
    """What is published for a row."""

    key: bytes | None
    value: bytes | None
    timestamp: int


def record_maker(source: SourceNode, topic: str, made: Callable[[Row], tuple[Any, Any, int]]) -> Callable[[Row], RowRecord]:
    """Return a function that makes the record of a row; `made` is the user's, with a time in milliseconds."""
    serialize_key = source.key.for_topic(topic, is_key=True).serialize
    serialize = source.value.for_topic(topic, is_key=False).serialize

    def record(row: Row) -> RowRecord:
        try:
            key, value, at = made(row)
            return RowRecord(None if key is None else serialize_key(key), None if value is None else serialize(value), at)
        except Exception as error:
            raise ProcessingError(
                f"{source.name} cannot make a record of row {dict(row)!r}: {type(error).__name__}: {error}\n"
                f"  the node was declared at {source.line}"
            ) from error

    return record


def batch_of(topic: str, records: Iterable[RowRecord]) -> pa.RecordBatch:
    """Return rows for a publisher."""
    common = {"kind": int(Kind.SINK), "stage": 0, "name": OTHER_TOPIC, "topic": topic}
    return pa.RecordBatch.from_pylist([{**common, **record._asdict()} for record in records], schema=OUT)
