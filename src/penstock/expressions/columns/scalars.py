"""Reads numbers, text and truth values as a column: records whose value is nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.expressions.columns.frames import Frame
from penstock.serdes import Boolean, Float32, Float64, Int16, Int32, Int64, Serde, String
from penstock.serdes.presence import Presence

_SERDES = frozenset({Boolean, Float32, Float64, Int16, Int32, Int64, Presence, String})


def are_scalars(serde: Serde[Any]) -> bool:
    """Whether all values of a serde are scalars of one type."""
    return type(serde) in _SERDES


def is_text(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether the bytes of a column are all UTF-8."""
    try:
        column.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


def absent_in(column: pa.ChunkedArray) -> Any:
    """Return which records have no value; None if all have one."""
    return column.is_null().to_numpy() if column.null_count else None


def read_scalars(serde: Serde[Any], column: pa.ChunkedArray) -> Frame:
    """Return the values of a column."""
    if isinstance(serde, Presence):
        return Frame(len(column), {}, {}, absent_in(column))
    deserialize, raw = serde.deserialize, column.to_pylist()
    values = np.empty(len(raw), np.object_)
    values[:] = [None if data is None else deserialize(data) for data in raw]
    return Frame(len(raw), {(): values}, {})
