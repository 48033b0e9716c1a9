"""Shards that share a lane: none sees another's entries, and all are committed and rolled back together."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.state import (
    EPOCH,
    REGISTERS,
    EngineKind,
    LaneState,
    MemoryEngine,
    SpaceBatch,
    StoreChanges,
    StoreSpec,
    last_registers,
    memory_engine,
)
from tests.unit.state.homes import Home, logged_registers, of_stores, raw, session, timestamped, window
from tests.unit.state.test_changelog import SPECS, Update, content, put, updates

LAST = 2**16 - 1


def two_shards(home: Home) -> LaneState:
    """Two epochs of shards 2 and 3, which have the same keys."""
    lane = home.lane()
    for number in (2, 3):
        shard = lane.shard(number)
        shard.store(raw()).put(b"k", b"%d" % number)
        shard.registers.register("clock", -1).value = number
    lane.commit(0)
    lane.shard(2).store(raw()).put(b"k", b"new")
    lane.shard(2).registers.register("clock", -1).value = 20
    lane.shard(3).store(raw()).put(b"other", b"new")
    lane.shard(3).registers.register("clock", -1).value = 30
    lane.commit(1)
    return lane


def seen(lane: LaneState) -> dict[int, tuple[dict[bytes, bytes], int]]:
    """Entries and clock of each shard."""
    shards = [lane.shard(number) for number in (1, 2, 3, 4)]
    return {shard.number: (dict(shard.store(raw()).scan()), shard.registers.register("clock", -1).value) for shard in shards}


NOTHING: tuple[dict[bytes, bytes], int] = ({}, -1)
BEFORE = {1: NOTHING, 2: ({b"k": b"2"}, 2), 3: ({b"k": b"3"}, 3), 4: NOTHING}
AFTER = {1: NOTHING, 2: ({b"k": b"new"}, 20), 3: ({b"k": b"3", b"other": b"new"}, 30), 4: NOTHING}


class TestOneLane:
    def test_a_number_always_returns_the_same_shard(self, home: Home) -> None:
        lane = home.lane()
        assert lane.shard(5) is lane.shard(5)
        assert lane.store(raw()) is lane.shard(0).store(raw())
        assert lane.registers is lane.shard(0).registers
        assert lane.space("raw") is lane.shard(0).space("raw")

    def test_each_shard_has_its_own_entries_and_registers(self, home: Home) -> None:
        lane = two_shards(home)
        assert seen(lane) == AFTER
        assert seen(home.lane()) == AFTER
        lane = home.lane()
        lane.verify()

    def test_all_are_rolled_back_together(self, home: Home) -> None:
        lane = two_shards(home)
        lane.roll_back()
        assert (lane.epoch, seen(lane)) == (0, BEFORE)
        lane = home.lane()
        assert (lane.epoch, seen(lane)) == (0, BEFORE)
        lane.verify()

    def test_unopened_shards_are_rolled_back_too(self, home: Home) -> None:
        two_shards(home)
        lane = home.lane()
        lane.roll_back()
        assert seen(lane) == BEFORE

    def test_all_are_read_as_of_one_epoch(self, home: Home) -> None:
        lane = two_shards(home)
        assert seen(lane.read_committed(0)) == BEFORE
        assert seen(lane.read_committed(1)) == AFTER

    def test_all_discard_the_open_epoch(self, home: Home) -> None:
        lane = two_shards(home)
        for number in (2, 3):
            lane.shard(number).store(raw()).put(b"x", b"x")
            lane.shard(number).registers.register("clock", -1).value = 99
        assert lane.is_written
        lane.discard()
        assert not lane.is_written
        assert seen(lane) == AFTER

    def test_changed_registers_are_written(self, home: Home) -> None:
        lane = two_shards(home)
        assert not lane.is_written
        lane.shard(3).registers.register("clock", -1).value = 31
        assert lane.is_written

    def test_all_are_copied(self, home: Home) -> None:
        lane, engine = two_shards(home), memory_engine()
        lane.copy(engine)
        copied = LaneState(engine)
        assert (copied.epoch, seen(copied)) == (1, AFTER)
        copied.verify()

    def test_the_last_shard_ends_with_the_engine(self, home: Home) -> None:
        lane = home.lane()
        before, last = lane.shard(LAST - 1).store(raw()), lane.shard(LAST).store(raw())
        before.put(b"\xff" * 8, b"before")
        last.put(b"\xff" * 8, b"last")
        lane.commit(0)
        assert list(before.scan()) == [(b"\xff" * 8, b"before")]
        assert list(last.scan()) == [(b"\xff" * 8, b"last")]
        assert list(last.scan(reverse=True)) == [(b"\xff" * 8, b"last")]

    def test_sizes_of_a_lane_cover_all_shards_and_those_of_a_store_its_own(self, home: Home) -> None:
        lane = two_shards(home)
        entries, size = lane.sizes()["raw"]
        if home.kind is not EngineKind.ROCKSDB:  # which only estimates
            assert (entries, lane.count("raw"), size > 0) == (3, 3, True)
            assert lane.read_committed(0).count("raw") == 2
        assert [lane.shard(number).store(raw()).approximate_num_entries() for number in (2, 3, 4)] == [1, 2, 0]

    @pytest.mark.parametrize("time_ordered", [False, True])
    def test_expiry_in_one_shard_does_not_affect_another(self, home: Home, time_ordered: bool) -> None:
        lane = home.lane()
        spec = window(time_ordered=time_ordered, retention_ms=1_000, segment_interval_ms=500)
        ahead, behind = lane.shard(0).store(spec), lane.shard(1).store(spec)
        for store in (ahead, behind):
            store.put("k", "v", 10)
        lane.commit(0)
        ahead.put("k", "v", 1_000_000)
        lane.commit(1)
        assert ahead.fetch("k", 10) is None
        assert behind.fetch("k", 10) == "v"
        assert behind.put("k", "w", 20)


class TestChangelog:
    def test_rows_name_their_shard(self) -> None:
        lane = LaneState(memory_engine())
        for number in (7, 2):
            lane.shard(number).store(raw()).put(b"k", b"%d" % number)
        assert list(lane.commit(0)) == [StoreChanges("raw", [b"k"], [b"2"], 2), StoreChanges("raw", [b"k"], [b"7"], 7)]

    def test_each_shard_with_a_changed_register_logs_one_row_of_registers(self) -> None:
        lane = LaneState(memory_engine())
        clocks = {number: lane.shard(number).registers.register("clock", -1) for number in (0, 1, 2)}
        clocks[0].value = clocks[1].value = 5
        first = lane.commit(0)
        assert {change.store for change in first} == {REGISTERS}
        assert logged_registers(first) == {shard: {EPOCH: 0, "clock": clock.value} for shard, clock in clocks.items()}
        clocks[1].value = 6
        assert logged_registers(lane.commit(1)) == {1: {EPOCH: 1, "clock": 6}}
        assert list(lane.commit(2)) == []

    def test_a_row_of_registers_includes_unused_ones(self) -> None:
        engine = memory_engine()
        lane = LaneState(engine)
        lane.shard(1).registers.register("old", 0).value = 4
        lane.commit(0)
        lane = LaneState(engine)
        lane.shard(1).registers.register("new", 0).value = 5
        assert logged_registers(lane.commit(1)) == {1: {EPOCH: 1, "old": 4, "new": 5}}

    def test_registers_that_are_rolled_back_are_logged_again(self) -> None:
        lane = LaneState(memory_engine())
        clock = lane.shard(1).registers.register("clock", -1)
        clock.value = 5
        lane.commit(0)
        clock.value = 6
        lane.commit(1)
        lane.roll_back()
        assert clock.value == 5
        clock.value = 6
        assert logged_registers(lane.commit(1)) == {1: {EPOCH: 1, "clock": 6}}

    def test_rows_are_restored_into_their_shard(self, home: Home) -> None:
        lane = home.lane()
        for number in (2, 3):
            lane.shard(number).store(raw())
        lane.restore([StoreChanges("raw", [b"k"], [b"2"], 2), StoreChanges("raw", [b"k", b"l"], [b"3", b"3"], 3)], 4)
        lane.shard(3).restore_registers({"clock": 7})
        lane.restore([], 5)
        lane = home.lane()
        assert (lane.epoch, seen(lane)) == (5, {**BEFORE, 2: ({b"k": b"2"}, -1), 3: ({b"k": b"3", b"l": b"3"}, 7)})

    def test_a_store_must_be_open_in_the_shard_of_the_rows(self) -> None:
        lane = LaneState(memory_engine())
        lane.shard(2).store(raw())
        with pytest.raises(StateError, match="'raw', which is not open"):
            lane.restore([StoreChanges("raw", [b"k"], [b"2"], 3)])

    def test_the_last_row_of_registers_counts(self) -> None:
        lane = LaneState(memory_engine())
        clock, rows = lane.registers.register("clock", -1), list[StoreChanges]()
        for epoch in range(3):
            clock.value = epoch
            rows += lane.commit(epoch)
        keys = [key for change in rows for key in change.keys]
        values = [value for change in rows for value in change.values]
        assert last_registers(keys, values) == {EPOCH: 2, "clock": 2}
        assert last_registers(keys[:1], values[:1]) == {EPOCH: 0, "clock": 0}
        assert last_registers([b"facts", *keys], [b"something else", None, *values[1:2], None]) == {EPOCH: 1, "clock": 1}
        assert last_registers([b"facts"], [b"something else"]) is None

    @pytest.mark.parametrize("name", SPECS)
    @settings(max_examples=15, deadline=None)
    @given(
        epochs=st.lists(st.lists(st.tuples(st.sampled_from([0, 1, 9]), updates), max_size=8), min_size=1, max_size=5),
        chunk=st.integers(1, 4),
    )
    def test_a_shard_rebuilt_with_its_registers_is_equal(
        self, name: str, epochs: list[list[tuple[int, Update]]], chunk: int
    ) -> None:
        spec = SPECS[name]
        lane = LaneState(MemoryEngine())
        rows = list[StoreChanges]()
        for epoch, of_epoch in enumerate(epochs):
            for number, (key, value, time) in of_epoch:
                put(lane.shard(number).store(spec), spec, key, value, time)
            rows += lane.commit(epoch)
        rebuilt = LaneState(MemoryEngine())
        for number in (0, 1, 9):
            rebuilt.shard(number).store(spec)
        for change in of_stores(rows):
            for start in range(0, len(change.keys), chunk):
                part = slice(start, start + chunk)
                rebuilt.restore([change._replace(keys=change.keys[part], values=change.values[part])])
        for number, registers in logged_registers(rows).items():
            rebuilt.shard(number).restore_registers(registers)
        rebuilt.restore([], len(epochs) - 1)
        for number in (0, 1, 9):
            was, shard = lane.shard(number), rebuilt.shard(number)
            assert content(shard.store(spec), spec) == content(was.store(spec), spec)
            if was.registers.saved:
                assert shard.registers.saved == was.registers.saved


class TestDamage:
    @pytest.mark.parametrize("value", [b"x", b"\x81\xa5clock\xa1x", None])
    def test_damaged_registers_are_detected(self, home: Home, value: bytes | None) -> None:
        engine = two_shards(home)._engine
        [key, *_] = [key for key, _ in engine.scan(REGISTERS, None, None)]
        engine.write([SpaceBatch(REGISTERS, [key], [value])])
        with pytest.raises(StateError, match="damaged"):
            LaneState(engine).verify()

    @pytest.mark.parametrize("value", [b"x", b"\x81\xa5clock\xa1x"])
    def test_unreadable_registers_are_an_error(self, home: Home, value: bytes) -> None:
        engine = two_shards(home)._engine
        engine.write([SpaceBatch(REGISTERS, [b"\x00\x02registers"], [value])])
        with pytest.raises(StateError, match="registers of a shard are written in another format, or damaged"):
            LaneState(engine).shard(2)
        with pytest.raises(StateError, match="registers of a shard are written in another format, or damaged"):
            last_registers([b"registers"], [value])


@pytest.mark.parametrize("spec", [raw(), timestamped(cached=True), window(), session()], ids=lambda spec: spec.kind.value)
def test_a_view_of_a_shard_is_read_only(spec: StoreSpec) -> None:
    lane = LaneState(memory_engine())
    written: Any = lane.shard(3).store(spec)
    put(written, spec, "k", "v", 1)
    lane.commit(0)
    store = lane.read_committed(0).shard(3).store(spec)
    with pytest.raises(StateError, match="cannot be written"):
        put(store, spec, "k", "v", 2)
