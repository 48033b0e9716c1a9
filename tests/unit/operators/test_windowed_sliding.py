"""Sliding windows: left, right and early windows, as Kafka Streams makes them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ProcessingError
from penstock.operators.sliding_windows import SlidingAggregate
from penstock.records import ValueAndTimestamp
from penstock.timing import SlidingWindows, sliding
from tests.unit.operators.windowed_lane import BITS, EVER, STORE, Bench, Result, append, nothing, unite, zero


def bench(
    windows: SlidingWindows,
    *,
    initializer: Callable[[], Any] = nothing,
    aggregator: Callable[[Any, Any, Any], Any] = append,
    emit_on_close: bool = False,
    send_old_values: bool = False,
    **lane: Any,
) -> Bench:
    return Bench(SlidingAggregate(STORE, windows, initializer, aggregator, emit_on_close, send_old_values), **lane)


def test_a_record_ends_a_window_and_opens_one_for_the_next() -> None:
    lane = bench(sliding(10))
    assert lane.pipe("k", "a", 20) == [Result("k", 10, 20, "a", None, 20)]
    assert lane.pipe("k", "b", 26) == [
        Result("k", 21, 31, "b", None, 26),  # after a
        Result("k", 16, 26, "ab", None, 26),  # up to b
    ]
    assert lane.pipe("m", "c", 26) == [Result("m", 16, 26, "c", None, 26)]


def test_the_example_of_kafka_streams_documentation() -> None:
    # time difference 5000 ms, grace 30000 ms; a at 8000, b at 9200, c at 12400
    lane = bench(sliding("5s", grace="30s"))
    for value, timestamp in (("a", 8_000), ("b", 9_200), ("c", 12_400)):
        lane.pipe("k", value, timestamp)
    assert lane.content() == {
        ("k", 3_000, 8_000): "a",
        ("k", 4_200, 9_200): "ab",
        ("k", 7_400, 12_400): "abc",
        ("k", 8_001, 13_001): "bc",
        ("k", 9_201, 14_201): "c",
    }


def test_records_farther_apart_than_the_difference_share_no_window() -> None:
    lane = bench(sliding(10))
    lane.pipe("k", "a", 20)
    assert lane.pipe("k", "b", 31) == [Result("k", 21, 31, "b", None, 31)]
    assert lane.pipe("k", "c", 42) == [Result("k", 32, 42, "c", None, 42)]


def test_both_ends_of_a_window_are_inside() -> None:
    lane = bench(sliding(10))
    lane.pipe("k", "a", 20)
    assert Result("k", 20, 30, "ab", None, 30) in lane.pipe("k", "b", 30)


def test_an_out_of_order_record_gets_its_right_window_from_later_records() -> None:
    lane = bench(sliding(10, grace=50))
    lane.pipe("k", "a", 30)
    assert lane.pipe("k", "b", 25) == [
        Result("k", 20, 30, "ab", None, 30),
        Result("k", 15, 25, "b", None, 25),
        Result("k", 26, 36, "a", None, 30),
    ]
    assert lane.content() == {("k", 20, 30): "ab", ("k", 15, 25): "b", ("k", 26, 36): "a"}


def test_a_record_of_a_time_already_seen_makes_no_new_window() -> None:
    lane = bench(sliding(10))
    lane.pipe("k", "a", 20)
    lane.pipe("k", "b", 25)
    assert lane.pipe("k", "c", 25) == [Result("k", 21, 31, "bc", None, 25), Result("k", 15, 25, "abc", None, 25)]


def test_a_left_window_that_was_another_records_right_window() -> None:
    lane = bench(sliding(10))
    lane.pipe("k", "a", 20)
    lane.pipe("k", "b", 25)  # makes [21, 31]
    assert lane.pipe("k", "c", 31) == [
        Result("k", 21, 31, "bc", None, 31),
        Result("k", 26, 36, "c", None, 31),  # after b
    ]


class TestEarlyRecords:
    """Records whose window would start before time 0 share `[0, difference]`."""

    def test_they_share_the_first_window(self) -> None:
        lane = bench(sliding(10))
        assert lane.pipe("k", "a", 0) == [Result("k", 0, 10, "a", None, 0)]
        assert lane.pipe("k", "b", 5) == [Result("k", 1, 11, "b", None, 5), Result("k", 0, 10, "ab", None, 5)]
        assert lane.pipe("k", "c", 7) == [
            Result("k", 1, 11, "bc", None, 7),
            Result("k", 6, 16, "c", None, 7),
            Result("k", 0, 10, "abc", None, 7),
        ]

    def test_out_of_order(self) -> None:
        lane = bench(sliding(10, grace=50))
        lane.pipe("k", "a", 8)
        assert lane.pipe("k", "b", 3) == [Result("k", 4, 14, "a", None, 8), Result("k", 0, 10, "ab", None, 8)]
        assert lane.pipe("k", "c", 5) == [
            Result("k", 4, 14, "ac", None, 8),
            Result("k", 6, 16, "a", None, 8),
            Result("k", 0, 10, "abc", None, 8),
        ]
        assert lane.pipe("k", "d", 3) == [Result("k", 0, 10, "abcd", None, 8)]

    def test_a_record_at_the_difference_is_not_early(self) -> None:
        lane = bench(sliding(10))
        lane.pipe("k", "a", 9)
        assert lane.pipe("k", "b", 10) == [Result("k", 0, 10, "ab", None, 10), Result("k", 10, 20, "b", None, 10)]


@pytest.mark.parametrize("grace", [0, 5])
def test_a_record_expires_when_stream_time_is_beyond_its_right_window_and_grace(grace: int) -> None:
    lane = bench(sliding(10, grace=grace))
    lane.pipe("m", "a", 40 + grace)
    assert lane.pipe("k", "b", 29) == []
    assert lane.drops == ["expired window"]
    # the window that ends at 30 is closed; the one after it would be open but is empty
    assert lane.pipe("k", "c", 30) == []
    assert lane.drops == ["expired window", "expired window"]
    assert lane.pipe("k", "d", 40) == [Result("k", 30, 40, "d", None, 40)]


def test_a_window_closes_when_stream_time_is_beyond_its_end_and_grace() -> None:
    lane = bench(sliding(10, grace=5))
    lane.pipe("k", "a", 30)
    lane.pipe("m", "b", 35)
    assert lane.pipe("k", "c", 29) == [
        Result("k", 20, 30, "ac", None, 30),
        Result("k", 30, 40, "a", None, 30),
    ]
    assert lane.drops == ["expired window"]  # for [19, 29]
    lane.pipe("m", "d", 36)
    assert lane.pipe("k", "e", 30) == [Result("k", 30, 40, "ae", None, 30)]
    assert lane.drops == ["expired window", "expired window"]  # and for [20, 30]


def test_null_keys_and_null_values_are_dropped_before_their_time_is_seen() -> None:
    lane = bench(sliding(10))
    assert lane.pipe(None, "a", 1_000) == []
    assert lane.pipe("k", None, 1_000) == []
    assert lane.drops == ["null key or value", "null key or value"]
    assert len(lane.pipe("k", "a", 20)) == 1


def test_an_aggregate_of_none_removes_the_window() -> None:
    lane = bench(sliding(10))
    lane.pipe("k", "a", 20)
    assert lane.pipe("k", "delete", 20) == [Result("k", 10, 20, None, None, 20)]
    assert lane.content() == {}


def test_without_a_cache_old_values_are_what_an_update_started_from() -> None:
    lane = bench(sliding(10, grace=50), send_old_values=True)
    assert lane.pipe("k", "a", 30) == [Result("k", 20, 30, "a", "", 30)]
    assert lane.pipe("k", "b", 35) == [Result("k", 31, 41, "b", "", 35), Result("k", 25, 35, "ab", "a", 35)]
    assert lane.pipe("k", "c", 25) == [
        Result("k", 25, 35, "abc", "ab", 35),
        Result("k", 20, 30, "ac", "a", 30),
        Result("k", 15, 25, "c", "", 25),
        Result("k", 26, 36, "ab", None, 35),
    ]


def test_with_a_cache_old_values_are_the_stored_ones() -> None:
    lane = bench(sliding(10), cached=True, send_old_values=True)
    lane.pipe("k", "a", 20)
    assert lane.flush() == [Result("k", 10, 20, "a", None, 20)]
    lane.pipe("k", "b", 25)
    assert lane.flush() == [Result("k", 21, 31, "b", None, 25), Result("k", 15, 25, "ab", None, 25)]
    lane.pipe("k", "c", 25)
    assert lane.flush() == [Result("k", 21, 31, "bc", "b", 25), Result("k", 15, 25, "abc", "ab", 25)]


def test_a_cache_drops_the_deletion_of_a_missing_window_and_its_time() -> None:
    lane = bench(sliding(10, grace=0), cached=True)
    lane.pipe("k", "delete", 50)
    assert (lane.flush(), lane.observed_stream_time) == ([], -1)
    uncached = bench(sliding(10, grace=0))
    uncached.pipe("k", "delete", 50)
    assert uncached.observed_stream_time >= 0


def test_results_have_the_current_records_headers() -> None:
    lane = bench(sliding(10, grace=50))
    lane.pipe("k", "a", 30, (("h", b"1"),))
    lane.pipe("k", "b", 25, (("h", b"2"),))
    assert lane.headers == [(("h", b"2"),)] * 3


def test_the_view_reads_by_windowed_key() -> None:
    lane = bench(sliding(10))
    lane.pipe("k", "a", 20)
    assert lane.get("k", 10, 20) == ValueAndTimestamp("a", 20)
    assert lane.get("k", 21, 31) is None


def test_errors_of_user_code_name_the_node_and_others_pass_through() -> None:
    def fail() -> None:
        raise ProcessingError("downstream")

    lane = bench(sliding(10), aggregator=lambda key, value, aggregate: 1 // 0)
    assert lane.pipe("k", "a", 30) == []
    assert [key for _, key in lane.failures] == ["k"]
    with pytest.raises(ProcessingError, match="downstream"):
        bench(sliding(10), downstream=fail).pipe("k", "a", 30)


def test_the_operator_is_a_value() -> None:
    operator = SlidingAggregate(STORE, sliding(10), nothing, append, False, True)
    assert pickle.loads(pickle.dumps(operator)) == operator


class TestOnClose:
    def test_a_window_is_emitted_once_stream_time_passes_it(self) -> None:
        lane = bench(sliding(10, grace=5), emit_on_close=True, retention_ms=EVER)
        assert lane.pipe("k", "a", 20) == []
        assert lane.pipe("k", "b", 25, (("h", b"1"),)) == []
        assert lane.pipe("m", "c", 26, (("h", b"2"),)) == [Result("k", 10, 20, "a", None, 20)]
        assert lane.headers == [(("h", b"2"),)]
        assert lane.pipe("m", "d", 30) == []
        assert [result[:4] for result in lane.pipe("z", "e", 100)] == [
            ("k", 15, 25, "ab"),
            ("m", 16, 26, "c"),
            ("m", 20, 30, "cd"),
            ("k", 21, 31, "b"),
            ("m", 27, 37, "d"),
        ]

    def test_early_and_expired_records_emit_nothing(self) -> None:
        lane = bench(sliding(10), emit_on_close=True, retention_ms=EVER)
        lane.pipe("k", "a", 0)
        assert lane.pipe("k", "b", 9) == []
        lane.pipe("k", "c", 10)
        assert lane.pipe("k", "d", 3) == []
        assert lane.pipe("k", "e", 11) == [Result("k", 0, 10, "abcd", None, 10)]


def model(records: list[tuple[str, int]], difference: int) -> dict[tuple[str, int, int], int]:
    """Every distinct set of records in a window of the given length, by the bounds that Kafka Streams gives the window."""
    windows: dict[tuple[str, int, int], int] = {}
    for key, at in records:
        for start in (max(0, at - difference), at + 1):
            inside = sum(
                1 << bit for bit, (other, when) in enumerate(records) if other == key and start <= when <= start + difference
            )
            if inside:
                windows[key, start, start + difference] = inside
    return windows


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("km"), st.integers(0, 40)), max_size=10), st.integers(1, 12))
def test_windows_do_not_depend_on_the_order_of_records(records: list[tuple[str, int]], difference: int) -> None:
    lane = bench(sliding(difference, grace=EVER), initializer=zero, aggregator=unite, value=BITS)
    for bit, (key, at) in enumerate(records):
        lane.pipe(key, 1 << bit, at)
    assert lane.content() == model(records, difference)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("km"), st.integers(12, 60)), max_size=10), st.integers(1, 12), st.integers(0, 12))
def test_every_closed_window_is_emitted_exactly_once(records: list[tuple[str, int]], difference: int, grace: int) -> None:
    windows = sliding(difference, grace=grace)
    lane = bench(windows, initializer=zero, aggregator=unite, value=BITS, emit_on_close=True, retention_ms=EVER)
    left = [result for bit, (key, at) in enumerate(records) for result in lane.pipe(key, 1 << bit, at)]
    close_time = max((at for _, at in records), default=-1) - grace
    closed = {window: bits for window, bits in lane.content().items() if window[2] < close_time}
    assert {result[:3]: result.new for result in left} == closed
    assert len(left) == len(closed)
