"""Session windows: how sessions grow and merge, what is retracted, and when they close."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import ProcessingError, StateError
from penstock.operators.sessions import SessionAggregate
from penstock.records import NO_HEADERS, ValueAndTimestamp, Windowed
from penstock.timing import SessionWindows, session
from tests.unit.operators.windowed_lane import BITS, EVER, STORE, Bench, Result, append, nothing, unite, zero


def merge(key: str, one: str | None, other: str | None) -> str:
    return (one or "") + (other or "")


def bench(
    windows: SessionWindows,
    *,
    initializer: Callable[[], Any] = nothing,
    aggregator: Callable[[Any, Any, Any], Any] = append,
    merger: Callable[[Any, Any, Any], Any] = merge,
    emit_on_close: bool = False,
    send_old_values: bool = False,
    **lane: Any,
) -> Bench:
    return Bench(SessionAggregate(STORE, windows, initializer, aggregator, merger, emit_on_close, send_old_values), **lane)


def test_a_session_starts_with_one_record() -> None:
    lane = bench(session(10))
    assert lane.pipe("k", "a", 5) == [Result("k", 5, 5, "a", None, 5)]
    assert lane.pipe("m", "b", 5) == [Result("m", 5, 5, "b", None, 5)]


def test_a_record_within_the_gap_extends_the_session_which_is_retracted_first() -> None:
    lane = bench(session(10), send_old_values=True)
    lane.pipe("k", "a", 5)
    assert lane.pipe("k", "b", 15) == [Result("k", 5, 5, None, "a", 5), Result("k", 5, 15, "ab", None, 15)]
    assert lane.content() == {("k", 5, 15): "ab"}


def test_a_record_beyond_the_gap_starts_another_session() -> None:
    lane = bench(session(10))
    lane.pipe("k", "a", 5)
    assert lane.pipe("k", "b", 16) == [Result("k", 16, 16, "b", None, 16)]


def test_a_record_within_a_session_keeps_its_bounds() -> None:
    lane = bench(session(10))
    lane.pipe("k", "a", 5)
    lane.pipe("k", "b", 15)
    assert lane.pipe("k", "c", 10) == [Result("k", 5, 15, None, None, 15), Result("k", 5, 15, "abc", None, 15)]


def test_an_out_of_order_record_extends_a_session_to_the_front() -> None:
    lane = bench(session(10, grace=50))
    lane.pipe("k", "a", 20)
    assert lane.pipe("k", "b", 12) == [Result("k", 20, 20, None, None, 20), Result("k", 12, 20, "ab", None, 20)]


def test_a_record_between_two_sessions_merges_them_earliest_first() -> None:
    lane = bench(session(10, grace=50), send_old_values=True)
    lane.pipe("k", "a", 20)
    lane.pipe("k", "b", 40)
    assert lane.pipe("k", "c", 30) == [
        Result("k", 20, 20, None, "a", 20),
        Result("k", 40, 40, None, "b", 40),
        Result("k", 20, 40, "abc", None, 40),
    ]
    assert lane.content() == {("k", 20, 40): "abc"}


def test_a_record_may_merge_three_sessions() -> None:
    # Sessions this close are left over from a smaller gap, say.
    lane = bench(session(10, grace=90))
    for at, value in ((20, "a"), (25, "b"), (30, "c")):
        lane.store(STORE).put(Windowed("k", at, at), value)
    assert lane.pipe("k", "d", 26) == [
        Result("k", 20, 20, None, None, 20),
        Result("k", 25, 25, None, None, 25),
        Result("k", 30, 30, None, None, 30),
        Result("k", 20, 30, "abcd", None, 30),
    ]


def test_without_a_cache_the_session_of_the_same_instant_is_replaced_without_old_value() -> None:
    lane = bench(session(10), send_old_values=True)
    lane.pipe("k", "a", 5)
    assert lane.pipe("k", "b", 5) == [Result("k", 5, 5, "ab", None, 5)]


def test_with_a_cache_the_session_of_the_same_instant_is_replaced_with_its_old_value() -> None:
    lane = bench(session(10), cached=True, send_old_values=True)
    lane.pipe("k", "a", 5)
    assert lane.flush() == [Result("k", 5, 5, "a", None, 5)]
    lane.pipe("k", "b", 5)
    assert lane.flush() == [Result("k", 5, 5, "ab", "a", 5)]


def test_a_cache_does_not_emit_sessions_that_were_added_and_removed() -> None:
    lane = bench(session(10), cached=True, send_old_values=True)
    lane.pipe("k", "a", 5, (("h", b"1"),))
    lane.pipe("k", "b", 10, (("h", b"2"),))
    assert lane.flush() == [Result("k", 5, 10, "ab", None, 10)]
    assert lane.headers == [(("h", b"2"),)]
    lane.pipe("k", "c", 12, (("h", b"3"),))
    assert lane.flush() == [Result("k", 5, 10, None, "ab", 10), Result("k", 5, 12, "abc", None, 12)]
    assert lane.headers == [(("h", b"3"),)] * 2


def test_a_cache_drops_the_deletion_of_a_missing_session_and_its_time() -> None:
    lane = bench(session(10), cached=True)
    lane.pipe("k", "delete", 50)
    assert (lane.flush(), lane.observed_stream_time) == ([], -1)
    uncached = bench(session(10))
    uncached.pipe("k", "delete", 50)
    assert uncached.observed_stream_time >= 0


@pytest.mark.parametrize(("cached", "merged"), [(True, [(0, 9_000, "ab")]), (False, [(9_000, 9_000, "b")])])
def test_only_a_cache_shows_sessions_past_their_retention_to_a_late_record(cached: bool, merged: list[Any]) -> None:
    lane = bench(session(10_000, grace=50_000), cached=cached, send_old_values=True)
    lane.pipe("k", "a", 0)
    lane.pipe("other", "c", 65_000)
    if cached:
        lane.flush()
    results = lane.pipe("k", "b", 9_000)
    if cached:
        results = lane.flush()
    assert [(start, end, new) for _, start, end, new, _, _ in results] == merged
    assert lane.drops == []


def test_without_a_cache_results_have_no_headers() -> None:
    lane = bench(session(10))
    lane.pipe("k", "a", 5, (("h", b"1"),))
    assert lane.headers == [NO_HEADERS]


@pytest.mark.parametrize("grace", [0, 5])
def test_a_record_expires_when_its_session_would_have_ended_before_gap_and_grace(grace: int) -> None:
    lane = bench(session(10, grace=grace), retention_ms=EVER)
    lane.pipe("m", "a", 50 + grace)
    assert lane.pipe("k", "b", 39) == []
    assert lane.drops == ["expired window"]
    assert lane.pipe("k", "c", 40) == [Result("k", 40, 40, "c", None, 40)]


def test_a_late_record_is_added_if_its_session_is_still_open() -> None:
    lane = bench(session(10), retention_ms=EVER)
    lane.pipe("k", "a", 45)
    lane.pipe("m", "b", 50)
    assert lane.pipe("k", "c", 36) == [Result("k", 45, 45, None, None, 45), Result("k", 36, 45, "ac", None, 45)]
    assert lane.drops == []


def test_null_keys_are_dropped_before_their_time_is_seen_and_null_values_are_not() -> None:
    lane = bench(session(10))
    assert lane.pipe(None, "a", 1_000) == []
    assert lane.drops == ["null key"]
    assert lane.pipe("k", None, 0) == [Result("k", 0, 0, "-", None, 0)]


def test_an_aggregate_of_none_removes_the_session() -> None:
    lane = bench(session(10))
    lane.pipe("k", "a", 5)
    assert lane.pipe("k", "delete", 7) == [Result("k", 5, 5, None, None, 5), Result("k", 5, 7, None, None, 7)]
    assert lane.content() == {}


def test_the_view_reads_by_windowed_key_with_the_end_as_timestamp() -> None:
    lane = bench(session(10))
    lane.pipe("k", "a", 5)
    lane.pipe("k", "b", 9)
    assert lane.get("k", 5, 9) == ValueAndTimestamp("ab", 9)
    assert lane.get("k", 5, 5) is None
    host: Any = lane  # as much of one as a view needs
    with pytest.raises(StateError, match="windowed tables have no versions"):
        lane.operator.view(host).get_as_of("k", 0)


def test_errors_of_user_code_name_the_node_and_others_pass_through() -> None:
    def fail() -> None:
        raise ProcessingError("downstream")

    lane = bench(session(10), merger=lambda key, one, other: 1 // 0)
    lane.pipe("k", "a", 5)
    assert lane.pipe("k", "b", 6) == []
    assert [key for _, key in lane.failures] == ["k"]
    with pytest.raises(ProcessingError, match="downstream"):
        bench(session(10), downstream=fail).pipe("k", "a", 5)


def test_the_operator_is_a_value() -> None:
    operator = SessionAggregate(STORE, session(10), nothing, append, merge, False, True)
    assert pickle.loads(pickle.dumps(operator)) == operator


class TestOnClose:
    def test_a_session_is_emitted_once_when_nothing_can_join_it(self) -> None:
        lane = bench(session(10, grace=5), emit_on_close=True, retention_ms=EVER)
        assert lane.pipe("k", "a", 5) == []
        assert lane.pipe("k", "b", 12) == []
        assert lane.pipe("m", "c", 27) == []
        assert lane.pipe("m", "d", 28, (("h", b"1"),)) == [Result("k", 5, 12, "ab", None, 12)]
        assert lane.headers == [(("h", b"1"),)]
        assert lane.pipe("m", "e", 29) == []

    def test_closed_sessions_are_emitted_by_end_start_and_key(self) -> None:
        lane = bench(session(10), emit_on_close=True, retention_ms=EVER)
        for key, at in (("m", 5), ("k", 5), ("a", 3), ("a", 5)):
            lane.pipe(key, key, at)
        assert [result[:4] for result in lane.pipe("z", "z", 50)] == [("a", 3, 5, "aa"), ("k", 5, 5, "k"), ("m", 5, 5, "m")]

    def test_nothing_is_emitted_twice_after_the_node_is_bound_again(self) -> None:
        lane = bench(session(10), emit_on_close=True, retention_ms=EVER)
        lane.pipe("k", "a", 5)
        assert len(lane.pipe("k", "b", 16)) == 1
        (register,) = lane.registers.values()
        assert register.value == 6
        lane.bind()
        assert lane.pipe("k", "c", 17) == []

    @settings(max_examples=60, deadline=None)
    @given(st.lists(st.tuples(st.sampled_from("km"), st.integers(0, 60)), max_size=12), st.integers(0, 10), st.integers(0, 10))
    def test_every_session_that_stays_closed_is_emitted_once(self, records: list[tuple[str, int]], gap: int, grace: int) -> None:
        windows = session(gap, grace=grace)
        lane = bench(windows, initializer=zero, aggregator=unite, merger=unite, value=BITS, emit_on_close=True, retention_ms=EVER)
        left = [result for bit, (key, at) in enumerate(records) for result in lane.pipe(key, 1 << bit, at)]
        close_time = max((at for _, at in records), default=-1) - grace - gap
        closed = {window: bits for window, bits in lane.content().items() if window[2] < close_time}
        # A late record may still join a session that was emitted: the merged one is emitted later too, as another window.
        emitted = {result[:3]: result.new for result in left}
        assert len(emitted) == len(left)
        assert closed.items() <= emitted.items()


def model(records: list[tuple[str, int]], gap: int) -> dict[tuple[str, int, int], int]:
    """Each key's records by time, split where the pause is longer than the gap."""
    sessions: dict[tuple[str, int, int], int] = {}
    for key in {key for key, _ in records}:
        current: tuple[int, int, int] | None = None
        for at, bit in sorted((at, bit) for bit, (other, at) in enumerate(records) if other == key):
            if current is not None and at - current[1] <= gap:
                del sessions[key, current[0], current[1]]
                current = (current[0], at, current[2] | 1 << bit)
            else:
                current = (at, at, 1 << bit)
            sessions[key, current[0], current[1]] = current[2]
    return sessions


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("km"), st.integers(0, 60)), max_size=12), st.integers(0, 12))
def test_sessions_are_the_same_whatever_the_order(records: list[tuple[str, int]], gap: int) -> None:
    lane = bench(session(gap, grace=EVER), initializer=zero, aggregator=unite, merger=unite, value=BITS)
    for bit, (key, at) in enumerate(records):
        lane.pipe(key, 1 << bit, at)
    assert lane.content() == model(records, gap)
