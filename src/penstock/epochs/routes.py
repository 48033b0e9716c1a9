"""Which shard a record from a topic belongs to, whatever bytes its producer has written for its key.

The same key has the same shard however it was encoded: what counts are the bytes that the source's serde would write. Serdes
with one encoding per value are not asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.epochs.assignment import Assignment
from penstock.epochs.shards import shard_of, shard_of_partition
from penstock.serdes import Serde, String


def on_shards(assigned: Assignment, table: pa.Table) -> pa.Table:
    """Records from topics, each with its shard; rows that have one already, such as dead letters, keep it."""
    column = table.column("shard")
    if not column.null_count:
        return table
    is_new = column.is_null().to_numpy()
    shards = column.fill_null(0).to_numpy().copy()
    shards[is_new] = _shards(assigned, table if is_new.all() else table.filter(pa.array(is_new)))
    return table.set_column(table.schema.get_field_index("shard"), "shard", pa.array(shards, pa.int32()))


def _shards(assigned: Assignment, records: pa.Table) -> Any:
    program, epoch = assigned.program, assigned.epoch
    sources, origins = records.column("name").to_numpy(), records.column("origin").to_numpy()
    found = np.empty(records.num_rows, np.int32)
    for code in np.unique(sources).tolist():
        own = sources == code
        keys = records.column("key") if own.all() else records.column("key").filter(pa.array(own))
        canonical = canonical_keys(program.key_of_source[code], keys)
        partitions = [epoch.origins[origin][1] for origin in origins[own].tolist()] if keys.null_count else ()
        found[own] = _of_keys(canonical, partitions, program.shards)
    return found


def _of_keys(keys: Sequence[bytes | None], partitions: Sequence[int], shards: int) -> list[int]:
    if not partitions:
        return [shard_of(key, shards) for key in keys]  # type: ignore[arg-type]  # no key is null where no partition is asked for
    return [
        shard_of_partition(partition, shards) if key is None else shard_of(key, shards)
        for key, partition in zip(keys, partitions, strict=True)
    ]


def canonical_keys(serde: Serde[Any], keys: pa.ChunkedArray) -> Sequence[bytes | None]:
    """The bytes that the serde would write for each key; those that it cannot read are left as they are."""
    raw: list[bytes | None] = keys.to_pylist()
    if serde.is_canonical or (isinstance(serde, String) and _is_text(keys)):
        return raw
    read, write = serde.deserialize, serde.serialize

    def canonical(key: bytes) -> bytes:
        try:
            value = read(key)
            return key if value is None else write(value)
        except Exception:  # noqa: BLE001 - the source's lane reads it again, and asks the handler what to do
            return key

    return [None if key is None else canonical(key) for key in raw]


def _is_text(keys: pa.ChunkedArray) -> bool:
    try:
        keys.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True
