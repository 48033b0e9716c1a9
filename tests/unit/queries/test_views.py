"""Views return what a processor's store returns, over all lanes, and cannot write."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from penstock import StreamsBuilder, TimeWindowed
from penstock.epochs.shards import lane_of, shard_of
from penstock.errors import QueryError, StateError
from penstock.queries import (
    CommittedState,
    KeyQuery,
    MultiVersionedKeyQuery,
    PrefixQuery,
    RangeQuery,
    SessionQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
    ask,
    view,
)
from penstock.records import ValueAndTimestamp, VersionedRecord, Windowed
from tests.unit.epochs.application import SHARDS, program_of
from tests.unit.queries.lanes import LANES


@pytest.fixture
def state(thirty_keys: CommittedState) -> CommittedState:
    return thirty_keys


class TestKeyValues:
    def test_by_key(self, state: CommittedState) -> None:
        words = view(state, "words")
        assert (words["w07"], words.get("w07"), words.get("nope"), "w07" in words, "nope" in words) == (2, 2, None, True, False)
        with pytest.raises(KeyError):
            words["nope"]
        with pytest.raises(StateError, match="null key"):
            words.get(None)

    def test_in_the_order_of_bytes_over_all_lanes(self, state: CommittedState) -> None:
        words = view(state, "words")
        expected = ["new", "old", *(f"w{number:02}" for number in range(30))]
        assert len({lane_of(shard_of(word.encode(), SHARDS), SHARDS, LANES) for word in expected}) == LANES
        assert list(words) == expected
        assert [key for key, _ in words.reverse_all()] == expected[::-1]
        assert [key for key, _ in words.range("w03", "w05")] == ["w03", "w04", "w05"]
        assert [key for key, _ in words.reverse_range("w28", None)] == ["w29", "w28"]
        assert [key for key, _ in words.prefix_scan("w1")] == expected[12:22]
        assert list(words.range("w05", "w03")) == []
        assert (len(words), words["old"]) == (32, 30)

    def test_with_event_times(self, state: CommittedState) -> None:
        words = view(state, "words")
        assert words.entry("w07") == ValueAndTimestamp(2, 2_007)
        assert next(words.entries.range("w08", "w08")) == ("w08", ValueAndTimestamp(2, 2_008))
        assert words.entry("nope") is None

    def test_with_a_ttl(self, state: CommittedState) -> None:
        brief = view(state, "brief")
        assert brief["k03"] == "new w03"
        assert len(brief) == 30

    def test_keys_that_a_processor_makes_up_are_found_in_any_shard(self, state: CommittedState) -> None:
        last = view(state, "last")
        assert last["k03"] == "new w03"
        counts = [int(value) for key, value in last.all() if key == "calls"]
        assert (len(counts), sum(counts)) == (SHARDS, 60)
        assert int(last["calls"]) in counts

    def test_nothing_can_be_written(self, state: CommittedState) -> None:
        for store in ("words", "windows", "sessions", "versions", "last"):
            for write in ("put", "delete", "remove", "pop", "put_all", "put_if_absent", "__setitem__", "__delitem__"):
                assert not hasattr(view(state, store), write), f"{store} has {write}"


class TestWindows:
    def test_of_a_key(self, state: CommittedState) -> None:
        windows = view(state, "windows")
        assert (windows.fetch("k03", 1_000), windows.fetch("k03", 2_000), windows.fetch("k03", 0)) == (1, 1, None)
        assert windows.fetch("k03", datetime(1970, 1, 1, 0, 0, 2, tzinfo=timezone.utc)) == 1
        assert list(windows.fetch_range("k03", 0, 10_000)) == [(1_000, 1), (2_000, 1)]
        assert list(windows.fetch_range("k03", 0, 10_000, reverse=True)) == [(2_000, 1), (1_000, 1)]
        assert list(windows.fetch_range("k03", 1_001, 1_999)) == []
        assert windows.entries.fetch("k03", 1_000) == ValueAndTimestamp(1, 1_003)

    def test_of_many_keys(self, state: CommittedState) -> None:
        windows = view(state, "windows")
        keys = [(f"k{number:02}", start) for number in range(30) for start in (1_000, 2_000)]
        assert [(key.key, key.start) for key, _ in windows.all()] == keys
        assert [(key.key, key.start) for key, _ in windows.all(reverse=True)] == keys[::-1]
        assert list(windows.fetch_keys("k03", "k04", 1_000, 1_000)) == [
            (Windowed("k03", 1_000, 2_000), 1),
            (Windowed("k04", 1_000, 2_000), 1),
        ]
        assert len(list(windows.fetch_all(1_500, 9_000))) == 30


class TestSessions:
    def test_of_a_key(self, state: CommittedState) -> None:
        sessions = view(state, "sessions")
        both = [(Windowed("k03", 1_003, 1_003), 1), (Windowed("k03", 2_003, 2_003), 1)]
        assert list(sessions.fetch("k03")) == both
        assert list(sessions.fetch("k03", reverse=True)) == both[::-1]
        assert list(sessions.find_sessions("k03", 1_004, 9_000)) == both[1:]
        assert (sessions.fetch_session("k03", 1_003, 1_003), sessions.fetch_session("k03", 1, 2)) == (1, None)

    def test_of_many_keys(self, state: CommittedState) -> None:
        sessions = view(state, "sessions")
        assert [key.key for key, _ in sessions.all()] == [f"k{number:02}" for number in range(30) for _ in range(2)]
        assert [key.start for key, _ in sessions.find_sessions_by_keys("k03", "k04", 2_000, 9_000)] == [2_003, 2_004]


class TestVersions:
    def test_now_and_then(self, state: CommittedState) -> None:
        versions = view(state, "versions")
        old, new = VersionedRecord("old w03", 1_003, 2_003), VersionedRecord("new w03", 2_003)
        assert (versions.get("k03"), versions.get("k03", as_of=1_500), versions.get("k03", as_of=1_000)) == (new, old, None)
        assert list(versions.history("k03", 0, 10_000)) == [old, new]
        assert list(versions.history("k03", 0, 10_000, reverse=True)) == [new, old]
        assert [key for key, _ in versions.all()] == [f"k{number:02}" for number in range(30)]


class TestQueries:
    def test_each_query_is_answered_from_one_epoch(self, state: CommittedState) -> None:
        answers = {
            KeyQuery("w03"): ("words", 2),
            RangeQuery("w03", "w04"): ("words", (("w03", 2), ("w04", 2))),
            RangeQuery("w03", "w04", reverse=True): ("words", (("w04", 2), ("w03", 2))),
            PrefixQuery("ol"): ("words", (("old", 30),)),
            WindowKeyQuery("k03", 0, 1_500): ("windows", ((1_000, 1),)),
            WindowRangeQuery(2_000, 2_000, "k03", "k03"): ("windows", ((Windowed("k03", 2_000, 3_000), 1),)),
            SessionQuery("k03", 2_000): ("sessions", ((Windowed("k03", 2_003, 2_003), 1),)),
            VersionedKeyQuery("k03"): ("versions", VersionedRecord("new w03", 2_003)),
            VersionedKeyQuery("k03", 1_500): ("versions", VersionedRecord("old w03", 1_003, 2_003)),
            MultiVersionedKeyQuery("k03", 0, 1_500): ("versions", (VersionedRecord("old w03", 1_003, 2_003),)),
        }
        for query, (store, expected) in answers.items():
            answer = ask(state, store, query)
            assert (answer.value, answer.epoch, answer.is_complete) == (expected, 1, True), query

    def test_a_limit_cuts_off_rows_and_says_so(self, state: CommittedState) -> None:
        answer = ask(state, "words", RangeQuery(limit=3))
        assert ([key for key, _ in answer.value], answer.is_complete) == (["new", "old", "w00"], False)
        assert ask(state, "words", RangeQuery(limit=32)).is_complete
        with pytest.raises(QueryError, match="Invalid limit 0: at least 1"):
            ask(state, "words", RangeQuery(limit=0))

    def test_a_query_that_does_not_fit_the_store_is_refused(self, state: CommittedState) -> None:
        with pytest.raises(QueryError, match="Store 'words' cannot answer a WindowKeyQuery"):
            ask(state, "words", WindowKeyQuery("k03"))
        with pytest.raises(QueryError, match="'str' is not a query type"):
            ask(state, "words", "w03")
        with pytest.raises(QueryError, match="'sessions'"):
            ask(state, "sessions", KeyQuery("k03"))


def test_records_with_a_windowed_key_are_routed_by_key_and_window() -> None:
    builder = StreamsBuilder()
    builder.table("in", key=TimeWindowed(str, 10), value=str, store="table")
    routed_by_all = program_of(builder.build()).shard_finder("table")
    key = TimeWindowed(str, 10).serialize(Windowed("a", 5, 15))
    assert routed_by_all(key) == shard_of(key, SHARDS)
