"""Tables in parts: the rows of each lane, or of each of several slots."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.epochs.program import Program
from penstock.epochs.shards import lane_of


def by_lane(program: Program, table: pa.Table) -> list[pa.Table]:
    """Return the rows of each lane, in their order."""
    if program.lanes == 1:
        return [table]
    return divided(table, lane_of(table.column("shard").to_numpy(), program.shards, program.lanes), program.lanes)


def divided(table: pa.Table, parts: Any, count: int) -> list[pa.Table]:
    """Return the rows of each part, in their order; `parts` are the numbers of the rows' parts."""
    table = table.take(pa.array(np.argsort(parts, kind="stable")))
    ends = np.cumsum(np.bincount(parts, minlength=count)).tolist()
    return [table.slice(begin, end - begin) for begin, end in pairwise([0, *ends])]


def collected(found: Iterable[Iterable[pa.RecordBatch]], schema: pa.Schema) -> pa.Table:
    """Return all rows as one table."""
    return pa.Table.from_batches([batch for each in found for batch in each], schema)
