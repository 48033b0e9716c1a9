"""What the tests of engines run: topologies, topics that are lists, and programs that own their directory.

Slots do not import this module, because that would take longer than most tests: its functions travel to them as a user's do.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from operator import add
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa

from penstock import (
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    Topology,
    bounded_disorder,
    key_value_store,
    shared_store,
    tumbling,
    until_window_closes,
)
from penstock.engines.reading import coded
from penstock.epochs.program import Epoch, Program
from penstock.epochs.shards import shards_of
from penstock.epochs.state_directory import StateDirectory, open_lane
from penstock.lanes.epoch import headers_array
from penstock.records import Partition, Ranges
from penstock.state import LaneState
from tests.unit.epochs import application
from tests.unit.epochs.application import Raw, changelog_rows, every_kind_of_store, program_of

for _module in (application, sys.modules[__name__]):
    cloudpickle.register_pickle_by_value(_module)

LOG = logging.getLogger("tests.engines")
CHUNK = 7
"""How many records are in a batch of the input."""


def nothing() -> None:
    """Prepare a slot that needs no preparation."""


# ---- topologies -----------------------------------------------------------------------------------------------------------


def stateless() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in", value=str)
    words.filter(lambda _, value: "1" in value).map_values(str.upper).to("out", value=str)
    words.map_values(len).to("lengths", value=int)
    return builder.build()


def re_keyed() -> Topology:
    """A first stage without state, then two with state."""
    builder = StreamsBuilder()
    words = builder.stream("in", value=str).flat_map_values(str.split)
    counts = words.group_by(lambda _, word: word).count(store="words").to_stream()
    counts.group_by(lambda word, _: word[-1]).count(store="ends").to_stream().to("out", value=int)
    return builder.build()


def by_watermark() -> Topology:
    """Records need their entry: an extractor, and windows that close with the watermark."""
    builder = StreamsBuilder()
    words = builder.stream("in", value=str, timestamp=_time_of, watermark=bounded_disorder("1s"))
    windows = words.group_by(lambda _, value: value[-1]).windowed_by(tumbling("1s")).count(store="windows")
    closed = windows.suppress(until_window_closes(name="held")).to_stream(_flat, key=str)
    closed.to("out", value=int)
    return builder.build()


def _time_of(record: Record[str, str]) -> int:
    return record.timestamp + len(record.value)


def _flat(key: Any, value: Any) -> str:
    return f"{key.key}@{key.start}"


class Move(Processor[str, str, str, Any]):
    """Moves one from the key to each word of the value."""

    def process(self, record: Record[str, str]) -> None:
        held = self.context.store("held")
        for word in record.value.split():
            held.merge(word, 1)
            held.merge(record.key, -1)
            self.context.forward(record.with_value(held.get(word)))


def atomic() -> Topology:
    """An atomic section with state before and after it."""
    builder = StreamsBuilder()
    builder.add_state_store(shared_store("held", value=int, merge=add))
    words = builder.stream("in", value=str)
    words.group_by(lambda _, value: value).count(store="before").to_stream().to("before", value=int)
    moved = words.process_atomically(Move, stores=["held"], value=int, name="move")
    moved.group_by_key().count(store="behind").to_stream().to("behind", value=int)
    return builder.build()


class Clocked(Processor[str, str, str, str]):
    """Sends a record for each shard whenever a second has passed."""

    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, self._ring)

    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)

    def _ring(self, now: int) -> None:
        self.context.forward(Record("ring", str(now), now))


def clocked() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str).process(Clocked, key=str, value=str).to("out")
    return builder.build()


TOPOLOGIES = {
    "stateless": stateless,
    "every kind of store": every_kind_of_store,
    "re-keyed": re_keyed,
    "by watermark": by_watermark,
    "atomic": atomic,
    "clocked": clocked,
}


def obedient() -> Topology:
    """Does what values say, then counts by key."""
    builder = StreamsBuilder()
    builder.stream("in", value=str).group_by_key().aggregate(int, _obeyed, store="counts", value=int).to_stream().to("out")
    return builder.build()


class Counted(Processor[str, str, str, int]):
    """Counts a record, and then does what its value says."""

    def process(self, record: Record[str, str]) -> None:
        self.context.metrics.counter("orders", "Orders.").inc()
        self.context.store("counts")[record.key] = _obeyed(record.key, record.value, 0)


def counted() -> Topology:
    """The same with a processor, which has a metric."""
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("counts", value=int))
    builder.stream("in", value=str).process(Counted, stores=["counts"])
    return builder.build()


def _obeyed(_: str, value: str, count: int) -> int:
    order, _, about = value.partition(" ")
    if order == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    elif order == "die-once" and not Path(about).exists():
        Path(about).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    elif order == "sleep":
        Path(about).write_text(str(os.getpid()), encoding="ascii")
        time.sleep(60)
    elif order == "exit":
        sys.exit(about)
    elif order == "fail":
        raise ValueError(about)
    elif order == "say":
        sys.stdout.write(f"{about}\n")
        LOG.warning("logged %s", about)
    elif order == "run":
        Path(about).write_text(str(os.waitstatus_to_exitcode(os.system("exit 3"))), encoding="ascii")
    return count + 1


# ---- input ------------------------------------------------------------------------------------------------------------------


class Lists:
    """Topics that are lists in memory, of which a feed has read what is asked for. All are read by the first source."""

    def __init__(self, records: Mapping[Partition, Sequence[Raw]]) -> None:
        self.topics = records
        self._batches: dict[tuple[Partition, int, int], pa.RecordBatch] = {}

    @classmethod
    def of(cls, records: Sequence[Raw], partitions: int = 1) -> Lists:
        """Deal records to the partitions of the topic `in`."""
        return cls({("in", number): records[number::partitions] for number in range(partitions)})

    def records(self, epoch: Epoch, ranges: Ranges) -> list[pa.RecordBatch]:
        """Return the records in these ranges, a few at a time, as `Feed.records` does."""
        return [
            coded(self._batch(place, first, min(first + CHUNK, end)), 0, epoch.origins.index(place))
            for place, (begin, end) in ranges.items()
            for first in range(begin, end, CHUNK)
        ]

    def has(self, ranges: Ranges) -> bool:
        """The driver has read everything."""
        return True

    def read(self, ranges: Ranges) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """Return the records in these ranges, as a slot's reader does."""
        for place, (begin, end) in ranges.items():
            yield place, _batch(begin, self.topics[place][begin:end])

    def close(self) -> None:
        """Nothing is open."""

    def _batch(self, place: Partition, begin: int, end: int) -> pa.RecordBatch:
        if (place, begin, end) not in self._batches:
            self._batches[place, begin, end] = _batch(begin, self.topics[place][begin:end])
        return self._batches[place, begin, end]


