"""Nodes are counted and timed, each without the nodes it calls, and behave as usual."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import StreamsBuilder
from penstock.lanes import samples
from penstock.lanes.samples import Samples
from penstock.records import NO_HEADERS, Headers
from tests.unit.lanes.feeding import Raw, batch, lane_of, walk


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(samples, "perf_counter", clock)
    return clock


def call(process: Any, value: Any = None) -> None:
    process("key", value, 7, NO_HEADERS)


def test_a_record_passes_unchanged() -> None:
    seen: list[tuple[Any, Any, int, Headers]] = []
    watched = Samples().watched("node", lambda *record: seen.append(record))
    headers = (("a", b"b"),)
    watched("key", "value", 7, headers)
    assert seen == [("key", "value", 7, headers)]


def test_a_nodes_seconds_exclude_the_nodes_it_calls(clock: Clock) -> None:
    samples = Samples()

    def leaf(*_: Any) -> None:
        clock.now += 5

    below = samples.watched("leaf", leaf)

    def middle(*_: Any) -> None:
        clock.now += 1
        call(below)
        clock.now += 1
        call(below)

    inner = samples.watched("middle", middle)

    def root(*_: Any) -> None:
        clock.now += 0.25
        call(inner)
        call(below)
        clock.now += 0.25

    outer = samples.watched("root", root)
    call(outer)
    call(outer)
    assert samples.by_node() == {"leaf": (6, 30.0), "middle": (2, 4.0), "root": (2, 1.0)}


def test_a_node_that_fails_is_counted_and_its_seconds_are_not_its_callers(clock: Clock) -> None:
    samples = Samples()

    def failing(*_: Any) -> None:
        clock.now += 3
        raise ZeroDivisionError

    below = samples.watched("failing", failing)

    def careful(*_: Any) -> None:
        clock.now += 1
        with pytest.raises(ZeroDivisionError):
            call(below)

    call(samples.watched("careful", careful))
    assert samples.by_node() == {"failing": (1, 3.0), "careful": (1, 1.0)}


def test_one_name_has_one_tally(clock: Clock) -> None:
    samples = Samples()
    for _ in range(2):
        call(samples.watched("node", lambda *_: None))
    assert samples.by_node() == {"node": (2, 0.0)}


def test_a_node_without_records_is_listed() -> None:
    samples = Samples()
    samples.watched("node", lambda *_: None)
    assert samples.by_node() == {"node": (0, 0.0)}


def test_a_lane_measures_all_its_nodes() -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", value=str, name="source").filter(lambda key, value: value != "no", name="filter")
    words.to("out", value=str, name="sink")
    topology = builder.build()
    samples = Samples()
    lane = lane_of(topology, samples=samples)
    walk(lane, [batch(Raw("in", n, 0, b"k", value, source="source") for n, value in enumerate((b"yes", b"no", b"yes")))])
    assert {name: records for name, (records, _) in samples.by_node().items()} == {"source": 3, "filter": 3, "sink": 2}
    assert [row.value for row in lane.outbox.drain()] == [b"yes", b"yes"]
