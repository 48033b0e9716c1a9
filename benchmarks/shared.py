"""The cost of shared stores: merges into keys of other lanes, and atomic sections over two keys, in epochs, with stores on disk.

`python -m benchmarks.shared`: no Spark, no Kafka, one core; the lanes run one after the other.
"""

from __future__ import annotations

import argparse
import gc
import time
from operator import add

import pyarrow as pa

from benchmarks.in_process import program_of
from penstock import Processor, Record, StreamsBuilder, Topology, key_value_store, shared_store
from penstock.epochs.hops import INPUT
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch

KEYS = 10_000


class Own(Processor[str, int, str, int]):
    """For comparison: the record's own key, in an ordinary store."""

    def process(self, record: Record[str, int]) -> None:
        """Add."""
        store = self.context.store("own")
        store[record.key] = (store.get(record.key) or 0) + record.value


class Merge(Processor[str, int, str, int]):
    """Adds to a key of another shard."""

    def process(self, record: Record[str, int]) -> None:
        """Merge."""
        self.context.store("balances").merge(f"other {record.key}", record.value)


class Read(Processor[str, int, str, int]):
    """Reads a key of another shard."""

    def process(self, record: Record[str, int]) -> None:
        """Read."""
        self.context.store("balances").get(f"other {record.key}")


class Transfer(Processor[str, int, str, int]):
    """Moves an amount from one key to another."""

    def process(self, record: Record[str, int]) -> None:
        """Transfer."""
        balances = self.context.store("balances")
        balances.merge(record.key, -record.value)
        balances.merge(f"other {record.key}", record.value)


def main() -> None:
    """Measure each kind of use, with the same number of records in epochs of the same size."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--records", type=int, default=40_000)
    arguments.add_argument("--epoch", type=int, default=10_000)
    arguments.add_argument("--lanes", type=int, default=4)
    given = arguments.parse_args()
    gc.set_threshold(100_000)  # as in the workers
    print(f"{given.records:,} records of {KEYS:,} keys, epochs of {given.epoch:,}, {given.lanes} lanes")
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("own", value=int))
    builder.stream("in", value=int).process(Own, stores=["own"])
    _measure("own keys, own store", builder.build(), given.records, given.epoch, given.lanes)
    for what, processor in (("remote merges", Merge), ("remote reads", Read)):
        builder = StreamsBuilder()
        builder.add_state_store(shared_store("balances", value=int, merge=add))
        builder.stream("in", value=int).process(processor, stores=["balances"])
        _measure(what, builder.build(), given.records, given.epoch, given.lanes)
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("balances", value=int, merge=add))
    builder.stream("in", value=int).process_atomically(Transfer, stores=["balances"])
    _measure("atomic sections", builder.build(), given.records, given.epoch, given.lanes)


def _measure(what: str, topology: Topology, records: int, size: int, lanes: int) -> None:
    with program_of(topology, lanes) as program:
        epochs = [_records(first, min(records, first + size)) for first in range(0, records, size)]
        begun = time.process_time()
        for number, batch in enumerate(epochs):
            run_epoch(program, Epoch(number, number - 1, 1_000_000, (("in", 0),), (0,)), [batch])
        seconds = time.process_time() - begun
        print(f"{what:>20}: {records / seconds:>9,.0f} /s ({seconds:.3f} s of CPU)")


def _records(first: int, end: int) -> pa.RecordBatch:
    count = end - first
    columns = {
        "name": [0] * count,
        "origin": [0] * count,
        "offset": list(range(first, end)),
        "timestamp": [0] * count,
        "key": [b"account %d" % (number * 7_919 % KEYS) for number in range(first, end)],
        "value": [(5).to_bytes(8, "big")] * count,
        "headers": [None] * count,
    }
    return pa.RecordBatch.from_pydict(columns, schema=INPUT)


if __name__ == "__main__":
    main()