def _batch(first: int, records: Sequence[Raw]) -> pa.RecordBatch:
    columns = [
        pa.array(range(first, first + len(records)), pa.int64()),
        pa.array([record.timestamp for record in records], pa.int64()),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        headers_array([()] * len(records)),
    ]
    return pa.RecordBatch.from_arrays(columns, ["offset", "timestamp", "key", "value", "headers"])


# ---- programs ---------------------------------------------------------------------------------------------------------------


def installed(topology: Topology, directory: Path, lanes: int) -> Program:
    """The program of a topology that owns its directory, with empty lanes."""
    program = program_of(topology, lanes, directory=str(directory))
    StateDirectory(program.directory, program.application_id).take_over(program.incarnation)
    return program


def contents(program: Program, attempt: int = 0) -> dict[tuple[str, int], dict[bytes, bytes]]:
    """What each shard has of each store, for an attempt that may open them."""
    found = {}
    for lane in range(program.lanes):
        with open_lane(program, lane, attempt) as state:
            found.update(shards_in(state, program, lane))
    return found


def shards_in(state: LaneState, program: Program, lane: int) -> dict[tuple[str, int], dict[bytes, bytes]]:
    """What each shard of a lane has of each store."""
    shards = shards_of(lane, program.shards, program.lanes)
    return {(store, at): changelog_rows(state.shard(at), program, store) for store in program.logged_stores for at in shards}
