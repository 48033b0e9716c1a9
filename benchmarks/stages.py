"""The stages of a workload in one process, without Kafka and Spark: records per second of CPU, with functions and in columns.

Epochs arrive as Arrow batches and pass all stages on two lanes, with stores on disk. It shows what a change does to a lane.

Usage: python -m benchmarks.stages WORKLOAD [functions|columns] [--records N] [--epochs N] [--profile]
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import statistics
import time
from itertools import islice
from types import ModuleType

import pyarrow as pa

from benchmarks.applications import columns_app, penstock_app
from benchmarks.in_process import program_of
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.workload import Input, Workload
from penstock import StreamsBuilder
from penstock.engines.serving import COLLECT_EVERY
from penstock.epochs.hops import INPUT
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch

APPLICATIONS: dict[str, ModuleType] = {"functions": penstock_app, "columns": columns_app}


def main() -> None:
    """Measure one workload, and print its figures."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("workload", choices=sorted(WORKLOADS))
    arguments.add_argument("written_with", choices=sorted(APPLICATIONS), nargs="?", default="functions")
    arguments.add_argument("--records", type=int, default=100_000, help="records of an epoch")
    arguments.add_argument("--epochs", type=int, default=5, help="the first one is not counted")
    arguments.add_argument("--profile", action="store_true", help="print the functions that take the most time")
    given = arguments.parse_args()
    gc.set_threshold(COLLECT_EVERY)
    workload, profile = WORKLOADS[given.workload], cProfile.Profile() if given.profile else None
    seconds = measure(workload, given.written_with, given.records, given.epochs, profile)
    rates = [given.records / each for each in seconds[1:]]
    print(f"{given.workload}, {given.written_with}: {statistics.median(rates):,.0f} records per CPU-second")
    print(f"from {min(rates):,.0f} to {max(rates):,.0f} in {len(rates)} epochs of {given.records:,} records")
    if profile is not None:
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def measure(workload: Workload, written_with: str, records: int, epochs: int, profile: cProfile.Profile | None) -> list[float]:
    """Return the CPU time of each epoch."""
    builder = StreamsBuilder()
    APPLICATIONS[written_with].TOPOLOGIES[workload.topology](builder, "out", *workload.sources)
    inputs, _ = workload.inputs(records * epochs)
    batches = [_batch(workload, list(islice(inputs, records)), number * records) for number in range(epochs)]
    origins = tuple((source, 0) for source in workload.sources)
    seconds = []
    with program_of(builder.build(), lanes=2) as program:
        for number, batch in enumerate(batches):
            epoch = Epoch(number, number - 1, 1_000_000, origins, (-1,) * len(origins))
            begun = time.process_time()
            if profile is not None:
                profile.runcall(run_epoch, program, epoch, [batch])
            else:
                run_epoch(program, epoch, [batch])
            seconds.append(time.process_time() - begun)
    return seconds


def _batch(workload: Workload, inputs: list[Input], first: int) -> pa.RecordBatch:
    codes = [workload.sources.index(each.source) for each in inputs]
    columns = {
        "name": codes,
        "origin": codes,
        "offset": range(first, first + len(inputs)),
        "timestamp": [each.timestamp_ms for each in inputs],
        "key": [each.key.encode() for each in inputs],
        "value": [each.value for each in inputs],
        "headers": [None] * len(inputs),
    }
    return pa.RecordBatch.from_pydict(columns, schema=INPUT)


if __name__ == "__main__":
    main()
