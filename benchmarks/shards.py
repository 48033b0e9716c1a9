"""What a small epoch costs with more shards: nodes are bound once for each shard that has a record.

`python -m benchmarks.shards`: no Spark, no Kafka, one core, one lane. Epochs of 64 records of 10,000 keys, with stores on disk.
"""

from __future__ import annotations

import gc
import statistics
import time

import pyarrow as pa

from benchmarks.in_process import program_of
from penstock import KStream, StreamsBuilder, tumbling
from penstock.engines.serving import COLLECT_EVERY
from penstock.epochs.hops import INPUT
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch, Program

KEYS, RECORDS, EPOCHS, SHARDS = 10_000, 64, 300, (1, 8, 64)


def counts(stream: KStream[str, str]) -> None:
    """One stage."""
    stream.group_by_key().count(store="counts").to_stream().to("out", value=int)


def sums(stream: KStream[str, str]) -> None:
    """Two stages with windows in the second one."""
    again = stream.map_values(str.upper).select_key(lambda key, value: value)
    again.group_by_key().windowed_by(tumbling("10s")).count(store="windows").to_stream().to("out", value=int)


def main() -> None:
    """Measure both topologies with each number of shards."""
    gc.set_threshold(COLLECT_EVERY)
    print(f"CPU ms per epoch of {RECORDS} records, median of {EPOCHS}")
    for what, declare in (("counts", counts), ("windows behind an exchange", sums)):
        builder = StreamsBuilder(key=str, value=str)
        declare(builder.stream("in"))
        topology = builder.build()
        found = []
        for shards in SHARDS:
            with program_of(topology, lanes=1, shards=shards) as program:
                seconds = [_seconds(program, number) for number in range(EPOCHS)]
            found.append(f"{shards} shards {1_000 * statistics.median(seconds):.2f}")
        print(f"{what}: {', '.join(found)}")


def _seconds(program: Program, number: int) -> float:
    batch = _records(number * RECORDS)
    begun = time.process_time()
    run_epoch(program, Epoch(number, number - 1, 1_000_000, (("in", 0),), (0,)), [batch])
    return time.process_time() - begun


def _records(first: int) -> pa.RecordBatch:
    columns = {
        "name": [0] * RECORDS,
        "origin": [0] * RECORDS,
        "offset": list(range(first, first + RECORDS)),
        "timestamp": list(range(first, first + RECORDS)),
        "key": [b"key %d" % (number * 7_919 % KEYS) for number in range(first, first + RECORDS)],
        "value": [b"value %d" % (number * 104_729 % KEYS) for number in range(first, first + RECORDS)],
        "headers": [None] * RECORDS,
    }
    return pa.RecordBatch.from_pydict(columns, schema=INPUT)


if __name__ == "__main__":
    main()
