"""What stores and caches hold is by value; an attempt gets the aggregate afresh; a record that fails leaves nothing in a table.

The functions here change what they are given, and fail when they have: however the input is cut into epochs, the result is that
of the records that do not fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Processor,
    Record,
    Store,
    StreamsBuilder,
    Topology,
    hopping,
    log_and_continue,
    retry,
    session,
    shared_store,
    sliding,
    tumbling,
)
from penstock.epochs.program import Program
from penstock.handlers import ErrorHandler, ErrorHandlers
from penstock.testing import TopologyTestDriver
from tests.unit.epochs.application import Application, Raw, program_of
from tests.unit.lanes.feeding import lane_of

CUTS = ([4], [2, 2], [1, 1, 1, 1])
ROWS = ({"n": 1, "amount": 1}, {"n": 1, "amount": 2}, {"n": 1}, {"n": 1, "amount": 3})
"""The third fails, after the first half of the aggregate has been changed."""

HANDLERS: dict[str, ErrorHandler] = {
    "dropped": log_and_continue(),
    "retried": retry(attempts=2, backoff="0ms", then=log_and_continue()),
}
Build = Callable[[StreamsBuilder], None]


class WithCaches(Application):
    """The application of other tests switches caches off."""

    def program(self, lanes: int, incarnation: str) -> Program:
        own: dict[str, Any] = {"engine": self.engine, "incarnation": incarnation, "handlers": self.handlers}
        return program_of(self.topology, lanes, directory=str(self.directory), **own)


def nothing() -> dict[str, int]:
    return {"n": 0, "amount": 0}


def add(key: Any, value: dict[str, int], aggregate: dict[str, int]) -> dict[str, int]:
    return reduced(aggregate, value)


def reduced(aggregate: dict[str, int], value: dict[str, int]) -> dict[str, int]:
    aggregate["n"] += value["n"]
    aggregate["amount"] += value["amount"]
    return aggregate


def merged(key: Any, one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return reduced(one, other)


def remove(key: Any, value: dict[str, int], aggregate: dict[str, int]) -> dict[str, int]:
    aggregate["n"] -= value["n"]
    aggregate["amount"] -= value["amount"]
    return aggregate


def grouped(builder: StreamsBuilder) -> Any:
    return builder.stream("in", key=str).group_by_key()


TABLES: dict[str, Build] = {
    "aggregate": lambda builder: grouped(builder).aggregate(nothing, add, store="kept"),
    "reduce": lambda builder: grouped(builder).reduce(reduced, store="kept"),
    "tumbling": lambda builder: grouped(builder).windowed_by(tumbling("1h")).aggregate(nothing, add, store="kept"),
    "hopping": lambda builder: grouped(builder).windowed_by(hopping("1h", "30m")).aggregate(nothing, add, store="kept"),
    "sliding": lambda builder: grouped(builder).windowed_by(sliding("1h", grace="1h")).aggregate(nothing, add, store="kept"),
    "session": lambda builder: grouped(builder).windowed_by(session("1h")).aggregate(nothing, add, merged, store="kept"),
}


def topology_of(build: Build) -> Topology:
    builder = StreamsBuilder()
    build(builder)
    return builder.build()


def content(directory: Path, build: Build, cut: list[int], handler: ErrorHandler, times: Iterator[int]) -> list[dict[str, int]]:
    """What the table has of the rows in the end."""
    app = WithCaches(directory, lambda: topology_of(build), handlers=ErrorHandlers(processing=handler))
    app.start(2)
    records = [Raw(b"k", json.dumps(row).encode(), next(times)) for row in ROWS]
    for size in cut:
        app.step(records[:size])
        del records[:size]
    return documents(app)


def documents(app: Application) -> list[dict[str, int]]:
    return [json.loads(value[value.index(b"{") :]) for _, value in sorted(app.content("kept").items())]


class TestARecordThatFails:
    @pytest.mark.parametrize("handler", HANDLERS.values(), ids=list(HANDLERS))
    @pytest.mark.parametrize("cut", CUTS, ids=str)
    @pytest.mark.parametrize("table", ["aggregate", "reduce", "tumbling", "hopping", "session"])
    def test_leaves_nothing_in_a_table(self, table: str, cut: list[int], handler: ErrorHandler, tmp_path: Path) -> None:
        found = content(tmp_path, TABLES[table], cut, handler, count(1_000))
        assert found == [{"n": 3, "amount": 6}]

    @pytest.mark.parametrize("cut", CUTS, ids=str)
    @pytest.mark.parametrize("table", ["hopping", "sliding"])
    def test_changes_none_of_several_windows(self, table: str, cut: list[int], tmp_path: Path) -> None:
        """The third record is in several windows, and fails in each of them only after the first was changed."""
        hour = 3_600_000
        times = [10 * hour + number * 1_000 for number in range(4)]
        found = content(tmp_path / "failing", TABLES[table], cut, HANDLERS["dropped"], iter(times))
        app = WithCaches(tmp_path / "without", lambda: topology_of(TABLES[table]))
        app.start(2)
        app.step([Raw(b"k", json.dumps(row).encode(), time) for row, time in zip(ROWS, times, strict=True) if "amount" in row])
        assert found == documents(app)

    @pytest.mark.parametrize("caching", [False, True])
    def test_in_the_second_of_two_windows_leaves_nothing_in_the_first(self, caching: bool) -> None:
        calls = count(1)

        def fails_in_the_second(key: Any, value: int, so_far: int) -> int:
            if next(calls) == 4:
                raise ValueError("the second window of the second record")
            return so_far + value

        builder = StreamsBuilder()
        windows = builder.stream("in", key=str, value=int).group_by_key().windowed_by(hopping(10, 5))
        windows.aggregate(int, fails_in_the_second, store="kept").to_stream(lambda windowed, value: str(windowed.start)).to("out")
        with TopologyTestDriver(builder.build(), caching=caching, processing_errors=log_and_continue()) as driver:
            driver.input("in").pipe(1, key="k", timestamp=7)
            driver.input("in").pipe(10, key="k", timestamp=8)
            assert [value for _, value in driver.store("kept").all()] == [1, 1]
            assert driver.output("out").pairs() == [("0", 1), ("5", 1)]

    @pytest.mark.parametrize("caching", [False, True])
    def test_does_not_delete_the_session_that_it_would_have_been_in(self, caching: bool) -> None:
        builder = StreamsBuilder()
        windows = builder.stream("in", key=str).group_by_key().windowed_by(session("1h"))
        table = windows.aggregate(nothing, add, merged, store="kept")
        table.to_stream(lambda windowed, value: windowed.key).to("out")
        with TopologyTestDriver(builder.build(), caching=caching, processing_errors=log_and_continue()) as driver:
            for number, row in enumerate(ROWS[:3]):
                driver.input("in").pipe(row, key="k", timestamp=number)
            assert [value for _, value in driver.store("kept").fetch("k")] == [{"n": 2, "amount": 3}]
            assert driver.output("out").values()[-1] == {"n": 2, "amount": 3}

    @pytest.mark.parametrize("caching", [False, True])
    @pytest.mark.parametrize("verb", ["aggregate", "reduce"])
    def test_leaves_nothing_in_a_group_of_a_table(self, verb: str, caching: bool) -> None:
        builder = StreamsBuilder()
        group = builder.table("in", key=str).group_by(lambda key, value: ("all", value), key=str)
        if verb == "aggregate":
            group.aggregate(nothing, add, remove, store="kept")
        else:
            group.reduce(reduced, lambda so_far, value: remove(None, value, so_far), store="kept")
        for handler in HANDLERS.values():
            with TopologyTestDriver(builder.build(), caching=caching, processing_errors=handler) as driver:
                for key, row in zip("abcd", ROWS, strict=True):
                    driver.input("in").pipe(row, key=key)
                assert driver.store("kept")["all"] == {"n": 3, "amount": 6}

    @pytest.mark.parametrize("caching", [False, True])
    def test_that_cannot_be_written_goes_to_its_handler(self, caching: bool) -> None:
        """Not the whole epoch fails, when its tables are flushed."""
        builder = StreamsBuilder()
        grouped(builder).aggregate(dict, lambda key, value, so_far: {**so_far, **value, "bad": {1, 2}}, store="bad")
        with TopologyTestDriver(builder.build(), caching=caching, processing_errors=log_and_continue()) as driver:
            driver.input("in").pipe({"a": 1}, key="k")
            assert [reason for _, reason in driver.dropped()] == ["processing error"]


WINDOWS = [None, tumbling("1h"), hopping("1h", "30m"), sliding("1h", grace="1h"), session("1h")]


class Failing:
    """An aggregator that changes the aggregate, and then fails on some of its calls."""

    def __init__(self, *calls: int) -> None:
        self.left = set(calls)
        self.calls = 0

    def __call__(self, key: Any, value: Any, aggregate: dict[str, int]) -> dict[str, int]:
        self.calls += 1
        aggregate["n"] += 1
        if self.calls in self.left:
            raise OSError("a service is away")
        return aggregate


@pytest.mark.parametrize("caching", [False, True])
@pytest.mark.parametrize(
    "windows", [None, tumbling("1h"), hopping("1h", "30m"), sliding("1h", grace="1h"), session("1h")], ids=str
)
def test_each_attempt_gets_the_aggregate_afresh(windows: Any, caching: bool) -> None:
    builder = StreamsBuilder()
    group = builder.stream("in", key=str, value=str).group_by_key()
    flaky = Failing(2, 4, 5)
    if windows is None:
        group.aggregate(lambda: {"n": 0}, flaky, store="kept")
    elif str(windows) == str(session("1h")):
        windowed: Any = group.windowed_by(windows)
        windowed.aggregate(lambda: {"n": 0}, flaky, lambda key, one, two: {"n": one["n"] + two["n"]}, store="kept")
    else:
        group.windowed_by(windows).aggregate(lambda: {"n": 0}, flaky, store="kept")
    with TopologyTestDriver(builder.build(), caching=caching, processing_errors=retry(attempts=3, backoff="0ms")) as driver:
        for value in "abc":
            driver.input("in").pipe(value, key="k", timestamp=1_000)
        kept = driver.store("kept")
        values = [kept["k"]] if windows is None else [value for _, value in kept.all()]
        assert values == [{"n": 3}]


@pytest.mark.parametrize("caching", [False, True])
def test_each_attempt_of_an_operation_of_a_shared_store_gets_the_value_afresh(caching: bool) -> None:
    calls = count(1)

    def merge(current: dict[str, int], more: dict[str, int]) -> dict[str, int]:
        current["n"] += more["n"]
        if next(calls) == 1:
            raise OSError("a service is away")
        return current

    class Merging(Processor[str, Any, Any, Any]):
        def process(self, record: Record[str, Any]) -> None:
            self.context.store("kept").merge("all", record.value)

    builder = StreamsBuilder()
    builder.add_state_store(shared_store("kept", key=str, merge=merge))
    builder.stream("in", key=str).process(Merging, stores=["kept"])
    with TopologyTestDriver(builder.build(), caching=caching, processing_errors=retry(attempts=3, backoff="0ms")) as driver:
        for _ in range(3):
            driver.input("in").pipe({"n": 1}, key="k")
        assert driver.store("kept")["all"] == {"n": 3}


def change(value: Any) -> Any:
    value["n"] = "changed by the other branch"
    return value


class TestASiblingBranch:
    """It changes the value that a table has put before, and the epoch is not over yet."""

    @pytest.mark.parametrize("caching", [False, True])
    @pytest.mark.parametrize("table", ["to_table", "reduce", "tumbling", "sliding", "session", "ttl"])
    def test_does_not_change_what_a_table_holds_or_sends(self, table: str, caching: bool) -> None:
        builder = StreamsBuilder()
        stream = builder.stream("in", key=str)
        found = table_of(stream, table)
        found.to_stream(lambda key, value: "k").to("out")
        stream.map_values(change).to("other")
        with TopologyTestDriver(builder.build(), caching=caching) as driver:
            driver.input("in").pipe({"n": "original"}, key="k", timestamp=10)
            assert driver.output("other").values() == [{"n": "changed by the other branch"}]
            assert driver.output("out").values() == [{"n": "original"}]
            kept = driver.store("kept")
            assert [value for _, value in kept.all()] == [{"n": "original"}]


def table_of(stream: Any, table: str) -> Any:
    def last(so_far: Any, value: Any) -> Any:
        return value

    group = stream.group_by_key()
    match table:
        case "to_table":
            return stream.to_table(store="kept")
        case "reduce":
            return group.reduce(last, store="kept")
        case "ttl":
            return group.reduce(last, store=Store("kept", ttl="1h"))
        case "session":
            return group.windowed_by(session("1h")).reduce(last, store="kept")
        case "sliding":
            return group.windowed_by(sliding(5, grace=5)).reduce(last, store="kept")
        case _:
            return group.windowed_by(tumbling("1h")).reduce(last, store="kept")


def test_what_an_aggregator_keeps_of_its_aggregate_changes_nothing_later() -> None:
    """In one epoch of two records, the function changes what it returned for the first when it gets the second."""
    kept: list[dict[str, int]] = []

    def remembers(key: Any, value: int, so_far: dict[str, int]) -> dict[str, int]:
        for earlier in kept:
            earlier["n"] = -1
        kept.append({"n": so_far["n"] + value})
        return kept[-1]

    builder = StreamsBuilder()
    table = (
        builder.stream("in", key=str, value=int, name="in").group_by_key().aggregate(lambda: {"n": 0}, remembers, store="kept")
    )
    table.to_stream().to("out")
    lane = lane_of(builder.build())
    for value in (1, 2, 3):
        lane.intakes["in"].process("k", value, 0, ())
    kept[-1]["n"] = -1
    lane.flush()
    assert [json.loads(row.value or b"") for row in lane.outbox.drain()] == [{"n": 6}]
