"""`TopologyTestDriver(topology, shards=8)` does what an application with as many shards does."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    StreamsBuilder,
    Topology,
    Windowed,
    bounded_disorder,
    key_value_store,
    log_and_continue,
    shared_store,
    tumbling,
    until_window_closes,
)
from penstock.epochs.hops import INPUT
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch
from penstock.epochs.state_directory import StateDirectory
from penstock.epochs.wire import Kind
from penstock.errors import StateError, TopologyError, UnknownStoreError
from penstock.testing import TopologyTestDriver
from tests.unit.epochs.application import program_of

MANY = 8
KEYS = ["ann", "bob", "cem", "dia", "eve"]
Piped = tuple[str | None, str, int]


def shard_of(key: str) -> int:
    return zlib.crc32(key.encode()) % MANY


class Leader(Processor[str, str, str, str]):
    """Looks at all players for each score."""

    def init(self, context: ProcessorContext[str, str]) -> None:
        super().init(context)
        self.scores = context.store("scores")

    def process(self, record: Record[str, str]) -> None:
        self.scores.put(record.key, int(record.value))
        players = list(self.scores.all())
        best, _ = max(players, key=lambda player: (player[1], player[0]))
        self.context.forward(record.with_value(f"{best} leads {len(players)}"))


def leaders() -> Topology:
    builder = StreamsBuilder(key=str, value=str)
    builder.add_state_store(key_value_store("scores", key=str, value=int))
    builder.stream("in").process(Leader, stores=["scores"], key=str, value=str).to("out", key=str, value=str)
    return builder.build()


def windows() -> Topology:
    return _windows(StreamsBuilder(key=str, value=str))


def watermarked() -> Topology:
    return _windows(StreamsBuilder(key=str, value=str), watermark=bounded_disorder("0s"))


def _windows(builder: StreamsBuilder, **source: Any) -> Topology:
    """Windows behind an exchange."""
    words = builder.stream("in", **source).select_key(lambda key, value: value)
    counts = words.group_by_key().windowed_by(tumbling("10s")).count(store="windows")
    counts.suppress(until_window_closes()).to_stream(_flat).map_values(str).to("out", key=str, value=str)
    return builder.build()


def _flat(at: Windowed[str], count: int) -> str:
    return f"{at.key}@{at.start}"


SCORES: list[Piped] = [(key, str(number * 7 % 5), number) for number, key in enumerate([*KEYS, *KEYS[:2]])]
TIMES: list[Piped] = [("x", "ann", 0), ("x", "bob", 100_000), (None, "ann", 5_000), ("y", "ann", 200_000), ("y", "bob", 300_000)]


def of_the_application(topology: Topology, records: list[Piped], shards: int, directory: Path) -> list[tuple[Any, Any, int]]:
    """What an application sends, with an epoch for each record."""
    program = program_of(topology, lanes=1, shards=shards, directory=str(directory))
    StateDirectory(str(directory), program.application_id).take_over(program.incarnation)
    found = []
    for number, (key, value, at) in enumerate(records):
        row = {"name": 0, "origin": 0, "offset": number, "timestamp": at, "value": value.encode()}
        batch = pa.RecordBatch.from_pylist([{**row, "key": None if key is None else key.encode()}], schema=INPUT)
        table = run_epoch(program, Epoch(number, number - 1, 1_000_000, (("in", 0),), (-1,)), [batch])
        sent = [row for row in table.to_pylist() if row["kind"] == Kind.SINK]
        found += [(row["key"].decode(), row["value"].decode(), row["timestamp"]) for row in sent]
    return found


def of_the_driver(topology: Topology, records: list[Piped], shards: int) -> list[tuple[Any, Any, int]]:
    with TopologyTestDriver(topology, shards=shards) as driver:
        for key, value, at in records:
            driver.input("in").pipe(value, key=key, timestamp=at)
        return [(record.key, record.value, record.timestamp) for record in driver.output("out").records()]


@pytest.mark.parametrize("shards", [1, 2, MANY])
@pytest.mark.parametrize(("make", "records"), [(leaders, SCORES), (windows, TIMES)])
def test_it_does_what_the_application_does(
    make: Callable[[], Topology], records: list[Piped], shards: int, tmp_path: Path
) -> None:
    found = of_the_driver(make(), records, shards)
    assert found == of_the_application(make(), records, shards, tmp_path)
    assert (found == of_the_driver(make(), records, 1)) == (shards == 1)


def test_each_shard_has_a_stream_time_of_its_own() -> None:
    assert shard_of("ann") != shard_of("bob")
    assert [key for key, _, _ in of_the_driver(windows(), TIMES, 1)] == ["ann@0", "bob@100000", "ann@200000"]
    assert of_the_driver(windows(), TIMES, MANY) == [("ann@0", "2", 5_000), ("bob@100000", "1", 100_000)]


def test_a_watermark_closes_windows_in_all_shards() -> None:
    expected = of_the_driver(watermarked(), TIMES, 1)
    assert [key for key, _, _ in expected] == ["ann@0", "bob@100000", "ann@200000"]
    assert of_the_driver(watermarked(), TIMES, MANY) == expected


def test_a_wall_clock_punctuator_is_called_in_each_shard() -> None:
    class Ticking(Processor[str, str, str, str]):
        def init(self, context: ProcessorContext[str, str]) -> None:
            super().init(context)
            context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, lambda at: context.forward(Record("tick", "tock", at)))

        def process(self, record: Record[str, str]) -> None:
            """Wait for the clock."""

    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").process(Ticking, key=str, value=str).to("out", key=str, value=str)
    for shards in (1, MANY):
        with TopologyTestDriver(builder.build(), shards=shards, wall_clock=0) as driver:
            driver.advance_wall_clock("1s")
            assert len(driver.output("out")) == shards


def test_stores_are_read_over_all_shards() -> None:
    with TopologyTestDriver(leaders(), shards=MANY) as driver:
        scores = driver.store("scores")
        for key, value, at in SCORES:
            driver.input("in").pipe(value, key=key, timestamp=at)
        assert sorted(scores.all()) == [("ann", 0), ("bob", 2), ("cem", 4), ("dia", 1), ("eve", 3)]
        assert (scores.get("cem"), scores.get("nobody"), list(driver.stores())) == (4, None, ["scores"])
        assert "store scores" in driver._repr_html_()
        with pytest.raises(UnknownStoreError, match="Known stores: scores"):
            driver.store("score")


def test_keys_have_the_shard_of_what_their_serde_reads() -> None:
    builder = StreamsBuilder(key=dict, value=str)
    builder.stream("in").group_by_key().count(store="counts")
    with TopologyTestDriver(builder.build(), shards=MANY) as driver:
        for key in (b'{"a":1}', b'{"a": 1}', b'{ "a":  1}'):
            driver.pipe_raw("in", key, b"x", 0, ())
        assert driver.store("counts")[{"a": 1}] == 3


def test_records_without_a_key_stay_together() -> None:
    builder = StreamsBuilder(key=str, value=str)
    builder.add_state_store(key_value_store("scores", key=str, value=int))
    named = builder.stream("in").map(lambda key, value: (key or "nobody", value), key=str, value=str)
    named.process(Leader, stores=["scores"], key=str, value=str).to("out", key=str, value=str)
    with TopologyTestDriver(builder.build(), shards=MANY) as driver:
        driver.input("in").pipe_values(["1", "2"])
        assert driver.output("out").values() == ["nobody leads 1", "nobody leads 1"]


def test_global_tables_are_the_same_for_all_shards() -> None:
    builder = StreamsBuilder(key=str, value=str)
    names = builder.global_table("names", store="names")
    builder.stream("in").join(names, lambda value, name: f"{value} {name}", on=lambda key, value: "all").to("out")
    with TopologyTestDriver(builder.build(), shards=MANY) as driver:
        driver.input("names").pipe("told", key="all")
        for key in KEYS:
            driver.input("in").pipe("is", key=key)
        assert driver.output("out").table() == dict.fromkeys(KEYS, "is told")
        driver.store("names").put("all", "filled", 0)
        driver.input("in").pipe("is", key="ann")
        assert driver.output("out").values() == ["is filled"]


def test_other_shards_of_a_shared_store_are_read_as_of_the_record_before() -> None:
    class Transfer(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            balances = self.context.store("balances")
            before = balances.get(record.value)
            balances.put(record.value, record.key)
            self.context.forward(record.with_value(f"{before} {balances.get(record.value)}"))

    builder = StreamsBuilder(key=str, value=str)
    builder.add_state_store(shared_store("balances", key=str, value=str))
    builder.stream("in").process(Transfer, stores=["balances"], key=str, value=str).to("out", key=str, value=str)
    assert shard_of("ann") != shard_of("bob")
    with TopologyTestDriver(builder.build(), shards=MANY) as driver:
        for _ in range(2):
            driver.input("in").pipe("bob", key="ann")
        assert driver.output("out").values() == ["None None", "ann ann"]
        assert driver.store("balances").get("bob") == "ann"


def test_processors_of_every_shard_are_watched() -> None:
    class Counting(Processor[str, str, str, str]):
        def init(self, context: ProcessorContext[str, str]) -> None:
            super().init(context)
            self.count = 0

        def process(self, record: Record[str, str]) -> None:
            self.count += 1

    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").process(Counting, key=str, value=str).to("out", key=str, value=str)
    for key in ("ann", "bob"):
        with (
            TopologyTestDriver(builder.build(), shards=MANY) as driver,
            pytest.raises(StateError, match="attribute 'count' is 1 now"),
        ):
            driver.input("in").pipe("x", key=key)


def test_drops_of_all_shards_are_counted_and_survive_a_restart() -> None:
    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").map_values(int, value=int).to("out")
    with TopologyTestDriver(builder.build(), shards=MANY, processing_errors=log_and_continue()) as driver:
        driver.input("in").pipe_pairs([(key, "none") for key in KEYS])
        driver.rebind()
        assert list(driver.dropped().values()) == [len(KEYS)]


def test_what_it_cannot_show_is_refused() -> None:
    class Atomic(Processor[str, str, str, str]):
        def process(self, record: Record[str, str]) -> None:
            """Do nothing."""

    builder = StreamsBuilder(key=str, value=str)
    builder.add_state_store(shared_store("balances", key=str, value=str))
    builder.stream("in").process_atomically(Atomic, stores=["balances"])
    with pytest.raises(TopologyError, match=r"shards=8: .* atomic section, which holds all shards\. Test it with one shard"):
        TopologyTestDriver(builder.build(), shards=MANY)
    with pytest.raises(TopologyError, match="shards=0: a driver has at least one"):
        TopologyTestDriver(leaders(), shards=0)
    misspelt: dict[str, Any] = {"procesing_errors": log_and_continue()}
    with pytest.raises(TypeError, match=r"TopologyTestDriver\(\) got an unexpected keyword argument 'procesing_errors'"):
        TopologyTestDriver(leaders(), **misspelt)
