"""What Spark's Python workers need for jobs beside the lanes: the program, from the driver's broadcast."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from penstock.engines.serving import loaded
from penstock.epochs.program import Program

Batches = Iterator[pa.RecordBatch]
Hop = Callable[[Batches], Batches]


def program_of(broadcast: Any) -> Program:
    """Return the program, unpickled once per worker: this application's own driver pickled it."""
    return loaded(broadcast.value)
