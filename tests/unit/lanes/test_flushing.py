"""The end of an epoch in several shards of a lane: their calls are made together, and each shard gets its answers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import StreamsBuilder, Topology, log_and_continue
from penstock.calls import Callers
from penstock.errors import ProcessingError
from penstock.handlers import ErrorHandlers
from penstock.lanes.bound_shard import BoundShard, Surroundings, flush
from penstock.lanes.failures import FailurePolicy
from penstock.state import LaneState, memory_engine
from tests.unit.lanes.feeding import Raw, batch, feed, lane_of, values


def asking(function: Any) -> Topology:
    builder = StreamsBuilder()
    builder.stream("in", value=str, name="in").map_values_async(function, name="ask", value=str).to("out", value=str)
    return builder.build()


def lanes_of(topology: Topology, shards: list[int], callers: Callers, handlers: ErrorHandlers | None = None) -> list[BoundShard]:
    state, policy = LaneState(memory_engine()), FailurePolicy(handlers or ErrorHandlers())
    surroundings = Surroundings(lambda: 0, callers=lambda: callers)
    return [lane_of(topology, state.shard(shard), policy, surroundings=surroundings) for shard in shards]


@pytest.fixture
def callers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Callers that record the number of requests in each call."""
    found = Callers()
    of, sizes = found.of, list[int]()

    def noting(node: str, call: Any) -> Any:
        caller = of(node, call)
        if not hasattr(caller, "noted"):
            answers = caller.answers

            def noted(requests: Any) -> Any:
                sizes.append(len(requests))
                return answers(requests)

            caller.answers = noted  # type: ignore[method-assign]
            caller.noted = True  # type: ignore[attr-defined]
        return caller

    found.of = noting  # type: ignore[method-assign]
    found.sizes = sizes  # type: ignore[attr-defined]
    yield found
    found.close()


def test_calls_of_all_shards_are_made_together(callers: Any) -> None:
    lanes = lanes_of(asking(lambda value: f"{value}!"), [1, 4, 6], callers)
    for number, lane in enumerate(lanes):
        feed(lane, [batch([Raw("in", offset, offset, b"k", b"%d-%d" % (number, offset)) for offset in range(number + 1)])])
    flush(lanes)
    assert callers.sizes == [6]
    assert [values(lane.outbox.drain()) for lane in lanes] == [[b"0-0!"], [b"1-0!", b"1-1!"], [b"2-0!", b"2-1!", b"2-2!"]]


def test_an_answer_has_the_cause_of_its_request(callers: Any) -> None:
    one, other = lanes = lanes_of(asking(lambda value: value), [1, 4], callers)
    feed(one, [batch([Raw("in", offset, offset, b"k", b"x") for offset in range(3)])])
    feed(other, [batch([Raw("in", 7, 7, b"k", b"y")])])
    flush(lanes)
    assert [row.cause for row in one.outbox.drain()] == [0, 1, 2]
    assert [row.cause for row in other.outbox.drain()] == [0]
    assert [lane.cursor.metadata() for lane in lanes] == [None, None]


def test_a_shard_without_requests_makes_no_calls(callers: Any) -> None:
    lanes = lanes_of(asking(lambda value: value), [1, 4], callers)
    feed(lanes[1], [batch([Raw("in", 0, 0, b"k", b"y")])])
    flush(lanes)
    assert callers.sizes == [1]
    flush(lanes)
    assert callers.sizes == [1]
    assert [len(lane.outbox.drain()) for lane in lanes] == [0, 1]


def test_a_failure_names_the_record_and_does_not_affect_other_shards(callers: Any) -> None:
    def careful(value: str) -> str:
        if value == "bad":
            raise ValueError(value)
        return value

    records = [Raw("in", 0, 0, b"k", b"good"), Raw("in", 1, 1, b"k", b"bad")]
    lanes = lanes_of(asking(careful), [1, 4], callers, ErrorHandlers(processing=log_and_continue()))
    for lane in lanes:
        feed(lane, [batch(records)])
    flush(lanes)
    assert [(values(lane.outbox.drain()), sum(lane.outbox.dropped.values())) for lane in lanes] == [([b"good"], 1)] * 2
    lanes = lanes_of(asking(careful), [1, 4], callers)
    for lane in lanes:
        feed(lane, [batch(records)])
    with pytest.raises(ProcessingError, match="ask failed on the record from in-0 at offset 1"):
        flush(lanes)


def test_calls_caused_by_cached_tables_are_made_together(callers: Any) -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in", value=str, name="in").group_by_key().count(store="n").to_stream()
    counts.map_values_async(lambda count: -count, name="ask", value=int).to("out", value=int)
    lanes = lanes_of(builder.build(), [1, 4], callers)
    for times, lane in enumerate(lanes, 1):
        feed(lane, [batch([Raw("in", offset, offset, b"k", b"x") for offset in range(times)])])
    flush(lanes)
    assert callers.sizes == [2]
    assert [[int.from_bytes(row.value or b"", "big", signed=True) for row in lane.outbox.drain()] for lane in lanes] == [
        [-1],
        [-2],
    ]


def test_caches_of_all_shards_emit(callers: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=str, name="in").group_by_key().count(store="n").to_stream().to("out", value=int)
    lanes = lanes_of(builder.build(), [1, 4], callers)
    for times, lane in enumerate(lanes, 1):
        feed(lane, [batch([Raw("in", offset, offset, b"k", b"x") for offset in range(times)])])
        assert lane.outbox.drain() == []
    flush(lanes)
    assert [values(lane.outbox.drain()) for lane in lanes] == [[times.to_bytes(8, "big")] for times in (1, 2)]
