"""The records of epochs: read ahead by the driver's consumer, and handed to an engine; without brokers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamsBuilder, tumbling
from penstock.config import Config
from penstock.engines.reading import Reading, coded
from penstock.epochs.hops import INPUT
from penstock.epochs.program import Epoch
from penstock.records import Partition, Ranges
from penstock.runtime.input import feed as module
from penstock.runtime.input.feed import FedJobs, Feed
from penstock.runtime.input.time_order import OrderedInput
from tests.unit.epochs.application import program_of
from tests.unit.runtime.noting import counting

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
EPOCH = Epoch(1, 0, 0, (A0, A1, B0), (-1, -1, -1))


class Reader:
    """The consumer, with records that are named after their places."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.read_to = dict.fromkeys((A0, A1, B0), 8)

    def between(self, ranges: Ranges) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        for place, (begin, end) in ranges.items():
            for offset in range(begin, min(end, 5)):  # no more than these are read
                yield place, batch(place, offset)


def batch(place: Partition, offset: int) -> pa.RecordBatch:
    """A record, in the order in which a reader has its columns."""
    key = f"{place[0]}{place[1]}@{offset}".encode()
    row = {"offset": offset, "timestamp": 7 * offset, "key": key, "value": b"v", "headers": None, "more": 1}
    fields = [INPUT.field(name) for name in ("offset", "timestamp", "key", "value", "headers")]
    return pa.RecordBatch.from_pylist([row], schema=pa.schema([*fields, ("more", pa.int8())]))


@pytest.fixture(autouse=True)
def _no_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "InputReader", Reader)


def feed_of(topology: Any = None, **settings: Any) -> Feed:
    config = Config.load(environment={}, bootstrap_servers="localhost:9092", lanes=2, **settings)
    feed = Feed(config, program_of(topology or counting()), lambda: {A0: 900, A1: 900}, print)
    feed.read_too({"a": 0})
    return feed


def reader_of(source: Any) -> Any:
    """What reads for the driver, as long as it keeps up."""
    return source._reader


def windows() -> Any:
    builder = StreamsBuilder()
    builder.stream("a", value=str).group_by_key().windowed_by(tumbling("1s")).count(store="windows")
    return builder.build()


class TestInput:
    @pytest.mark.parametrize("engine", ["spark", "local"])
    def test_it_keeps_the_records_of_two_epochs(self, engine: str) -> None:
        source = reader_of(feed_of(engine=engine, max_epoch_records=77).open({A0: 1, A1: 1}, 1_000))
        settings, offsets, most_records, most_bytes, on_statistics = source.arguments
        assert settings["group.id"] == "app"
        assert (offsets, most_records, most_bytes, on_statistics) == ({A0: 1, A1: 1}, 2 * 77, 2 * 1_000, print)

    def test_it_also_reads_for_a_cluster(self) -> None:
        spark = {"master": "spark://host:7077", "spark.authenticate": "false"}
        assert isinstance(reader_of(feed_of(spark=spark).open({A0: 1}, 1_000)), Reader)

    @pytest.mark.parametrize(
        ("topology", "offsets", "is_ordered"),
        [(counting, {A0: 1, A1: 1}, False), (counting, {A0: 1, B0: 1}, True), (windows, {A0: 1, A1: 1}, True)],
    )
    def test_several_inputs_are_read_in_the_order_of_time(
        self, topology: Any, offsets: Mapping[Partition, int], is_ordered: bool
    ) -> None:
        assert isinstance(reader_of(feed_of(topology()).open(offsets, 1_000)), OrderedInput) == is_ordered


class TestRecords:
    @pytest.fixture
    def feed(self) -> Feed:
        made = feed_of()
        made.open({A0: 0, A1: 0}, 1_000)
        return made

    def test_they_have_the_codes_of_their_source_and_partition(self, feed: Feed) -> None:
        feed.read_too({"b": 3})
        table = pa.Table.from_batches(feed.records(EPOCH, {A1: (2, 4), B0: (0, 1)}))
        assert table.schema == INPUT
        found = [(row["name"], row["origin"], row["offset"], row["key"], row["timestamp"]) for row in table.to_pylist()]
        assert found == [(0, 1, 2, b"a1@2", 14), (0, 1, 3, b"a1@3", 21), (3, 2, 0, b"b0@0", 0)]

    def test_a_topic_that_nobody_reads_is_a_bug(self, feed: Feed) -> None:
        with pytest.raises(KeyError):
            feed.records(EPOCH, {B0: (0, 1)})

    def test_a_record_is_read_by_its_offset(self, feed: Feed) -> None:
        assert feed.record(A1, 1).to_pylist() == [{"key": b"a1@1", "value": b"v", "timestamp": 7, "headers": None}]
        nothing = feed.record(B0, 7)
        assert nothing.num_rows == 0
        assert nothing.column_names == ["key", "value", "timestamp", "headers"]

    def test_a_record_that_only_slots_have_read_is_read_again(self, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
        opened: list[Slots] = []

        class Slots:
            def __init__(self, *arguments: Any) -> None:
                self.arguments, self.is_closed = arguments, False
                opened.append(self)

            def read(self, ranges: Ranges) -> Iterator[tuple[Partition, pa.RecordBatch]]:
                for place, (begin, _) in ranges.items():
                    yield place, batch(place, begin)

            def close(self) -> None:
                self.is_closed = True

        monkeypatch.setattr(module, "RangeReader", Slots)
        feed.open({A1: 0}, 1_000)
        assert feed.record(A1, 9).column("key").to_pylist() == [b"a1@9"]
        assert [reader.is_closed for reader in opened] == [True]
        assert opened[0].arguments[0]["group.id"] == "app"
        assert opened[0].arguments[2] == 500  # one of two slots: together they read an epoch ahead

    def test_an_empty_batch_stays_empty(self) -> None:
        assert coded(batch(A0, 0).slice(0, 0), 0, 0).num_rows == 0


class Engine:
    """Notes its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int, bool]] = []

    def read(self, epoch: Epoch, reading: Reading) -> str:
        self.calls.append(("read", epoch.number, sum(end - begin for begin, end in reading.ranges.values()), False))
        assert reading.source_of == {"a": 0}
        return "rows"

    def run(self, epoch: Epoch, records: list[pa.RecordBatch], *, is_small: bool) -> str:
        self.calls.append(("run", epoch.number, sum(each.num_rows for each in records), is_small))
        return "rows"

    def roll_back(self, epoch: Epoch) -> None:
        self.calls.append(("roll back", epoch.number, 0, False))


LAST = [("run", 1, 0, True), ("roll back", 1, 0, False)]


def test_jobs_give_an_engine_its_records() -> None:
    feed, engine = feed_of(), Engine()
    feed.open({A0: 0}, 1_000)
    fed: Any = engine
    jobs = FedJobs(fed, feed)
    for is_small in (True, False):
        assert jobs.run(EPOCH, is_small, {A0: (0, 3)}) == "rows"
    assert jobs.run(EPOCH, is_small=False, ranges={A0: (0, 3), A1: (2, 9)}) == "rows"  # the driver has only a part of it
    assert jobs.tick(EPOCH) == "rows"
    jobs.roll_back(EPOCH)
    assert jobs.read(A0, 2).column("key").to_pylist() == [b"a0@2"]
    assert engine.calls == [("run", 1, 3, True), ("run", 1, 3, False), ("read", 1, 10, False), *LAST]
