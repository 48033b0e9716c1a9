"""Migrations as Spark jobs: one task per lane, each of which runs a step on the lane of its host."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from penstock.epochs.assignment import Assignment
from penstock.epochs.migration import MigrationStep
from penstock.epochs.program import Epoch
from penstock.epochs.wire import OUT
from penstock.spark.tasks import Batches, Hop, program_run_once

_OUT = from_arrow_schema(OUT)


def migrated(lanes: DataFrame, broadcast: Any, epoch: Epoch, step: MigrationStep) -> pa.Table:
    """Run a step on the lanes whose numbers are in the first column of `lanes`; return the rows of all of them."""
    return lanes.mapInArrow(migrating_task(broadcast, epoch, step), _OUT).toArrow()


def migrating_task(broadcast: Any, epoch: Epoch, step: MigrationStep) -> Hop:
    """Return the task that runs a step on the lanes in its input rows."""

    def task(batches: Batches) -> Batches:
        program = program_run_once(broadcast)
        for lane in [lane for batch in batches for lane in batch.column(0).to_pylist()]:
            yield from step(Assignment(program, epoch, lane=lane)).to_batches()

    return task
