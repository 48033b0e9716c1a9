"""A store of timers: order, replacement, what is written, and a model that is rolled back and rebuilt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.errors import StateError
from penstock.records import Windowed
from penstock.serdes import String, TimeWindowed
from penstock.state import (
    LaneState,
    MemoryEngine,
    StoreChanges,
    StoreKind,
    StoreSpec,
    TimerEntry,
    TimerStore,
    record_key,
    timer_id,
)
from penstock.state.timers import AHEAD_MS, timer_key

SPEC = StoreSpec("p-timers", StoreKind.TIMERS, String())
EVENT, WALL = range(2)


def opened(state: LaneState) -> TimerStore:
    store: TimerStore = state.store(SPEC)
    return store


def a_store() -> TimerStore:
    return opened(LaneState(MemoryEngine()))


def taken(store: TimerStore, kind: int, until: int) -> list[tuple[int, bytes, str]]:
    found = []
    while (entry := store.take(kind, until)) is not None:
        found.append((entry.time, entry.key, entry.name))
    return found


def rows_by_time(state: LaneState) -> list[bytes]:
    return [position for position, _ in state.space("p-timers/due").scan()]


class TestOrder:
    def test_timers_are_ordered_by_time_then_key_then_name(self) -> None:
        store = a_store()
        for time, key, name in [(5, b"b", ""), (5, b"a", "y"), (5, b"a", "x"), (3, b"z", ""), (5, b"a\x00", ""), (9, b"a", "")]:
            store.register(timer_id(key, name), EVENT, time)
        expected = [(3, b"z", ""), (5, b"a", "x"), (5, b"a", "y"), (5, b"a\x00", ""), (5, b"b", "")]
        assert taken(store, EVENT, 8) == expected
        assert taken(store, EVENT, 9) == [(9, b"a", "")]

    @pytest.mark.parametrize("key", [b"", b"\x00", b"a\x00", b"\x00\xff", b"\xff\x00\x00a", b"\x00\x00"])
    def test_any_key_is_found_again(self, key: bytes) -> None:
        store = a_store()
        store.register(timer_id(key, "name"), EVENT, 1)
        assert list(store.of_key(key)) == [TimerEntry(1, key, "name", EVENT)]
        source_key: Any = String()
        assert timer_key(timer_id(key, "name")) == record_key(SPEC, source_key)(timer_id(key, "name")) == key
        assert taken(store, EVENT, 1) == [(1, key, "name")]

    def test_the_timer_of_a_windowed_key_belongs_to_the_aggregated_key(self) -> None:
        serde = TimeWindowed(String(), 10)
        timer = timer_id(serde.serialize(Windowed("a\x00b", 20, 30)), "name")
        plain: Any = String()
        assert record_key(StoreSpec("p-timers", StoreKind.TIMERS, serde), plain)(timer) == b"a\x00b"

    def test_the_timers_of_a_key_are_not_those_of_a_longer_one(self) -> None:
        store = a_store()
        for key in (b"a", b"ab", b"a\x00", b"a\x00\x00x"):
            store.register(timer_id(key, ""), EVENT, 1)
        assert [entry.key for entry in store.of_key(b"a")] == [b"a"]

    def test_each_clock_has_its_own(self) -> None:
        store = a_store()
        store.register(timer_id(b"a", "e"), EVENT, 1)
        store.register(timer_id(b"a", "w"), WALL, 2)
        assert (taken(store, EVENT, 9), taken(store, WALL, 9)) == ([(1, b"a", "e")], [(2, b"a", "w")])

    def test_a_timer_registered_while_others_are_taken_is_in_order(self) -> None:
        state = LaneState(MemoryEngine())
        store = opened(state)
        for time in range(0, 100, 10):
            store.register(timer_id(b"k%d" % time, ""), EVENT, time)
        state.commit(0)
        first = store.take(EVENT, 90)
        assert first is not None
        store.register(timer_id(b"k0", ""), EVENT, 15)
        store.register(timer_id(b"late", ""), EVENT, 5)
        assert [time for time, *_ in taken(store, EVENT, 30)] == [5, 10, 15, 20, 30]

    @pytest.mark.parametrize("is_committed", [False, True])
    def test_what_is_done_while_timers_are_due_takes_effect_at_once(self, is_committed: bool) -> None:
        state = LaneState(MemoryEngine())
        store = opened(state)
        for time in range(0, 60, 10):
            store.register(timer_id(b"k%d" % time, ""), EVENT, time)
        if is_committed:
            state.commit(0)
        found = []
        for entry in store.due(EVENT, 45):
            found.append((entry.time, entry.key))
            if entry.time == 0:
                store.register(timer_id(b"new", ""), EVENT, 5)
                store.register(timer_id(b"newer", ""), EVENT, 38)
                store.register(timer_id(b"k20", ""), EVENT, 35)
                store.register(timer_id(b"k10", ""), WALL, 10)
                store.delete(timer_id(b"k30", ""))
        assert found == [(0, b"k0"), (5, b"new"), (35, b"k20"), (38, b"newer"), (40, b"k40")]
        assert (taken(store, EVENT, 99), taken(store, WALL, 99)) == ([(50, b"k50", "")], [(10, b"k10", "")])


class TestReplacing:
    @pytest.mark.parametrize("is_committed", [False, True])
    @pytest.mark.parametrize(("kind", "time"), [(EVENT, 5), (EVENT, 10), (EVENT, 15), (WALL, 5), (WALL, 15)])
    def test_a_timer_fires_only_for_its_last_registration(self, kind: int, time: int, is_committed: bool) -> None:
        state = LaneState(MemoryEngine())
        store = opened(state)
        store.register(timer_id(b"a", ""), EVENT, 10)
        if is_committed:
            state.commit(0)
        store.register(timer_id(b"a", ""), kind, time)
        assert store.get(timer_id(b"a", "")) == TimerEntry(time, b"a", "", kind)
        assert (taken(store, kind, time - 1), taken(store, 1 - kind, 99)) == ([], [])
        assert taken(store, kind, 99) == [(time, b"a", "")]
        assert (taken(store, kind, 99), taken(store, 1 - kind, 99)) == ([], [])

    def test_postponing_a_timer_writes_nothing_by_time(self) -> None:
        state = LaneState(MemoryEngine())
        store = opened(state)
        store.register(timer_id(b"a", ""), WALL, 100_000)
        state.commit(0)
        for epoch in range(1, 4):
            store.first(WALL, 10)
            store.register(timer_id(b"a", ""), WALL, 100_000 + epoch)
            store.before_commit()
            assert not state.space("p-timers/due").dirty
            [change] = state.commit(epoch)
            assert change.values == [b"\x01" + (100_000 + epoch).to_bytes(8, "big")]

    def test_a_postponed_timer_that_is_near_is_moved_at_commit(self) -> None:
        state = LaneState(MemoryEngine())
        store = opened(state)
        store.register(timer_id(b"a", ""), WALL, 5_000)
        state.commit(0)
        store.first(WALL, 5_000 - AHEAD_MS)
        store.register(timer_id(b"a", ""), WALL, 90_000)
        state.commit(1)
        assert store.earliest(WALL) == 90_000
        assert len(rows_by_time(state)) == 1

    def test_a_deleted_timer_leaves_nothing(self) -> None:
        state = LaneState(MemoryEngine())
        store = opened(state)
        store.register(timer_id(b"a", ""), EVENT, 10)
        state.commit(0)
        store.register(timer_id(b"a", ""), EVENT, 20)
        assert (store.delete(timer_id(b"a", "")), store.delete(timer_id(b"a", ""))) == (True, False)
        assert (store.get(timer_id(b"a", "")), list(store.of_key(b"a")), taken(store, EVENT, 99)) == (None, [], [])
        state.commit(1)
        assert rows_by_time(state) == []


class TestMany:
    def test_the_earliest_of_many_is_found_without_reading_the_others(self) -> None:
        engine = Counting()
        state = LaneState(engine)
        store = opened(state)
        for number in range(20_000):
            store.register(timer_id(b"%d" % number, ""), WALL, 1_000 + number)
        state.commit(0)
        engine.read = 0
        again = opened(LaneState(engine))
        assert (again.earliest(WALL), again.first(WALL, 999), again.earliest(EVENT)) == (1_000, None, None)
        assert engine.read < 50

    def test_many_are_taken_in_order_and_each_once(self) -> None:
        state = LaneState(MemoryEngine())
        store = opened(state)
        times = [(number * 7_919) % 10_007 for number in range(10_000)]
        for number, time in enumerate(times):
            store.register(timer_id(b"%d" % number, ""), WALL, time)
        state.commit(0)
        found = taken(store, WALL, 20_000)
        assert [time for time, *_ in found] == sorted(times)
        assert len({key for _, key, _ in found}) == 10_000
        state.commit(1)
        assert (store.approximate_num_entries(), rows_by_time(state)) == (0, [])


class Counting(MemoryEngine):
    """Counts the entries read."""

    read = 0

    def get(self, space: str, key: bytes) -> bytes | None:
        self.read += 1
        return super().get(space, key)

    def scan(self, *arguments: Any, **named: Any) -> Any:
        for entry in super().scan(*arguments, **named):
            self.read += 1
            yield entry


def test_timers_need_a_serde_for_their_keys() -> None:
    with pytest.raises(StateError, match="keys of its timers"):
        StoreSpec("x", StoreKind.TIMERS)


KEYS = st.sampled_from([b"a", b"b", b"a\x00", b""])
NAMES = st.sampled_from(["", "x", "y"])
KINDS = st.sampled_from([EVENT, WALL])
TIMES = st.integers(0, 4_000)


class Model(RuleBasedStateMachine):
    """Timers in a lane that is committed, discarded, rolled back and rebuilt, compared with a dictionary."""

    @initialize()
    def begin(self) -> None:
        self.engine = MemoryEngine()
        self.state = LaneState(self.engine)
        self.store = opened(self.state)
        self.model: dict[tuple[bytes, str], tuple[int, int]] = {}
        self.committed = [dict(self.model)]
        self.epoch = 0
        self.logs: list[list[tuple[bytes, bytes | None]]] = [[]]
        self.commit()

    @rule(key=KEYS, name=NAMES, kind=KINDS, time=TIMES)
    def register(self, key: bytes, name: str, kind: int, time: int) -> None:
        self.store.register(timer_id(key, name), kind, time)
        self.model[key, name] = (kind, time)

    @rule(key=KEYS, name=NAMES)
    def delete(self, key: bytes, name: str) -> None:
        assert self.store.delete(timer_id(key, name)) == ((key, name) in self.model)
        self.model.pop((key, name), None)

    @rule(kind=KINDS, until=TIMES, most=st.integers(1, 5))
    def fire(self, kind: int, until: int, most: int) -> None:
        for _ in range(most):
            due = sorted((time, key, name) for (key, name), (own, time) in self.model.items() if own == kind and time <= until)
            assert self.store.first(kind, until) == (due[0][0] if due else None)
            entry = self.store.take(kind, until)
            if not due:
                assert entry is None
                return
            assert entry == (*due[0], kind)
            del self.model[due[0][1:]]

    @rule()
    def commit(self) -> None:
        changes = self.state.commit(self.epoch)
        self.epoch += 1
        self.committed = [self.committed[-1], dict(self.model)]
        rows = [pair for change in changes for pair in zip(change.keys, change.values, strict=True)]
        self.logs = [self.logs[-1], self.logs[-1] + rows]

    @rule()
    def forget(self) -> None:
        self.state.discard()
        self.model = dict(self.committed[-1])

    @rule(is_reopened=st.booleans())
    def take_back(self, is_reopened: bool) -> None:
        self.state.discard()
        if is_reopened:
            self.state = LaneState(self.engine)
            self.store = opened(self.state)
        if self.state.earliest < self.state.epoch and len(self.committed) == 2:
            self.state.roll_back()
            self.committed.pop()
            self.logs.pop()
        self.model = dict(self.committed[-1])

    @rule(chunk=st.integers(1, 5), twice=st.booleans())
    def rebuild(self, chunk: int, twice: bool) -> None:
        self.engine = MemoryEngine()
        self.state = LaneState(self.engine)
        self.store = opened(self.state)
        rows = self.logs[-1] * (2 if twice else 1)
        for start in range(0, len(rows), chunk):
            part = rows[start : start + chunk]
            self.state.restore([StoreChanges("p-timers", [key for key, _ in part], [value for _, value in part])])
        self.state.restore([], self.epoch)
        self.epoch += 1
        self.committed = [self.committed[-1]]
        self.logs = [self.logs[-1]]
        self.model = dict(self.committed[-1])

    @invariant()
    def timers_are_those_of_the_model(self) -> None:
        if hasattr(self, "model"):
            found = {(entry.key, entry.name): (entry.kind, entry.time) for _, entry in self.store.all()}
            assert found == self.model
            for kind in (EVENT, WALL):
                earliest = self.store.earliest(kind)
                times = [time for own, time in self.model.values() if own == kind]
                assert (earliest is None) == (not times)
                assert earliest is None or earliest <= min(times)
            assert len(rows_by_time(self.state)) == len(self.model)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
