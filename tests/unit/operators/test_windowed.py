"""Tumbling, hopping and unlimited windows: edges, grace, order, and what is forwarded."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ProcessingError, StateError, TopologyError
from penstock.operators.windowed import WindowAggregate
from penstock.records import ValueAndTimestamp
from penstock.serdes import Json
from penstock.timing import MAX_MS, TimeWindows, UnlimitedWindows, hopping, tumbling, unlimited
from tests.unit.operators.windowed_lane import BITS, EVER, STORE, Bench, Result, append, nothing, unite, zero


def bench(
    windows: TimeWindows | UnlimitedWindows,
    *,
    initializer: Callable[[], Any] = nothing,
    aggregator: Callable[[Any, Any, Any], Any] = append,
    emit_on_close: bool = False,
    send_old_values: bool = False,
    **lane: Any,
) -> Bench:
    return Bench(WindowAggregate(STORE, windows, initializer, aggregator, emit_on_close, send_old_values), **lane)


def test_a_window_holds_its_start_and_not_its_end() -> None:
    lane = bench(tumbling(10))
    assert lane.pipe("k", "a", 0) == [Result("k", 0, 10, "a", None, 0)]
    assert lane.pipe("k", "b", 9) == [Result("k", 0, 10, "ab", None, 9)]
    assert lane.pipe("k", "c", 10) == [Result("k", 10, 20, "c", None, 10)]
    assert lane.pipe("m", "d", 10) == [Result("m", 10, 20, "d", None, 10)]


def test_a_record_updates_all_hopping_windows_around_it_earliest_first() -> None:
    lane = bench(hopping(10, 4))
    assert [result.start for result in lane.pipe("k", "a", 3)] == [0]
    assert [result[1:4] for result in lane.pipe("k", "b", 9)] == [(0, 10, "ab"), (4, 14, "b"), (8, 18, "b")]


def test_records_of_equal_timestamps_add_up() -> None:
    lane = bench(tumbling(10))
    lane.pipe("k", "a", 5)
    assert lane.pipe("k", "b", 5) == [Result("k", 0, 10, "ab", None, 5)]


def test_a_result_has_the_time_of_its_latest_record() -> None:
    lane = bench(tumbling(10, grace=100))
    lane.pipe("k", "a", 7)
    assert lane.pipe("k", "b", 3) == [Result("k", 0, 10, "ab", None, 7)]
    assert lane.pipe("k", "c", 8) == [Result("k", 0, 10, "abc", None, 8)]


@pytest.mark.parametrize("grace", [0, 5])
def test_a_window_closes_when_stream_time_reaches_its_end_and_grace(grace: int) -> None:
    lane = bench(tumbling(10, grace=grace))
    lane.pipe("k", "a", 9 + grace)
    assert lane.pipe("k", "b", 0)[-1].new.endswith("b")
    lane.pipe("m", "c", 10 + grace)  # another key's record moves stream time too
    assert lane.pipe("k", "d", 9) == []
    assert lane.drops == ["expired window"]


def test_a_late_record_still_updates_the_windows_that_are_open() -> None:
    lane = bench(hopping(10, 5))
    lane.pipe("k", "a", 12)
    assert lane.pipe("k", "b", 8) == [Result("k", 5, 15, "ab", None, 12)]
    assert lane.drops == ["expired window"]  # for [0, 10)


def test_null_keys_are_dropped_before_their_time_is_seen_and_null_values_are_not() -> None:
    lane = bench(tumbling(10))
    assert lane.pipe(None, "a", 1_000) == []
    assert lane.drops == ["null key"]
    assert lane.pipe("k", None, 0) == [Result("k", 0, 10, "-", None, 0)]


def test_an_aggregate_of_none_removes_the_window() -> None:
    lane = bench(tumbling(10), send_old_values=True)
    lane.pipe("k", "a", 0)
    assert lane.pipe("k", "delete", 1) == [Result("k", 0, 10, None, "a", 1)]
    assert lane.content() == {}
    assert lane.pipe("k", "b", 0) == [Result("k", 0, 10, "b", "", 0)]


def test_an_initial_aggregate_of_none() -> None:
    lane = bench(tumbling(10), initializer=lambda: None, send_old_values=True)
    assert lane.pipe("k", "a", 0) == [Result("k", 0, 10, "a", None, 0)]


def test_without_a_cache_the_first_old_value_is_the_initial_aggregate() -> None:
    lane = bench(tumbling(10), send_old_values=True)
    assert lane.pipe("k", "a", 0) == [Result("k", 0, 10, "a", "", 0)]
    assert lane.pipe("k", "b", 1) == [Result("k", 0, 10, "ab", "a", 1)]


def test_a_cache_emits_each_window_once_with_the_value_before() -> None:
    lane = bench(hopping(10, 5), cached=True, send_old_values=True)
    assert lane.pipe("k", "a", 7) == []
    assert lane.pipe("k", "b", 12) == []
    assert lane.flush() == [
        Result("k", 0, 10, "a", None, 7),
        Result("k", 5, 15, "ab", None, 12),
        Result("k", 10, 20, "b", None, 12),
    ]
    lane.pipe("k", "c", 12)
    lane.pipe("k", "d", 11)
    assert lane.flush() == [Result("k", 5, 15, "abcd", "ab", 12), Result("k", 10, 20, "bcd", "b", 12)]
    assert lane.flush() == []


def test_a_cache_drops_the_deletion_of_a_missing_window_and_its_time() -> None:
    lane = bench(tumbling(10), cached=True)
    lane.pipe("k", "delete", 50)
    assert (lane.flush(), lane.observed_stream_time) == ([], -1)
    uncached = bench(tumbling(10))
    uncached.pipe("k", "delete", 50)
    assert uncached.observed_stream_time >= 0


def test_a_cache_without_old_values() -> None:
    lane = bench(tumbling(10), cached=True)
    lane.pipe("k", "a", 7, (("h", b"1"),))
    lane.flush()
    lane.pipe("k", "b", 7, (("h", b"2"),))
    assert lane.flush() == [Result("k", 0, 10, "ab", None, 7)]
    assert lane.headers == [(("h", b"2"),)]


def test_results_have_the_current_records_headers() -> None:
    lane = bench(hopping(10, 5))
    lane.pipe("k", "a", 7, (("h", b"1"),))
    assert lane.headers == [(("h", b"1"),), (("h", b"1"),)]


def test_the_unlimited_window() -> None:
    lane = bench(unlimited(5))
    assert lane.pipe("k", "a", 4) == []
    assert lane.pipe("k", "b", 5) == [Result("k", 5, MAX_MS, "b", None, 5)]
    lane.pipe("k", "c", EVER)
    assert lane.pipe("k", "d", 6) == [Result("k", 5, MAX_MS, "bcd", None, EVER)]
    assert lane.drops == []  # before the start is in no window, which is not late


def test_the_unlimited_window_never_closes() -> None:
    with pytest.raises(TopologyError, match="never close"):
        bench(unlimited(), emit_on_close=True)


def test_the_view_reads_by_windowed_key() -> None:
    lane = bench(tumbling(10))
    lane.pipe("k", "a", 3)
    assert lane.get("k", 0, 10) == ValueAndTimestamp("a", 3)
    assert lane.get("k", 10, 20) is None
    host: Any = lane  # as much of one as a view needs
    view = lane.operator.view(host)
    assert not view.is_versioned
    with pytest.raises(StateError, match="windowed tables have no versions"):
        view.get_as_of("k", 0)


def test_errors_of_user_code_name_the_node() -> None:
    lane = bench(tumbling(10), aggregator=lambda key, value, aggregate: 1 // 0)
    assert lane.pipe("k", "a", 3, (("h", None),)) == []
    ((error, key),) = lane.failures
    assert isinstance(error, ZeroDivisionError)
    assert key == "k"


def test_errors_from_downstream_pass_through() -> None:
    def fail() -> None:
        raise ProcessingError("downstream")

    lane = bench(tumbling(10), downstream=fail)
    with pytest.raises(ProcessingError, match="downstream"):
        lane.pipe("k", "a", 3)
    assert lane.failures == []


def test_the_operator_is_a_value() -> None:
    operator = WindowAggregate(STORE, tumbling(10), nothing, append, False, True)
    assert pickle.loads(pickle.dumps(operator)) == operator


class TestOnClose:
    def test_a_window_is_emitted_once_when_it_closes(self) -> None:
        lane = bench(tumbling(10, grace=5), emit_on_close=True)
        assert lane.pipe("k", "a", 3) == []
        assert lane.pipe("k", "b", 14) == []
        assert lane.pipe("k", "c", 9) == []  # in grace
        assert lane.pipe("m", "d", 15, (("h", b"1"),)) == [Result("k", 0, 10, "ac", None, 9)]
        assert lane.headers == [(("h", b"1"),)]
        assert lane.pipe("k", "e", 24) == []
        assert lane.pipe("m", "f", 25) == [Result("k", 10, 20, "b", None, 14), Result("m", 10, 20, "d", None, 15)]

    def test_closed_windows_are_emitted_by_start_then_key_without_old_values(self) -> None:
        lane = bench(hopping(10, 5), emit_on_close=True, send_old_values=True, retention_ms=EVER)
        for key, timestamp in (("m", 1), ("k", 6), ("b", 12)):
            lane.pipe(key, key, timestamp)  # the last one closes [0, 10)
        assert [result[:5] for result in lane.pipe("z", "z", 100)] == [
            ("b", 5, 15, "b", None),
            ("k", 5, 15, "k", None),
            ("b", 10, 20, "b", None),
        ]

    def test_the_record_that_closes_windows_may_be_late_itself(self) -> None:
        lane = bench(tumbling(10), emit_on_close=True)
        lane.pipe("k", "a", 3)
        assert lane.pipe("k", "b", 12) == [Result("k", 0, 10, "a", None, 3)]
        assert lane.pipe("k", "c", 4) == []
        assert lane.drops == ["expired window"]

    def test_when_stream_time_jumps_a_cache_still_shows_windows_that_the_store_drops(self) -> None:
        cached, uncached = (bench(tumbling(10), emit_on_close=True, cached=cached) for cached in (True, False))
        for lane in (cached, uncached):
            assert lane.pipe("k", "a", 3) == []
        assert cached.pipe("k", "b", 100) == [Result("k", 0, 10, "a", None, 3)]
        assert uncached.pipe("k", "b", 100) == []
        for lane in (cached, uncached):
            assert lane.pipe("k", "c", 110) == [Result("k", 100, 110, "b", None, 100)]

    def test_nothing_is_emitted_twice_after_the_node_is_bound_again(self) -> None:
        lane = bench(tumbling(10), emit_on_close=True, retention_ms=EVER)
        lane.pipe("k", "a", 3)
        assert len(lane.pipe("k", "b", 10)) == 1
        (register,) = lane.registers.values()
        assert register.value == 10
        lane.bind()
        assert lane.pipe("k", "c", 11) == []
        assert lane.pipe("k", "d", 20) == [Result("k", 10, 20, "bc", None, 11)]
        assert register.value == 20

    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.tuples(st.sampled_from("km"), st.integers(0, 60)), max_size=12),
        st.integers(1, 10),
        st.integers(1, 10),
        st.integers(0, 10),
    )
    def test_every_closed_window_is_emitted_exactly_once(
        self, records: list[tuple[str, int]], size: int, advance: int, grace: int
    ) -> None:
        windows = hopping(size, min(size, advance), grace=grace)
        lane = bench(windows, initializer=zero, aggregator=unite, value=BITS, emit_on_close=True, retention_ms=EVER)
        left = [result for bit, (key, at) in enumerate(records) for result in lane.pipe(key, 1 << bit, at)]
        close_time = max((at for _, at in records), default=-1) - grace
        closed = {window: bits for window, bits in lane.content().items() if window[2] <= close_time}
        assert {result[:3]: result.new for result in left} == closed
        assert len(left) == len(closed)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("km"), st.integers(0, 60)), max_size=12),
    st.integers(1, 10),
    st.integers(1, 10),
    st.integers(0, 10),
)
def test_windows_contain_the_records_that_arrived_before_they_closed(
    records: list[tuple[str, int]], size: int, advance: int, grace: int
) -> None:
    windows = hopping(size, min(size, advance), grace=grace)
    lane = bench(windows, initializer=zero, aggregator=unite, value=BITS, retention_ms=EVER)
    expected: dict[tuple[str, int, int], int] = defaultdict(int)
    stream_time = -1
    for bit, (key, at) in enumerate(records):
        lane.pipe(key, 1 << bit, at)
        stream_time = max(stream_time, at)
        for start in range(0, at + 1, windows.advance_ms):
            if start <= at < start + size and start + size > stream_time - grace:
                expected[key, start, start + size] |= 1 << bit
    assert lane.content() == expected


def fresh(key: str, value: list[int], sums: list[int]) -> list[int]:
    return sums + value[:1]


def in_place(key: str, value: list[int], sums: list[int]) -> list[int]:
    sums.extend(value)
    if 3 in value:
        raise ValueError("changed, and not returned")
    return sums


def taken(key: str, value: list[int], sums: list[int]) -> list[int]:
    return value if not sums else sums + value


def taken_and_changed(key: str, value: list[int], sums: list[int]) -> list[int]:
    return value if not sums else in_place(key, value, sums)


def part_taken_and_changed(key: str, value: list[list[int]], sums: list[int]) -> list[int]:
    return value[0] if not sums else in_place(key, value[0], sums)


def nested(key: str, value: dict[str, dict[str, list[int]]], sums: dict[str, list[int]]) -> dict[str, list[int]]:
    if not sums:
        return value["part"]
    in_place(key, value["part"]["items"], sums["items"])
    return sums


def mixed(key: str, value: list[int], sums: list[int]) -> list[int]:
    return fresh(key, value, sums) if 2 in value else in_place(key, value, sums)


def counted(key: str, value: list[int], count: list[int] | int) -> int:
    return (count if isinstance(count, int) else 0) + 1


@pytest.mark.parametrize(
    "aggregator", [fresh, in_place, taken, taken_and_changed, part_taken_and_changed, nested, mixed, counted]
)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_with_a_cache_windows_have_the_values_that_they_have_without(aggregator: Any, data: st.DataObject) -> None:
    held, written = (
        bench(hopping(6, 2, grace=1_000), initializer=list, aggregator=aggregator, cached=cached, value=Json())
        for cached in (True, False)
    )
    steps = data.draw(
        st.lists(st.tuples(st.sampled_from("ab"), st.lists(st.integers(1, 3), min_size=1, max_size=2), st.integers(0, 7)))
    )
    for key, value, timestamp in steps:
        for lane in (held, written):
            shapes: dict[Any, Any] = {part_taken_and_changed: [list(value)], nested: {"part": {"items": list(value)}}}
            own = shapes.get(aggregator, list(value))
            lane.pipe(key, own, timestamp)
        match data.draw(st.sampled_from(["", "", "", "flush", "read", "commit"])):
            case "read":
                assert held.content() == written.content()
            case "flush":
                results = held.flush()
                assert all(result.new == written.content()[result.key, result.start, result.end] for result in results)
                for changeable in [result.new for result in results if not isinstance(result.new, int)]:
                    changeable.clear()  # what a function downstream might do
            case "commit":
                held._store.before_commit()
    assert held.content() == written.content()
    assert len(held.failures) == len(written.failures)
