"""The partition of a key, as Java's producer and librdkafka's `murmur2_random` choose it, for many keys at a time.

If a row has no partition, its key decides. If it has a negative one, its key without as many of its last bytes: Kafka Streams
chooses the partition of a windowed key by the key in it, without the times behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.records import Partition

_SEED = 0x9747B28C
_FACTOR = np.uint32(0x5BD1E995)
_WORD = 4


def with_partitions(rows: pa.RecordBatch, topics: Sequence[str], counts: Mapping[str, int], turn: int = 0) -> pa.RecordBatch:
    """Return the rows with the partitions of those whose key decides, and whose topic has a known count of partitions.

    Rows name their topics by index. A row without a key gets any partition: the next one in turn, which begins with `turn`.
    """
    by_key = are_by_key(rows)
    if not by_key.any():
        return rows
    names = rows.column("name").to_numpy(zero_copy_only=False)
    of_topic = np.array([*(counts.get(topic, 0) for topic in topics), 0], np.int64)  # the last is that of rows without an index
    count = of_topic[np.nan_to_num(names, nan=-1).astype(np.int64)]
    open_ = np.flatnonzero(by_key & (count > 0))
    if not len(open_):
        return rows
    keys, partitions = rows.column("key").take(pa.array(open_)), rows.column("partition")
    found = partitions.fill_null(0).to_numpy(zero_copy_only=False).copy()
    hashes = murmur2(keys, tails=-found[open_]) & 0x7FFFFFFF
    chosen = np.where(keys.is_null().to_numpy(zero_copy_only=False), turn + np.arange(len(open_)), hashes)
    is_missing = partitions.is_null().to_numpy(zero_copy_only=False).copy()
    found[open_], is_missing[open_] = chosen % count[open_], False
    return rows.set_column(
        rows.schema.get_field_index("partition"), "partition", pa.array(found, mask=is_missing, type=pa.int32())
    )


def are_by_key(rows: pa.RecordBatch | pa.Table) -> Any:
    """Return which rows have no partition yet, because their key decides."""
    return rows.column("partition").fill_null(-1).to_numpy(zero_copy_only=False) < 0


def with_all_names(rows: pa.RecordBatch, topics: Sequence[str]) -> tuple[pa.RecordBatch, list[str]]:
    """Return the rows with an index for each topic, also for those that rows have chosen, and all topics by index."""
    names = rows.column("name").to_numpy(zero_copy_only=False)
    chosen = np.flatnonzero(names < 0)
    if not len(chosen):
        return rows, list(topics)
    own = rows.column("topic").take(pa.array(chosen)).dictionary_encode()
    names = names.copy()
    names[chosen] = len(topics) + own.indices.to_numpy(zero_copy_only=False)
    named = rows.set_column(rows.schema.get_field_index("name"), "name", pa.array(names, pa.int16()))
    return named, [*topics, *own.dictionary.to_pylist()]


def by_partition(rows: pa.RecordBatch | pa.Table, topics: Sequence[str]) -> dict[Partition, pa.Table]:
    """Return the rows of each partition, in their order; all rows have a topic by index, and a partition."""
    if not rows.num_rows:
        return {}
    codes = codes_of(rows)
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1)).tolist()
    taken = rows.take(pa.array(order))
    table = taken if isinstance(taken, pa.Table) else pa.Table.from_batches([taken])
    found = {}
    for start, end in zip(starts, [*starts[1:], len(ordered)], strict=True):
        found[partition_of(int(ordered[start]), topics)] = table.slice(start, end - start)
    return found


def codes_of(rows: pa.RecordBatch | pa.Table) -> Any:
    """Return the partition of each row as a number; all rows have a topic by index, and a partition."""
    return rows.column("name").to_numpy().astype(np.int64) << 32 | rows.column("partition").to_numpy().astype(np.int64)


def partition_of(code: int, topics: Sequence[str]) -> Partition:
    """Return the partition that such a number stands for."""
    return topics[code >> 32], code & 0xFFFFFFFF


def murmur2(keys: Any, tails: Any = 0) -> Any:
    """Return the murmur2 hash of each key without its last bytes, of which `tails` has the numbers, as unsigned numbers.

    A null has that of an empty key.
    """
    keys = keys.fill_null(b"")
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    held = keys.buffers()[2]
    data = np.frombuffer(b"" if held is None else held, np.uint8)
    lengths = np.maximum(np.diff(offsets) - tails, 0)
    order = np.argsort(-lengths, kind="stable")  # keys with another word left are always the first ones
    starts, lengths = offsets[:-1][order], lengths[order]
    found = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    for word in range(int(lengths[0]) // _WORD if len(lengths) else 0):
        several = int(np.searchsorted(-lengths, -(word + 1) * _WORD, side="right"))
        mixed = _word(data, starts[:several] + word * _WORD) * _FACTOR
        mixed = (mixed ^ mixed >> np.uint32(24)) * _FACTOR
        found[:several] = found[:several] * _FACTOR ^ mixed
    found = _finished(data, starts + lengths // _WORD * _WORD, lengths % _WORD, found)
    hashes = np.empty_like(found)
    hashes[order] = found
    return hashes


def _word(data: Any, at: Any) -> Any:
    """Return the four bytes at each position, as little-endian numbers."""
    parts = [data[at + number].astype(np.uint32) << np.uint32(8 * number) for number in range(_WORD)]
    return parts[0] | parts[1] | parts[2] | parts[3]


def _finished(data: Any, at: Any, left: Any, found: Any) -> Any:
    """Return the hashes with the last bytes of each key, fewer than a word."""
    for number in (2, 1, 0):
        some = left > number
        found[some] ^= data[at[some] + number].astype(np.uint32) << np.uint32(8 * number)
    found[left > 0] *= _FACTOR
    found ^= found >> np.uint32(13)
    found *= _FACTOR
    return found ^ found >> np.uint32(15)
