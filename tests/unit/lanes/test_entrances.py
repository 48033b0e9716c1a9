"""Records that are replayed into one node reach that node and those below, but no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from penstock import (
    Processor,
    Record,
    StreamsBuilder,
    Topology,
    bounded_disorder,
    dead_letter,
    log_and_continue,
    otherwise,
    retry,
)
from penstock.errors import ProcessingError
from penstock.handlers import ErrorHandlers
from penstock.lanes.entrances import has_replays
from penstock.lanes.epoch import HEADERS
from penstock.letters import REPLAY_NODE, Letter
from penstock.records import Headers, RecordMetadata
from penstock.testing import FakeAsync, TopologyTestDriver
from tests.unit.epochs.application import Application

DEAD = dead_letter("dead")
OUTPUTS = ("echo", "counts", "near", "far", "dead")
OTHER = ("trace", b"1")


def into(node: str) -> Headers:
    return (OTHER, (REPLAY_NODE, node.encode()))


def inverse(value: int) -> float:
    return 1 / value


def branching() -> Topology:
    """A node beside others in the first stage, and one behind an exchange."""
    builder = StreamsBuilder()
    numbers = builder.stream("in", key=str, value=int, name="in").map_values(_same, name="same")
    numbers.to("echo", value=int)
    numbers.group_by(_parity, key=str).count(store="counts", name="count").to_stream(name="counted").to("counts", value=int)
    numbers.map_values(inverse, name="near").to("near", value=float)
    numbers.select_key(_parity, name="rekey").repartition(name="by", value=int).map_values(inverse, name="far").to(
        "far", value=float
    )
    return builder.build()


def _same(value: int) -> int:
    return value


def _parity(key: str, value: int) -> str:
    return "odd" if value % 2 else "even"


def seen(topology: Topology, value: int, headers: Headers, **handlers: Any) -> dict[str, int]:
    """Return how many records each output receives for one input record."""
    with TopologyTestDriver(topology, **handlers) as driver:
        driver.input("in").pipe(value, key="a", headers=headers)
        return {topic: len(rows) for topic, rows in driver._outputs.items() if rows}


class TestInTheDriver:
    @pytest.mark.parametrize(
        ("node", "expected"),
        [
            ("near", {"near": 1}),
            ("far", {"far": 1}),
            ("rekey", {"far": 1}),
            ("count", {"counts": 1}),
            ("same", {"echo": 1, "counts": 1, "near": 1, "far": 1}),
            ("in", {"echo": 1, "counts": 1, "near": 1, "far": 1}),
        ],
    )
    def test_only_the_node_and_those_below_see_it(self, node: str, expected: dict[str, int]) -> None:
        assert seen(branching(), 4, into(node)) == expected

    def test_the_replay_header_is_removed_at_the_node(self) -> None:
        with TopologyTestDriver(branching()) as driver:
            for node in ("near", "far"):
                driver.input("in").pipe(4, key="a", headers=into(node))
                assert driver.output(node).read().headers == (OTHER,)

    def test_state_beside_the_path_is_not_changed(self) -> None:
        with TopologyTestDriver(branching()) as driver:
            driver.input("in").pipe(4, key="a")
            driver.input("in").pipe(4, key="a", headers=into("near"))
            assert driver.store("counts")["even"] == 1
            driver.input("in").pipe(4, key="a", headers=into("count"))
            assert driver.store("counts")["even"] == 2

    @pytest.mark.parametrize(
        ("node", "why"), [("nobody", "has no node 'nobody'"), ("counted", "'count', between"), ("", "has no node ''")]
    )
    def test_a_record_without_a_path_to_its_node_fails_like_any_other(self, node: str, why: str) -> None:
        assert seen(branching(), 4, into(node), processing_errors=log_and_continue()) == {}
        with TopologyTestDriver(branching(), processing_errors=DEAD) as driver:
            driver.input("in").pipe(4, key="a", headers=into(node))
            record = driver.output("dead").read()
            letter = Letter(RecordMetadata("dead", 0, 0), record.key, record.value, record.timestamp, record.headers)
            assert (letter.node, letter.key, letter.record_headers) == ("in", b"a", (OTHER,))
            assert why in letter.message
            assert driver.produced_topic_names() == {"dead"}
        with (
            TopologyTestDriver(branching()) as driver,
            pytest.raises(ProcessingError, match=f"in failed on the record from in-0 at offset 0.*{why}"),
        ):
            driver.input("in").pipe(4, key="a", headers=into(node))

    def test_a_replayed_record_that_fails_again_gives_one_dead_letter(self) -> None:
        assert seen(branching(), 0, into("near"), processing_errors=DEAD) == {"dead": 1}
        assert seen(branching(), 0, into("far"), processing_errors=DEAD) == {"dead": 1}

    def test_functions_on_the_path_are_retried(self) -> None:
        calls: list[int] = []

        def shaky(value: int) -> int:
            calls.append(value)
            if len(calls) < 3:
                raise ConnectionError
            return value

        builder = StreamsBuilder()
        builder.stream("in", value=int, name="in").map_values(shaky, name="shaky").map_values(inverse, name="end").to(
            "out", value=float
        )
        assert seen(builder.build(), 4, into("end"), processing_errors=retry(3)) == {"out": 1}
        assert len(calls) == 3

    def test_a_branch_on_the_path_chooses_as_usual(self) -> None:
        builder = StreamsBuilder()
        small, large = builder.stream("in", value=int, name="in").split(lambda _, value: value < 3, otherwise, name="split")
        small.map_values(inverse, name="small").to("small", value=float)
        large.map_values(inverse, name="large").to("large", value=float)
        topology = builder.build()
        assert seen(topology, 4, into("large")) == {"large": 1}
        assert seen(topology, 4, into("small")) == {}

    def test_calls_on_the_path_are_made(self) -> None:
        asked = FakeAsync(lambda value: value + 1)
        builder = StreamsBuilder()
        numbers = builder.stream("in", value=int, name="in")
        numbers.to("echo", value=int)
        numbers.map_values_async(asked, name="asked", value=int).map_values(inverse, name="end").to("out", value=float)
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe(4, key="a", headers=into("end"))
            assert driver.output("out").values() == [0.2]
            assert driver.produced_topic_names() == {"out"}

    def test_the_processor_at_the_end_of_the_path_is_the_one_for_all_records(self) -> None:
        made = []

        class Counting(Processor[str, int, str, int]):
            transient = ("count",)

            def __init__(self) -> None:
                made.append(self)
                self.count = 0

            def process(self, record: Record[str, int]) -> None:
                self.count += 1

        topology = (
            Topology().add_source("in", "in", value=int).add_processor("p", Counting, "in").add_processor("q", Counting, "in")
        )
        with TopologyTestDriver(topology) as driver:
            driver.seed = None
            driver.input("in").pipe(1)
            driver.input("in").pipe(1, headers=into("p"))
        assert sorted(each.count for each in made) == [1, 2]

    def test_a_replayed_record_that_is_late_is_treated_as_late(self) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("in", value=int, name="in", watermark=bounded_disorder("1s"), late=dead_letter("late"))
        stream.map_values(inverse, name="end").to("out", value=float)
        with TopologyTestDriver(builder.build()) as driver:
            driver.input("in").pipe(1, timestamp=10_000)
            driver.input("in").pipe(1, timestamp=1_000, headers=into("end"))
            assert len(driver.output("out").records()) == 1
            assert len(driver.output("late").records()) == 1


class Raw(NamedTuple):
    key: bytes
    value: bytes
    timestamp: int
    headers: Any


def raw(number: int, value: int, headers: Headers = ()) -> Raw:
    column = [{"name": name, "value": data} for name, data in headers]
    return Raw(b"k%d" % (number % 5), value.to_bytes(8, "big"), 1_000 + number, column or None)


class TestInEpochs:
    @pytest.mark.parametrize("lanes", [1, 3])
    def test_epochs_and_the_driver_agree(self, tmp_path: Path, lanes: int) -> None:
        nodes = ("near", "far", "count", "nobody", "counted", "in")
        records = [raw(number, number % 4, into(nodes[number % 11]) if number % 11 < len(nodes) else ()) for number in range(120)]
        app: Any = Application(tmp_path, branching, handlers=ErrorHandlers(processing=DEAD))
        app.start(lanes)
        for start in range(0, len(records), 40):
            app.step(records[start : start + 40])
        app.check()
        with TopologyTestDriver(branching(), caching=False, processing_errors=DEAD) as driver:
            for each in records:
                headers = tuple((item["name"], item["value"]) for item in each.headers or ())
                driver.pipe_raw("in", each.key, each.value, each.timestamp, headers)
            expected = {
                topic: sorted((row.key or b"", row.value or b"") for row in rows) for topic, rows in driver._outputs.items()
            }
        found: dict[str, list[tuple[bytes, bytes]]] = {}
        for topic, key, value, _ in app.sent:
            found.setdefault(topic, []).append((key, value))
        assert set(found) == set(OUTPUTS)
        assert {topic: sorted(rows) for topic, rows in found.items()} == expected

    def test_a_letter_from_behind_an_exchange_says_that_it_differs_from_its_source(self, tmp_path: Path) -> None:
        app: Any = Application(tmp_path, branching, handlers=ErrorHandlers(processing=DEAD))
        app.start(2)
        rows = [row for row in app.run([raw(0, 0)]).to_pylist() if row["topic"] == "dead"]
        letters = {}
        for row in rows:
            headers = tuple((header["name"], header["value"]) for header in row["headers"])
            found = Letter(RecordMetadata("dead", 0, 0), row["key"], row["value"], row["timestamp"], headers)
            letters[found.node] = found
        near, far = letters["near"], letters["far"]
        assert near.source == far.source == RecordMetadata("in", 0, 0)
        assert (near.is_whole, far.is_whole) == (True, False)
        assert (near.key, far.key) == (b"k0", b"even")


def test_replays_are_detected_in_a_column_of_headers() -> None:
    def column(*rows: list[dict[str, Any]] | None) -> pa.ChunkedArray:
        return pa.chunked_array([pa.array(list(rows), HEADERS)])

    other, node = [{"name": "trace", "value": b"1"}], [{"name": "trace", "value": b"1"}, {"name": REPLAY_NODE, "value": b"x"}]
    assert not has_replays(column(None, None))
    assert not has_replays(column(None, other, []))
    assert has_replays(column(None, other, node))
    assert not has_replays(column())
