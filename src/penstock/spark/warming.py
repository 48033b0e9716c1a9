"""Lets Python workers load the program in a job that does nothing else, so that the first epoch does not wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.spark.tasks import program_of


def warm(one_row_each: DataFrame, broadcast: Any) -> None:
    """Load the program in the workers that run the tasks of a frame."""

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        program_of(broadcast)
        yield from batches  # all of them: Spark discards a worker that has not read all of its input

    one_row_each.mapInArrow(task, one_row_each.schema).toArrow()
