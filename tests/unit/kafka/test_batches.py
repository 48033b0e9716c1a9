"""Rows become batches that a reader of Kafka's format reads back, under one identity and with numbers without gaps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from penstock.epochs.wire import OUT
from penstock.errors import ConfigError
from penstock.kafka.writers.batches import Format, Identity, batches

WHO = Identity("app", 7, 3)
HEADERS = st.none() | st.lists(st.fixed_dictionaries({"name": st.text(max_size=3), "value": st.none() | st.binary(max_size=3)}))
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "timestamp": st.integers(0, 2**40),
            "key": st.none() | st.binary(max_size=5),
            "value": st.none() | st.binary(max_size=200),
            "headers": HEADERS,
        }
    ),
    min_size=1,
)


def encoded(rows: list[dict[str, Any]], compression: str = "none", most_bytes: int = 1_000, sequence: int = 0) -> list[bytes]:
    table = pa.Table.from_pylist([{"kind": 1, "stage": 0, "name": 0, **row} for row in rows], schema=OUT)
    return list(batches(table, WHO, sequence, Format.of(compression, most_bytes)))


def decoded(data: bytes) -> Any:
    records = MemoryRecords(data)
    found = records.next_batch()
    assert found is not None
    assert not records.has_next()
    return found


@given(ROWS, st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]), st.integers(0, 50))
def test_a_reader_finds_the_same_records_with_consecutive_numbers(
    rows: list[dict[str, Any]], compression: str, sequence: int
) -> None:
    number, found = sequence, []
    for data in encoded(rows, compression, sequence=sequence):
        batch = decoded(data)
        assert batch.validate_crc()
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, number)
        assert batch.is_transactional
        records = list(batch)
        assert [record.offset for record in records] == list(range(len(records)))
        number += len(records)
        found += [(record.timestamp, record.key, record.value, list(record.headers)) for record in records]
    pairs = [[(header["name"], header["value"]) for header in row["headers"] or ()] for row in rows]
    assert found == [(row["timestamp"] or 1, row["key"], row["value"], own) for row, own in zip(rows, pairs, strict=True)]


def test_batches_are_not_larger_than_allowed() -> None:
    found = encoded([{"timestamp": 1, "key": b"k", "value": b"x" * 100}] * 50, most_bytes=1_000)
    assert len(found) > 5
    assert all(len(data) <= 1_000 for data in found)


def test_a_compression_that_no_reader_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown compression.type 'brotli'. Use one of none, gzip"):
        Format.of("brotli", 1)
