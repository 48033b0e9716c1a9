"""Routes records from topics to shards, independently of how their producer has encoded the key.

A key always has the same shard, however it was encoded: the bytes that the source's serde would write determine it. If a serde
has only one encoding per value, keys are not decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.epochs.assignment import Assignment
from penstock.epochs.shards import shard_of, shard_of_partition
from penstock.errors import FAILURES, RegistryError
from penstock.expressions.columns.scalars import is_text
from penstock.serdes import Serde, String


def on_shards(assigned: Assignment, table: pa.Table) -> pa.Table:
    """Return records from topics with their shards; rows that already have one, such as dead letters, keep it."""
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
        return [shard_of(key, shards) for key in keys]  # type: ignore[arg-type]  # without partitions, no key is null
    return [
        shard_of_partition(partition, shards) if key is None else shard_of(key, shards)
        for key, partition in zip(keys, partitions, strict=True)
    ]


def canonical_keys(serde: Serde[Any], keys: pa.ChunkedArray) -> Sequence[bytes | None]:
    """Return the bytes that the serde would write for each key; keys that it cannot decode are unchanged."""
    raw: list[bytes | None] = keys.to_pylist()
    if serde.is_canonical or (isinstance(serde, String) and is_text(keys)):
        return raw
    read, write = serde.deserialize, serde.serialize

    def canonical(key: bytes) -> bytes:
        try:
            value = read(key)
            return key if value is None else write(value)
        except RegistryError:  # the key would get the shard of its bytes, not its own
            raise
        except FAILURES:
            return key

    return [None if key is None else canonical(key) for key in raw]
