"""A lane compared with a hand-written loop that does exactly the same work without Penstock.

The work: JSON records over many keys, epochs arriving as Arrow batches, one process, count and sum per key in an LMDB store
that is opened and closed every epoch, as on Spark. Per epoch one write transaction with the new values (event time before
the JSON), the old ones (for a rollback) and the epoch number; the output is one result row and one changelog row per changed key.
The second measurement puts five stateless steps in front, the same functions in both. The third has the aggregates, with and
without three steps in front, as expressions in place of functions, which a lane computes in columns.

Usage: python -m benchmarks.lane [--records N] [--keys N] [--rounds N]
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import json
import pstats
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from struct import Struct
from typing import Any

import lmdb
import msgspec
import numpy as np
import orjson
import pyarrow as pa

from penstock import StreamsBuilder, Topology, agg, col, struct
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.bound_shard import BoundShard, Surroundings
from penstock.lanes.epoch import RECORDS, Catalogue, walk
from penstock.lanes.stores import OwnShard
from penstock.state import EngineFactory, EngineKind, LaneState

EPOCH = 50_000
REPORT = Path("reports/bench-lane.json")
Value = dict[str, Any]


def records(count: int, keys: int) -> list[pa.RecordBatch]:
    """Epochs of records: `{"amount": …, "id": …}` under keys `key-0` to `key-99999`."""
    chance = random.Random(7)
    batches = []
    for first in range(0, count, EPOCH):
        size = min(EPOCH, count - first)
        columns = [
            pa.array(np.zeros(size, np.int16)),
            pa.array(np.zeros(size, np.int32)),
            pa.array(np.arange(first, first + size)),
            pa.nulls(size, pa.int64()),
            pa.nulls(size, pa.int64()),
            pa.array(np.arange(first, first + size) + 1_700_000_000_000),
            pa.nulls(size, pa.int64()),
            pa.array([b"key-%d" % chance.randrange(keys) for _ in range(size)], pa.binary()),
            pa.array([orjson.dumps({"amount": chance.randrange(1000), "id": first + i}) for i in range(size)], pa.binary()),
            pa.nulls(size, RECORDS.field("headers").type),
        ]
        batches.append(pa.RecordBatch.from_arrays(columns, schema=RECORDS))
    return batches


# ---- the functions both sides call -------------------------------------------------------------------------------------


def start() -> list[int]:
    """No record yet."""
    return [0, 0]


def add(key: str, value: Value, total: list[int]) -> list[int]:
    """Count and sum."""
    return [total[0] + 1, total[1] + value["amount"]]


def is_valid(key: str, value: Value) -> bool:
    """True for all records here; the filter still calls it."""
    return bool(value["amount"] >= 0)


def is_test(key: str, value: Value) -> bool:
    """False for all records here."""
    return bool(value["id"] < 0)


def with_tax(value: Value) -> Value:
    """A new document."""
    return {"amount": value["amount"] * 2, "id": value["id"]}


def look(key: str, value: Value) -> None:
    """What a metric would do."""


def without_id(key: str, value: Value) -> Value:
    """A smaller document."""
    return {"amount": value["amount"]}


# ---- by hand -----------------------------------------------------------------------------------------------------------


def by_hand(directory: str, batches: list[pa.RecordBatch], chained: bool) -> None:
    """The code that one would write for exactly this topology and nothing else."""
    pack, unpack = Struct(">q").pack, Struct(">q").unpack_from
    for epoch, batch in enumerate(batches):
        env = lmdb.open(directory, map_size=1 << 32, max_dbs=2, sync=False, metasync=False, readahead=False)
        totals_db, meta_db = env.open_db(b"totals"), env.open_db(b"meta")
        transaction = env.begin(write=True)
        dirty: dict[str, tuple[list[int], int]] = {}
        old: dict[bytes, bytes | None] = {}
        keys = [key.decode() for key in batch.column("key").to_pylist()]
        values = list(map(orjson.loads, batch.column("value").to_pylist()))
        for key, raw_value, timestamp in zip(keys, values, batch.column("timestamp").to_pylist(), strict=True):
            value = raw_value
            if chained:
                if not is_valid(key, value) or is_test(key, value):
                    continue
                value = with_tax(value)
                look(key, value)
                value = without_id(key, value)
            entry = dirty.get(key)
            if entry is None:
                key_bytes = key.encode()
                raw = old[key_bytes] = transaction.get(key_bytes, db=totals_db)
                entry = (orjson.loads(raw[8:]), unpack(raw)[0]) if raw is not None else (start(), timestamp)
            dirty[key] = (add(key, value, entry[0]), max(timestamp, entry[1]))
        rows, changelog = [], []
        for key in sorted(dirty):
            total, timestamp = dirty[key]
            key_bytes, data = key.encode(), orjson.dumps(total)
            kept = pack(timestamp) + data
            transaction.put(key_bytes, kept, db=totals_db)
            rows.append(("totals", key_bytes, data, timestamp, ()))
            changelog.append((key_bytes, kept))
        transaction.put(b"undo", msgspec.msgpack.encode(list(old.items())), db=meta_db)
        transaction.put(b"epoch", pack(epoch), db=meta_db)
        transaction.commit()
        env.close()


# ---- by Penstock -------------------------------------------------------------------------------------------------------


def topology(chained: bool) -> Topology:
    """The same work as a topology."""
    builder = StreamsBuilder()
    stream = builder.stream("records", name="in")
    if chained:
        stream = stream.filter(is_valid).filter_not(is_test).map_values(with_tax).peek(look).map_values(without_id, with_key=True)
    stream.group_by_key().aggregate(start, add, store="totals").to_stream().to("totals")
    return builder.build()


def expressions(chained: bool) -> Topology:
    """The same aggregates as expressions."""
    builder = StreamsBuilder()
    stream = builder.stream("records", name="in")
    if chained:
        stream = stream.filter(col("amount") >= 0).filter_not(col("id") < 0).map_values(struct(amount=col("amount") * 2))
    totals = stream.group_by_key().agg(n=agg.count(), total=agg.sum(col("amount")), store="totals")
    totals.to_stream().to("totals")
    return builder.build()


def by_penstock(directory: str, batches: list[pa.RecordBatch], chained: bool) -> None:
    """A lane, bound again for every epoch."""
    run_lane(directory, batches, _blueprint(topology(chained)))


def in_columns(directory: str, batches: list[pa.RecordBatch], chained: bool) -> None:
    """A lane that computes expressions in columns."""
    run_lane(directory, batches, _blueprint(expressions(chained)))


def _blueprint(built: Topology) -> Blueprint:
    return Blueprint(list(built.nodes.values()), built.stores, columns=True)


def run_lane(directory: str, batches: list[pa.RecordBatch], blueprint: Blueprint) -> None:
    """Walk epochs of records from a source `in`, with the lane bound and its store opened anew for each."""
    for epoch, batch in enumerate(batches):
        state = LaneState(EngineFactory(EngineKind.LMDB, directory).open())
        lane = BoundShard(blueprint, OwnShard(state), Surroundings(lambda: 0))
        walk(lane, pa.Table.from_batches([batch]), Catalogue(("in",), (("records", 0),)))
        lane.outbox.drain()
        state.commit(epoch)
        state.close()


# ---- measuring ---------------------------------------------------------------------------------------------------------


def rate(run: Callable[[str, list[pa.RecordBatch]], None], batches: list[pa.RecordBatch]) -> float:
    """Records per second of CPU time, over all epochs, in a fresh directory."""
    directory = tempfile.mkdtemp()
    began = time.process_time()
    run(directory, batches)
    took = time.process_time() - began
    shutil.rmtree(directory)
    count: int = sum(batch.num_rows for batch in batches)
    return count / took


def profile(batches: list[pa.RecordBatch], chained: bool) -> list[str]:
    """The ten functions in which a lane spends most of its time."""
    profiler = cProfile.Profile()
    directory = tempfile.mkdtemp()
    profiler.runcall(by_penstock, directory, batches, chained)
    shutil.rmtree(directory)
    entries = sorted(pstats.Stats(profiler).stats.items(), key=lambda item: -item[1][2])[:10]  # type: ignore[attr-defined]
    return [
        f"{own:6.2f} s own, {calls:>8} calls  {Path(file).name}:{line} {name}"
        for (file, line, name), (_, calls, own, *_) in entries
    ]


def main(arguments: list[str] | None = None) -> int:
    """Measure both alternately, and report the best of each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lane")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    gc.set_threshold(100_000)  # as in the workers
    batches = records(options.records, options.keys)
    report: dict[str, Any] = {"records": options.records, "keys": options.keys, "epoch": EPOCH}
    for name, chained in (("", False), ("_chain", True)):
        hand: list[float] = []
        penstock: list[float] = []
        columns: list[float] = []
        for _ in range(options.rounds):
            hand.append(rate(partial(by_hand, chained=chained), batches))
            penstock.append(rate(partial(by_penstock, chained=chained), batches))
            columns.append(rate(partial(in_columns, chained=chained), batches))
        report[f"hand_per_s{name}"] = round(max(hand))
        report[f"penstock_per_s{name}"] = round(max(penstock))
        report[f"ratio{name}"] = round(max(penstock) / max(hand), 3)
        report[f"columns_per_s{name}"] = round(max(columns))
        report[f"cpu_of_columns{name}"] = round(max(penstock) / max(columns), 3)
    report["profile_top_ten"] = profile(batches[:4], chained=False)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print("where a lane spends its time:", *report["profile_top_ten"], sep="\n  ")
    for name, goal in (("", 0.7), ("_chain", 0.5)):
        print(
            f"ratio{name}: {report['ratio' + name]} (goal {goal}); by hand {report['hand_per_s' + name]:,}/s, "
            f"lane {report['penstock_per_s' + name]:,}/s"
        )
        print(
            f"cpu_of_columns{name}: {report['cpu_of_columns' + name]} of the lane's with functions (goal 0.35); "
            f"{report['columns_per_s' + name]:,}/s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
