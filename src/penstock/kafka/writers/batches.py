"""Rows as Kafka's record batches, under the producer id and epoch of a transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from penstock.errors import ConfigError
from penstock.kafka.producer import EARLIEST_TIMESTAMP, pairs

_CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_MAGIC = 2
_CHUNK = 10_000
"""At most this many rows are Python objects at a time."""


class Identity(NamedTuple):
    """Who writes in a transaction: all of its writers are the same producer to the brokers."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Format(NamedTuple):
    """How batches are made: their compression, and the size of the largest."""

    codec: int
    most_bytes: int

    @classmethod
    def of(cls, compression: str, most_bytes: int) -> Format:
        """Return the format for a compression as librdkafka names it."""
        if compression not in _CODECS:
            raise ConfigError(f"kafka: unknown compression.type {compression!r}. Use one of {', '.join(_CODECS)}.")
        return cls(_CODECS[compression], most_bytes)


def batches(rows: pa.Table, identity: Identity, sequence: int, form: Format) -> Iterator[bytes]:
    """Yield the rows of one partition as batches; the first record has the number `sequence` in the transaction."""
    builder, count = _builder(identity, sequence, form), 0
    for timestamp, key, value, headers in _records(rows):
        if builder.append(count, timestamp, key, value, headers) is None:
            yield bytes(builder.build())
            sequence += count
            builder, count = _builder(identity, sequence, form), 0
            builder.append(0, timestamp, key, value, headers)
        count += 1
    if count:
        yield bytes(builder.build())


def _builder(identity: Identity, sequence: int, form: Format) -> Any:
    return DefaultRecordBatchBuilder(
        _MAGIC, form.codec, 1, identity.producer_id, identity.producer_epoch, sequence, form.most_bytes
    )


def _records(rows: pa.Table) -> Iterator[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    """Yield the records of rows: timestamp, key, value and headers."""
    for batch in rows.to_batches(max_chunksize=_CHUNK):
        headers = batch.column("headers")
        has_any = headers.null_count < len(headers)
        yield from zip(
            [timestamp or EARLIEST_TIMESTAMP for timestamp in batch.column("timestamp").to_pylist()],
            batch.column("key").to_pylist(),
            batch.column("value").to_pylist(),
            pairs(headers) if has_any else [[]] * batch.num_rows,
            strict=True,
        )
