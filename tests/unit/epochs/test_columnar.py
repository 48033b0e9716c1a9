"""Epochs in columns: byte for byte the same rows, changelogs and drops as record by record, on real lanes."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import StreamsBuilder, TimeWindowed, Topology, agg, col, hopping, struct, tumbling
from penstock.epochs.hops import INPUT
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch
from penstock.epochs.state_directory import StateDirectory
from penstock.epochs.wire import Kind, decode_control
from penstock.handlers import ErrorHandlers, LogAndContinue
from penstock.lanes import gathering
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.bound_shard import BoundShard, Surroundings
from penstock.lanes.epoch import RECORDS, Catalogue, walk
from penstock.lanes.samples import Samples
from penstock.lanes.stores import OwnShard
from penstock.letters import REPLAY_NODE
from penstock.records import Headers
from penstock.serdes import Json
from penstock.state import LaneState, memory_engine
from tests.unit.epochs.application import ID, program_of
from verification.harness.rows import without_reports

Record = tuple[bytes | None, bytes | None, int, Headers]
Epochs = list[list[Record]]


@dataclass
class Totals:
    n: int
    total: float
    largest: float | None
    latest: str | None


def plain() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("in").group_by_key()
    orders.agg(n=agg.count(), total=agg.sum(col("a")), store="totals").to_stream().to("out")
    return builder.build()


def filtered() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("in").filter(col("a") > 3, col("c") != "x").filter_not(col("a") % 5 == 0).group_by_key()
    low, high, first, last = (each(col("a")) for each in (agg.min, agg.max, agg.first, agg.last))
    orders.agg(low=low, high=high, first=first, last=last, names=agg.count(col("c")), store="totals").to_stream().to("out")
    return builder.build()


def mapped() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("in").map_values(struct(double=col("a") * 2, name=col("c"))).filter(col("double") != 8)
    orders.group_by_key().agg(total=agg.sum(col("double")), first=agg.min(col("name")), store="totals").to_stream().to("out")
    return builder.build()


def of_scalars() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("in").map_values(col("a")).group_by_key()
    orders.agg(total=agg.sum(col()), n=agg.count(), store="totals").to_stream().to("out")
    return builder.build()


def into_a_class() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("in", key=int).group_by_key()
    total, largest, latest = agg.sum(col("b")), agg.max(col("a")), agg.last(col("c"))
    table = orders.agg(n=agg.count(), total=total, largest=largest, latest=latest, into=Totals, store="totals")
    table.filter(lambda key, totals: totals.n % 2 == 1).to_stream().to("out")
    return builder.build()


def of_text() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in", value=str).filter(col() != "{}").group_by_key()
    words.agg(n=agg.count(), first=agg.first(col()), last=agg.last(col()), high=agg.max(col()), store="totals").to_stream().to(
        "out"
    )
    return builder.build()


def behind_an_exchange() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("in").filter(col("a") > 1).group_by(col("c"))
    orders.agg(n=agg.count(), total=agg.sum(col("a")), store="totals").to_stream().to("out")
    return builder.build()


def in_tumbling_windows() -> Topology:
    builder = StreamsBuilder()
    windows = builder.stream("in").filter(col("a") > 0).group_by_key().windowed_by(tumbling("100ms", grace="50ms"))
    windows.agg(n=agg.count(), first=agg.first(col("a")), last=agg.last(col("c")), store="windows").to_stream().to("out")
    return builder.build()


def in_hopping_windows() -> Topology:
    builder = StreamsBuilder()
    windows = builder.stream("in", key=int).group_by_key().windowed_by(hopping("250ms", "90ms", grace="120ms"))
    total, largest, latest = agg.sum(col("b")), agg.max(col("a")), agg.last(col("c"))
    table = windows.agg(n=agg.count(), total=total, largest=largest, latest=latest, into=Totals, store="windows")
    table.to_stream(lambda windowed, _: windowed.key + windowed.start, key=int).to("out")
    return builder.build()


def counted() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").filter(col("a") > 2).group_by_key().count(store="counts").to_stream().to("out")
    return builder.build()


def counted_behind_an_exchange() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in", value=str).flat_map_values(str.split)
    words.group_by(col(), key=str).count(store="counts").to_stream().to("out", value=Json())
    return builder.build()


def counted_in_windows() -> Topology:
    builder = StreamsBuilder()
    windows = builder.stream("in").group_by_key().windowed_by(tumbling("100ms", grace="200ms"))
    windows.count(store="counts").to_stream(lambda windowed, _: windowed.key, key=str).to("out")
    return builder.build()


def counted_by_windowed_keys() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", key=TimeWindowed(str, 100)).group_by_key().count(store="counts").to_stream().to("out")
    return builder.build()


SHAPES = [
    *(plain, filtered, mapped, of_scalars, into_a_class, of_text, behind_an_exchange),
    *(in_tumbling_windows, in_hopping_windows, counted, counted_behind_an_exchange, counted_in_windows),
    counted_by_windowed_keys,
]
NUMBERS = st.integers(0, 12)
VALUES = st.fixed_dictionaries(
    {"a": NUMBERS, "b": st.sampled_from((0.1, 0.25, 1e9, 7.5)), "c": st.sampled_from(("x", "y", "zö"))}
)
ODD = st.sampled_from(
    [
        b"null",
        b"[]",
        b'{"a":"text"}',
        b'{"a":null}',
        b"{}",
        b'{"a":1.5}',
        b'{"a":9223372036854775807}',
        b'{"a":1,"x":"\xff"}',
        b'{"a":',
    ]
)
KEYS = st.sampled_from([(number).to_bytes(8, "big") for number in range(5)])
HEADERS: st.SearchStrategy[Headers] = st.sampled_from([(), (("h", b"1"),), (("h", b"2"), ("i", None))])


@st.composite
def epochs(draw: st.DrawFn) -> Epochs:
    """Several epochs, most of them of plain records, some with odd ones among them."""
    time = draw(st.sampled_from([st.integers(0, 1000), st.integers(0, 1000) | st.sampled_from((70_000, 200_000, 200_090))]))
    value = VALUES.map(lambda value: json.dumps(value).encode())
    headers = draw(st.sampled_from([st.just(()), HEADERS]))
    key = draw(st.sampled_from([KEYS, KEYS, KEYS | st.none()]))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        own = value if draw(st.integers(0, 3)) else value | ODD | st.none()
        found.append(draw(st.lists(st.tuples(key, own, time, headers), max_size=30)))
    return found


@contextmanager
def columns_used(least: int = 1) -> Iterator[list[bool]]:
    """Whether columns were used, for each epoch of a shard that may be computed in columns."""
    used: list[bool] = []
    attempt = gathering._gathered

    def noted(*arguments: Any) -> Any:
        used.append(False)
        found = attempt(*arguments)
        used[-1] = True
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering, "_gathered", noted)
        patch.setattr(gathering, "COLUMNS_FROM", least)
        yield used


def outcome(make: Callable[[], Topology], given: Epochs, columns: bool, **options: Any) -> list[Any]:
    """All rows of some epochs, and the drops; the error of the first that fails."""
    with tempfile.TemporaryDirectory() as directory:
        handlers = ErrorHandlers(deserialization=LogAndContinue(), processing=LogAndContinue())
        program = program_of(make(), directory=directory, handlers=handlers, columns=columns, **options)
        StateDirectory(directory, ID).take_over(program.incarnation)
        found: list[Any] = []
        offset = 0
        for number, records in enumerate(given):
            rows = [
                {
                    "name": 0,
                    "origin": 0,
                    "offset": offset + place,
                    "timestamp": timestamp,
                    "key": key,
                    "value": value,
                    "headers": [{"name": name, "value": data} for name, data in headers] or None,
                }
                for place, (key, value, timestamp, headers) in enumerate(records)
            ]
            offset += len(rows)
            epoch = Epoch(number, number - 1, 5, (("in", 0),), (-1,))
            table = without_reports(run_epoch(program, epoch, [pa.RecordBatch.from_pylist(rows, schema=INPUT)]))
            found += map(_readable, table.to_pylist())
        return found


def _readable(row: dict[str, Any]) -> Any:
    if row["kind"] != Kind.CONTROL:
        return row
    control = decode_control(row["value"])
    return msgspec.structs.replace(control, dropped=sorted(control.dropped))


@pytest.fixture(autouse=True)
def _no_log_of_dropped_records(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "penstock")


@pytest.mark.parametrize("make", SHAPES)
@given(given_epochs=epochs())
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None)
def test_columns_give_the_same_rows(make: Callable[[], Topology], given_epochs: Epochs) -> None:
    with columns_used():
        found = outcome(make, given_epochs, columns=True)
    assert found == outcome(make, given_epochs, columns=False)


def orders(count: int, headers: Headers = ()) -> list[Record]:
    values = [{"a": number % 13, "b": number / 7, "c": "xyz"[number % 3]} for number in range(count)]
    return [
        ((number * 7 % 11).to_bytes(8, "big"), json.dumps(value).encode(), 1_000 + number * 37 % 500, headers)
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize("make", SHAPES)
def test_plain_records_are_computed_in_columns_in_every_shape(make: Callable[[], Topology]) -> None:
    given_epochs = [orders(60), orders(80, (("h", b"1"),)), orders(50)]
    with columns_used() as used:
        found = outcome(make, given_epochs, columns=True)
    assert used
    assert all(used)
    assert found == outcome(make, given_epochs, columns=False)


def test_a_shard_with_few_records_is_walked() -> None:
    with columns_used(least=1_000) as used:
        outcome(plain, [orders(100)], columns=True)
    assert not used


def test_records_that_are_replayed_into_one_node_are_walked() -> None:
    replayed = orders(10, ((REPLAY_NODE, b"KSTREAM-AGGREGATE-0000000001"),))
    with columns_used() as used:
        found = outcome(plain, [replayed, orders(10)], columns=True)
    assert 0 < len(used) == sum(used)
    assert found == outcome(plain, [replayed, orders(10)], columns=False)


def test_traced_records_are_walked() -> None:
    traced = orders(10, (("traceparent", b"00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"),))
    with columns_used() as used:
        found = outcome(plain, [traced], columns=True, is_traced=True)
    assert not used
    assert found == outcome(plain, [traced], columns=False, is_traced=True)


@pytest.mark.parametrize("make", [plain, filtered, into_a_class])
def test_a_sampled_epoch_counts_the_same_records_at_each_node(make: Callable[[], Topology]) -> None:
    def counted(columns: bool) -> dict[str, int]:
        topology, samples = make(), Samples()
        nodes, source = list(topology.nodes.values()), next(iter(topology.nodes))
        lane = BoundShard(
            Blueprint(nodes, topology.stores, columns=columns),
            OwnShard(LaneState(memory_engine())),
            Surroundings(lambda: 0),
            samples=samples,
        )
        columns_of = zip(*[(0, 0, number, *record) for number, record in enumerate(orders(70))], strict=True)
        names = ("source", "origin", "offset", "key", "value", "timestamp")
        given_columns = dict(zip(names, columns_of, strict=False))
        rows = [{name: values[row] for name, values in given_columns.items()} for row in range(70)]
        walk(lane, pa.Table.from_pylist(rows, schema=RECORDS), Catalogue((source,), (("in", 0),)))
        assert lane.clocks.latest == max(given_columns["timestamp"])
        return {name: records for name, (records, _) in samples.by_node().items()}

    with columns_used() as used:
        found = counted(columns=True)
    assert used == [True]
    assert found == counted(columns=False)


def test_nothing_is_computed_in_columns_unless_it_is_said() -> None:
    with columns_used() as used:
        outcome(plain, [orders(60)], columns=False)
    assert not used


def lambdas() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in").filter(lambda key, value: True).group_by_key()
    stream.agg(n=agg.count(), store="totals").to_stream().to("out")
    return builder.build()


def two_readers() -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.group_by_key().agg(n=agg.count(), store="totals").to_stream().to("out")
    stream.to("copy")
    return builder.build()


def typed() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=dict[str, int | float | str]).group_by_key().agg(n=agg.count(), store="totals").to_stream().to(
        "out"
    )
    return builder.build()


def whole() -> Topology:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().agg(n=agg.count(col()), store="totals").to_stream().to("out")
    return builder.build()


def of_states() -> Topology:
    builder = StreamsBuilder()
    named: dict[str, Any] = {"mean": agg.mean(col("b")), "best": agg.top(col("a"), 3), "different": agg.count_distinct(col("c"))}
    builder.stream("in").group_by_key().agg(**named, n=agg.count(), store="totals").to_stream().to("out")
    return builder.build()


@pytest.mark.parametrize("make", [lambdas, two_readers, typed, whole, of_states])
def test_what_is_not_made_of_expressions_alone_is_walked(make: Callable[[], Topology]) -> None:
    with columns_used() as used:
        found = outcome(make, [orders(60)], columns=True)
    assert not used
    assert found == outcome(make, [orders(60)], columns=False)


def test_states_are_kept_from_epoch_to_epoch() -> None:
    """Each epoch binds its lanes anew, so that it has only what the stores give back."""
    in_epochs = outcome(of_states, [orders(60), orders(80), orders(50)], columns=True)
    at_once = outcome(of_states, [orders(60) + orders(80) + orders(50)], columns=True)

    def last_sent(rows: list[Any]) -> dict[Any, Any]:
        return {row["key"]: json.loads(row["value"]) for row in rows if isinstance(row, dict) and row["kind"] == Kind.SINK}

    assert last_sent(in_epochs) == last_sent(at_once)
    kinds = {name: {type(value[name]) for value in last_sent(at_once).values()} for name in ("mean", "best", "different", "n")}
    assert kinds == {"mean": {float}, "best": {list}, "different": {int}, "n": {int}}
