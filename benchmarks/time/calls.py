"""How many records per second a lane processes with a call for each, which here is a wait of 20 ms on the event loop.

Usage: python -m benchmarks.time.calls [--records N] [--concurrency N] [--batch N]
"""

from __future__ import annotations

import argparse
import asyncio
import time

import numpy as np
import pyarrow as pa

from penstock import StreamsBuilder, Topology
from penstock.calls import Callers
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.bound_shard import BoundShard, Surroundings
from penstock.lanes.epoch import RECORDS, Catalogue, walk
from penstock.lanes.stores import OwnShard
from penstock.state import LaneState, memory_engine

ANSWER_SECONDS = 0.02


async def _ask(value: str) -> str:
    await asyncio.sleep(ANSWER_SECONDS)
    return value


async def _ask_several(requests: list[tuple[str, str]]) -> list[str]:
    await asyncio.sleep(ANSWER_SECONDS)
    return [value for _, value in requests]


def _topology(concurrency: int, batch: int | None) -> Topology:
    builder = StreamsBuilder(value=str)
    stream = builder.stream("in")
    if batch is None:
        answered = stream.map_values_async(_ask, concurrency=concurrency, timeout="2s", value=str)
    else:
        answered = stream.map_values_async(_ask_several, concurrency=concurrency, timeout="2s", batch=batch, value=str)
    answered.to("out")
    return builder.build()


def _records(count: int) -> pa.Table:
    numbers = np.arange(count)
    columns = {
        "source": np.zeros(count, np.int16),
        "origin": np.zeros(count, np.int32),
        "offset": numbers,
        "timestamp": numbers + 1_700_000_000_000,
        "key": [b"key-%d" % number for number in range(count)],
        "value": [b"value-%d" % number for number in range(count)],
    }
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type) for field in RECORDS
    ]
    return pa.Table.from_arrays(arrays, schema=RECORDS)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--concurrency", type=int, default=200)
    parser.add_argument("--batch", type=int)
    options = parser.parse_args()
    topology, callers = _topology(options.concurrency, options.batch), Callers()
    blueprint, shard = Blueprint(list(topology.nodes.values()), topology.stores), OwnShard(LaneState(memory_engine()))
    lane = BoundShard(blueprint, shard, Surroundings(lambda: 0, callers=lambda: callers))
    source = next(iter(topology.nodes))  # not the one behind the exchange: its records have made their calls
    catalogue = Catalogue((source,), (("in", 0),))
    _walked(lane, 500, catalogue)  # to warm up
    seconds, busy = _walked(lane, options.records, catalogue)
    most = options.concurrency * (options.batch or 1) / ANSWER_SECONDS
    rate = options.records / seconds
    assert rate <= most, f"{rate:,.0f} records/s exceeds the possible rate of answers: the calls were not made"
    print(f"{rate:,.0f} records/s of at most {most:,.0f}; {busy / options.records * 1e6:.0f} µs of CPU each")


def _walked(lane: BoundShard, count: int, catalogue: Catalogue) -> tuple[float, float]:
    """Seconds, and seconds of CPU, that an epoch took."""
    table = _records(count)
    start, cpu = time.perf_counter(), time.process_time()
    walk(lane, table, catalogue)
    taken = time.perf_counter() - start, time.process_time() - cpu
    rows = lane.outbox.drain()
    assert len(rows) == count
    assert all(row.is_exchanged for row in rows)
    return taken


if __name__ == "__main__":
    main()
