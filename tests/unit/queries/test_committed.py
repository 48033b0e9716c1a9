"""Queries read the last barrier, whatever the lanes and other threads do; and snapshots are not kept for too long."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from penstock.errors import LaneMovedError, NotReadyError, QueryTimeoutError, UnknownStoreError
from penstock.queries import CommittedState, KeyQuery, ask, view
from penstock.queries.committed import IDLE_S, SCAN_S
from penstock.queries.snapshots import Snapshot
from penstock.state import EngineKind, Snapshots, SpaceBatch, memory_engine
from tests.unit.epochs.application import Raw, program_of
from tests.unit.epochs.test_global_tables import topology as with_a_global_table
from tests.unit.queries.lanes import Lanes
from tests.unit.runtime.noting import counting


def words(count: int, times: int = 1) -> list[Raw]:
    return [Raw(b"k%d" % number, b"w%d" % number, 1_000) for number in range(count) for _ in range(times)]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class TestTheLastBarrier:
    def test_stores_are_empty_before_the_first_barrier(self, lanes: Lanes) -> None:
        state = lanes.state()
        assert view(state, "words").get("w1") is None
        assert list(view(state, "windows").all()) == []
        lanes.run(words(5))
        assert dict(view(state, "words").all()) == {}
        state.close()

    def test_the_first_query_does_not_see_an_uncommitted_epoch(self, lanes: Lanes) -> None:
        lanes.step(words(20))
        lanes.run(words(30))
        state = lanes.state()
        counts = view(state, "words")
        assert counts["w1"] == 1
        assert dict(counts.all()) == {f"w{number}": 1 for number in range(20)}
        assert "w29" not in counts
        assert counts.epoch == 0
        assert lanes.program.engine is EngineKind.ROCKSDB or counts.approximate_num_entries() == 20  # RocksDB guesses
        lanes.commit()
        state.after_commit(lanes.epoch)
        assert counts["w1"] == 2
        assert len(list(counts.all())) == 30
        state.close()

    def test_a_snapshot_of_a_commit_stays_while_the_next_epoch_is_written(self, lanes: Lanes) -> None:
        state = lanes.state()
        counts = view(state, "words")
        for epoch in range(4):
            lanes.step(words(10))
            state.after_commit(lanes.epoch)
            assert counts["w3"] == epoch + 1
            lanes.run(words(20))
            assert dict(counts.all()) == {f"w{number}": epoch + 1 for number in range(10)}
            assert ask(state, "words", KeyQuery("w3")).epoch == epoch
            lanes.run([])  # rolled back, and run again
        state.close()

    @pytest.mark.parametrize("in_flight", [1, 2, 3])
    def test_queries_read_the_last_barrier_while_lanes_are_epochs_ahead(self, lanes: Lanes, in_flight: int) -> None:
        lanes.step(words(10))
        for _ in range(in_flight):
            lanes.send(words(20))
        state = lanes.state()
        counts = view(state, "words")
        for epoch in range(in_flight + 1):
            expected = {f"w{number}": epoch + (number < 10) for number in range(20 if epoch else 10)}
            assert (dict(counts.all()), counts.epoch) == (expected, epoch)
            assert lanes.program.engine is EngineKind.ROCKSDB or counts.approximate_num_entries() == len(expected)
            assert (counts["w1"], counts.get("w19")) == (epoch + 1, epoch or None)
            if epoch < in_flight:
                lanes.commit()
                state.after_commit(lanes.epoch)
        state.close()

    def test_queries_do_not_notice_that_epochs_in_flight_are_taken_back(self, lanes: Lanes) -> None:
        lanes.step(words(10))
        for epochs in (2, 1, 2):
            for _ in range(epochs):
                lanes.send(words(20))
                state = lanes.state()
                assert set(view(state, "words").items()) == {(f"w{number}", 1) for number in range(10)}
                state.close()
            lanes.take_back()
        lanes.send(words(5))
        lanes.commit()
        state = lanes.state()
        counts = view(state, "words")
        assert (counts["w1"], counts["w6"], counts.get("w19")) == (2, 1, None)
        state.close()

    def test_a_commit_is_noticed_without_a_call_of_after_commit(self, lanes: Lanes) -> None:
        state = lanes.state()
        lanes.step(words(3))
        assert view(state, "words")["w1"] == 1
        lanes.step(words(3))
        assert view(state, "words")["w1"] == 2
        state.close()

    def test_stores_created_later_are_found(self, lanes: Lanes) -> None:
        lanes.step([])
        state = lanes.state()
        assert view(state, "words").get("w1") is None
        lanes.step(words(3))
        state.after_commit(lanes.epoch)
        assert view(state, "words")["w1"] == 1
        state.close()


class TestWaiting:
    def test_a_query_waits_for_a_later_epoch(self, on_lmdb: Lanes) -> None:
        state = on_lmdb.state()
        on_lmdb.step(words(1))

        def commit() -> None:
            on_lmdb.step(words(1))
            state.after_commit(on_lmdb.epoch)

        later = threading.Timer(0.2, commit)
        later.start()
        answer = ask(state, "words", KeyQuery("w0"), at_least_epoch=1, timeout_s=10)
        assert (answer.value, answer.epoch) == (2, 1)
        later.join()
        state.close()

    def test_waiting_for_an_epoch_times_out(self, on_lmdb: Lanes) -> None:
        state = on_lmdb.state()
        on_lmdb.step(words(1))
        with pytest.raises(NotReadyError, match="Epoch 7 is not committed yet; the last is 0"):
            ask(state, "words", KeyQuery("w0"), at_least_epoch=7, timeout_s=0)
        state.close()

    def test_waiting_ends_when_the_application_ends(self, on_lmdb: Lanes) -> None:
        state = on_lmdb.state()
        threading.Timer(0.2, state.close).start()
        with pytest.raises(NotReadyError, match="has ended"):
            ask(state, "words", KeyQuery("w0"), at_least_epoch=7, timeout_s=10)


class TestSnapshots:
    def test_nothing_is_opened_without_queries(self, on_lmdb: Lanes) -> None:
        state = on_lmdb.state()
        on_lmdb.step(words(3))
        state.after_commit(0)
        assert state._current is None
        assert all(isinstance(lane, Snapshots) and lane._engine is None for lane in state._lanes)

    def test_snapshots_are_closed_after_a_while_without_queries(self, on_lmdb: Lanes) -> None:
        clock = Clock()
        state = on_lmdb.state(clock=clock)
        on_lmdb.step(words(3))
        assert view(state, "words")["w1"] == 1
        held = state.current()
        clock.now += IDLE_S + 1
        on_lmdb.step(words(3))
        state.after_commit(1)
        assert held.is_closed
        assert not state.is_at_hand
        assert view(state, "words")["w1"] == 2
        assert state.is_at_hand
        state.close()

    def test_a_scan_keeps_its_snapshot_until_its_end_and_no_longer(self, lanes: Lanes) -> None:
        state = lanes.state()
        lanes.step(words(500))
        snapshot = state.current()
        rows = view(state, "words").all()
        first = next(rows)
        lanes.step(words(500))
        state.after_commit(1)
        assert view(state, "words")["w1"] == 2
        assert not snapshot.is_closed
        assert {count for _, count in [first, *rows]} == {1}
        assert snapshot.is_closed
        state.close()

    def test_an_abandoned_scan_releases_its_snapshot(self, on_lmdb: Lanes) -> None:
        state = on_lmdb.state()
        on_lmdb.step(words(500))
        snapshot = state.current()
        rows = view(state, "words").all()
        next(rows)
        on_lmdb.step(words(1))
        state.after_commit(1)
        assert not snapshot.is_closed
        del rows
        assert snapshot.is_closed
        state.close()

    def test_a_scan_that_is_too_slow_raises(self, on_lmdb: Lanes) -> None:
        clock = Clock()
        state = on_lmdb.state(clock=clock)
        on_lmdb.step(words(500))
        rows = view(state, "words").all()
        next(rows)
        for epoch in (1, 2):
            on_lmdb.step(words(1))
            state.after_commit(epoch)
            clock.now += SCAN_S + 1
            state.is_at_hand, state.current()
        with pytest.raises(QueryTimeoutError, match="too slow"):
            list(rows)
        state.close()

    def test_a_scan_that_loses_a_lane_asks_to_retry(self, on_lmdb: Lanes, monkeypatch: pytest.MonkeyPatch) -> None:
        state = on_lmdb.state()
        on_lmdb.step(words(500))
        rows = view(state, "words").all()
        next(rows)

        def lost(*_: object) -> list[object]:
            raise LaneMovedError("The lane server at a:1 does not answer.")

        monkeypatch.setattr(Snapshot, "chunk", lost)
        with pytest.raises(NotReadyError, match=r"its host is lost\. Retry"):
            list(rows)
        state.close()

    def test_a_scan_raises_when_the_application_ends(self, lanes: Lanes) -> None:
        state = lanes.state()
        lanes.step(words(500))
        rows = view(state, "words").all()
        next(rows)
        state.close()
        with pytest.raises(QueryTimeoutError):
            list(rows)
        with pytest.raises(NotReadyError, match="'app' has ended"):
            view(state, "words").get("w1")


def test_an_unknown_store_is_refused_with_the_known_ones(on_lmdb: Lanes) -> None:
    with pytest.raises(UnknownStoreError, match=r"'wrods'\. Known stores: brief, last, sessions, versions, windows, words"):
        view(on_lmdb.state(), "wrods")


@pytest.mark.slow  # threads race for a while
@pytest.mark.parametrize("in_flight", [0, 2])
def test_threads_that_query_during_commits_see_whole_epochs_only(lanes: Lanes, in_flight: int) -> None:
    """Every key is counted once per epoch, in all lanes: a result with two different counts would be of two epochs."""
    state = lanes.state()
    lanes.step(words(200))
    ended = threading.Event()
    wrong: list[object] = []
    asked = [0, 0]

    def scan() -> None:
        while not ended.is_set():
            before = lanes.epoch
            counts = {count for _, count in view(state, "words").all()}
            asked[0] += 1
            if len(counts) != 1 or not before + 1 <= counts.pop() <= lanes.epoch + 1:
                wrong.append(counts)

    def get() -> None:
        counts = view(state, "words")
        while not ended.is_set():
            before = lanes.epoch
            asked[1] += 1
            if not before + 1 <= counts["w77"] <= lanes.epoch + 1:
                wrong.append(before)

    threads = [threading.Thread(target=target) for target in (scan, get, get)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    for _ in range(in_flight):
        lanes.send(words(200))
    while lanes.epoch < 6 and time.monotonic() - began < 60:
        lanes.send(words(200))
        lanes.commit()
        state.after_commit(lanes.epoch)
    ended.set()
    for thread in threads:
        thread.join(20)
    assert not wrong
    assert min(asked) > 5
    assert lanes.epoch == 6
    assert_all_closed(state)


def assert_all_closed(state: CommittedState) -> None:
    state.after_commit(state.epoch)
    assert not state._old
    state.close()


def test_global_stores_can_be_read_on_their_own(tmp_path: Path) -> None:
    program = program_of(with_a_global_table(), directory=str(tmp_path))
    tables = memory_engine()
    tables.write([SpaceBatch("space", [b"a"], [b"1"])])
    state = CommittedState(program, lambda: -1, tables.snapshot)
    assert state.globals().get("space", b"a") == b"1"
    without = CommittedState(program_of(counting(), directory=str(tmp_path)), lambda: -1, tables.snapshot)
    assert without.globals().get("space", b"a") is None
    state.close()
    with pytest.raises(NotReadyError, match="has ended"):
        state.globals()
