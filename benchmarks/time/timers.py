"""The cost of a timer: one lane registers and fires a million, in epochs, with changelog rows and stores on disk.

`python -m benchmarks.time.timers`: no Spark, no Kafka, one core. Seconds are CPU time, so that other work does not count.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import pyarrow as pa

from benchmarks.in_process import program_of
from penstock import Processor, ProcessorContext, Record, StreamsBuilder, Timer, Topology, key_value_store
from penstock.epochs.hops import INPUT
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch, Program
from penstock.epochs.wire import Kind
from verification.harness.processes import HarnessError

EPOCH_RECORDS = 50_000
START_MS = 1_000_000


class Alarm(Processor[str, str, str, str]):
    """One timer per key; firing it forwards a record."""

    def process(self, record: Record[str, str]) -> None:
        """Register a timer."""
        self.context.timers.processing_time(after="10s")

    def on_timer(self, timer: Timer) -> None:
        """Forward a record."""
        self.context.forward(timer.record("late"))


class Keeping(Processor[str, str, str, str]):
    """For comparison: one entry per key in a store, and no timer."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        """Find the store."""
        self.store = context.store("kept")

    def process(self, record: Record[str, str]) -> None:
        """Put an entry."""
        self.store[record.key] = "late"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timers:
    """One run. `timers_per_s` counts timers registered and fired; `put_into_a_store` is for comparison."""

    timers: int
    timers_per_s: float
    registered_per_s: float
    fired_per_s: float
    put_off_per_s: float
    put_into_a_store_per_s: float
    none_due_s: float
    epoch_p50_s: float
    epoch_records: int = EPOCH_RECORDS


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--timers", type=int, default=1_000_000)
    for name, figure in asdict(measure(arguments.parse_args().timers)).items():
        print(f"{name:>22}: {figure:,.3f}")


def measure(count: int) -> Timers:
    """Register all and fire all; then register all, postpone all, and fire all."""
    gc.set_threshold(100_000)  # as in the workers
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("kept", value=str))
    builder.stream("in", value=str).process(Keeping, stores=["kept"]).to("out", value=str)
    with _running(builder.build()) as kept:
        kept_s = kept.take_in(count)
    builder = StreamsBuilder()
    builder.stream("in", value=str).process(Alarm, name="alarm").to("out", value=str)
    with _running(builder.build()) as alarms:
        registered_s = alarms.take_in(count)
        none_due_s = alarms.look_for_none()
        fired_s = alarms.fire(count)
        alarms.take_in(count)
        put_off_s = alarms.take_in(count)
        alarms.fire(count)
    return Timers(
        timers=count,
        timers_per_s=count / (registered_s + fired_s),
        registered_per_s=count / registered_s,
        fired_per_s=count / fired_s,
        put_off_per_s=count / put_off_s,
        put_into_a_store_per_s=count / kept_s,
        none_due_s=none_due_s,
        epoch_p50_s=statistics.median(alarms.seconds),
    )


class Running:
    """A running lane; its clock advances by 100 ms per epoch."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._epoch = -1
        self._now = START_MS
        self.seconds: list[float] = []
        """The time of each epoch."""

    def take_in(self, count: int) -> float:
        """Process a record for each key; return the seconds that took."""
        epochs = [_records(first, min(count, first + EPOCH_RECORDS)) for first in range(0, count, EPOCH_RECORDS)]
        before = len(self.seconds)
        for records in epochs:
            self._run(records)
        return sum(self.seconds[before:])

    def look_for_none(self) -> float:
        """Run an epoch in which nothing is due; return the seconds that took."""
        self._run([])
        return self.seconds.pop()

    def fire(self, count: int) -> float:
        """Fire all timers, epoch by epoch; return the seconds that took."""
        self._now += 10_000 - 100 * -(-count // EPOCH_RECORDS)
        fired, before = 0, len(self.seconds)
        while fired < count:
            fired += self._run([]).column("kind").to_pylist().count(Kind.SINK)
        if fired != count:
            raise HarnessError(f"{fired} timers have fired, but {count} were registered")
        return sum(self.seconds[before:])

    def _run(self, batches: list[pa.RecordBatch]) -> pa.Table:
        self._epoch += 1
        self._now += 100
        start = time.process_time()
        table = run_epoch(self._program, Epoch(self._epoch, self._epoch - 1, self._now, (("in", 0),), (0,)), batches)
        self.seconds.append(time.process_time() - start)
        return table


def _records(first: int, end: int) -> list[pa.RecordBatch]:
    count = end - first
    columns = {
        "name": [0] * count,
        "origin": [0] * count,
        "offset": list(range(first, end)),
        "timestamp": [0] * count,
        "key": [b"order-%d" % (number * 7_919 % 1_000_003) for number in range(first, end)],
        "value": [b"v"] * count,
        "headers": [None] * count,
    }
    return [pa.RecordBatch.from_pydict(columns, schema=INPUT)]


@contextmanager
def _running(topology: Topology) -> Iterator[Running]:
    with program_of(topology, lanes=1) as program:
        yield Running(program)


if __name__ == "__main__":
    main()
