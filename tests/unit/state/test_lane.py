"""A lane's epochs: committed atomically, discarded, rolled back, read as of the previous epoch, restored."""

from __future__ import annotations

import zlib

import msgspec
import pytest

from penstock.errors import LaneMovedError, StateError
from penstock.state import LaneState, MemoryEngine, SpaceBatch, StoreChanges
from penstock.state.epochs import Head, encode_head
from tests.unit.state.homes import Home, key_value, logged, raw, timestamped


def test_a_new_lane_has_no_epoch_and_nothing_to_roll_back(home: Home) -> None:
    lane = home.lane()
    assert lane.epoch == -1
    with pytest.raises(StateError, match="cannot be taken back"):
        lane.roll_back()


def test_a_committed_epoch_is_visible_also_after_reopening(home: Home) -> None:
    lane = home.lane()
    store = lane.store(raw())
    store.put(b"k", b"1")
    assert logged(lane.commit(7)) == {"raw": {b"k": b"1"}}
    assert lane.epoch == 7
    lane = home.lane()
    assert lane.epoch == 7
    assert lane.store(raw()).get(b"k") == b"1"


def test_an_epoch_without_writes_still_counts(home: Home) -> None:
    lane = home.lane()
    lane.store(raw())
    assert list(lane.commit(3)) == []
    assert home.lane().epoch == 3


def test_epochs_only_go_forward(home: Home) -> None:
    lane = home.lane()
    lane.commit(1)
    with pytest.raises(StateError, match="cannot follow"):
        lane.commit(1)


def test_discard_drops_the_open_epoch(home: Home) -> None:
    lane = home.lane()
    store, table, count = lane.store(raw()), lane.store(timestamped(cached=True)), lane.registers.register("count", 0)
    store.put(b"k", b"1")
    table.put("k", {"n": 1}, 5)
    count.value = 1
    lane.commit(0)
    store.put(b"k", b"2")
    store.put(b"new", b"2")
    table.put("k", {"n": 2}, 6)
    count.value = 2
    lane.discard()
    assert (store.get(b"k"), store.get(b"new"), table.get("k"), count.value) == (b"1", None, {"n": 1}, 1)
    assert list(lane.commit(1)) == []


def test_a_rollback_restores_content_registers_and_epoch(home: Home) -> None:
    lane = home.lane()
    store, other, count = lane.store(raw()), lane.store(raw("other")), lane.registers.register("count", 10)
    store.put(b"kept", b"1")
    store.put(b"changed", b"1")
    store.put(b"deleted", b"1")
    lane.commit(0)
    store.put(b"changed", b"2")
    store.delete(b"deleted")
    store.put(b"new", b"2")
    other.put(b"k" * 700, b"2")
    count.value = 11
    lane.commit(5)
    lane = home.lane()
    store, other, count = lane.store(raw()), lane.store(raw("other")), lane.registers.register("count", 10)
    assert count.value == 11
    lane.roll_back()
    assert (lane.epoch, count.value) == (0, 10)
    assert list(store.scan()) == [(b"changed", b"1"), (b"deleted", b"1"), (b"kept", b"1")]
    assert list(other.scan()) == []
    with pytest.raises(StateError, match="cannot be taken back"):
        lane.roll_back()
    store.put(b"changed", b"3")
    lane.commit(5)
    lane.roll_back()
    assert store.get(b"changed") == b"1"


def test_with_nothing_in_flight_only_the_last_epoch_can_be_rolled_back(home: Home) -> None:
    lane = home.lane()
    store, other = lane.store(raw()), lane.store(raw("other"))
    store.put(b"k", b"1")
    lane.commit(0)
    other.put(b"k", b"2")
    lane.commit(1)
    lane.roll_back()
    assert (lane.epoch, store.get(b"k"), other.get(b"k")) == (0, b"1", None)
    with pytest.raises(StateError, match="cannot be taken back"):
        lane.roll_back()


def test_an_open_epoch_prevents_a_rollback(home: Home) -> None:
    lane = home.lane()
    lane.commit(0)
    lane.store(raw()).put(b"k", b"1")
    with pytest.raises(StateError, match="commit or discard"):
        lane.roll_back()


def test_unwritten_entries_of_a_cached_store_prevent_a_rollback(home: Home) -> None:
    lane = home.lane()
    table = lane.store(timestamped(cached=True))
    table.put("k", 1, 1)
    lane.commit(0)
    table.put("k", 2, 2)
    with pytest.raises(StateError, match="commit or discard"):
        lane.roll_back()
    lane.discard()
    lane.roll_back()
    assert (lane.epoch, table.get("k")) == (-1, None)


def test_the_previous_epoch_can_be_read_while_the_owner_is_ahead(home: Home) -> None:
    lane = home.lane()
    store, table, count = lane.store(raw()), lane.store(timestamped(cached=True)), lane.registers.register("count", 0)
    store.put(b"a", b"1")
    store.put(b"b", b"1")
    table.put("k", [1], 1)
    count.value = 1
    lane.commit(0)
    store.put(b"a", b"2")
    store.delete(b"b")
    store.put(b"c", b"2")
    table.put("k", [2], 2)
    count.value = 2
    lane.commit(1)
    before, now = lane.read_committed(0), lane.read_committed(1)
    assert (before.epoch, now.epoch) == (0, 1)
    assert list(before.store(raw()).scan()) == [(b"a", b"1"), (b"b", b"1")]
    assert list(before.store(raw()).scan(reverse=True)) == [(b"b", b"1"), (b"a", b"1")]
    assert list(now.store(raw()).scan()) == [(b"a", b"2"), (b"c", b"2")]
    assert before.store(timestamped(cached=True)).get("k") == [1]
    assert before.registers.register("count", 0).value == 1
    assert now.registers.register("count", 0).value == 2
    with pytest.raises(StateError, match="cannot be read as of epoch 7"):
        lane.read_committed(7)


def test_a_view_is_read_only(home: Home) -> None:
    lane = home.lane()
    lane.store(raw()).put(b"k", b"1")
    lane.commit(0)
    view = lane.read_committed(0)
    with pytest.raises(StateError, match="cannot be written"):
        view.store(raw()).put(b"k", b"2")
    with pytest.raises(StateError, match="cannot be written"):
        view.store(timestamped(cached=True)).put("k", 1, 1)
    with pytest.raises(StateError, match="cannot be committed"):
        view.commit(1)
    with pytest.raises(StateError, match="cannot be written"):
        view.space("raw").expire(b"k", b"1")
    with pytest.raises(StateError, match="cannot be rolled back"):
        view.roll_back()
    with pytest.raises(StateError, match="cannot be restored"):
        view.restore([StoreChanges("raw", [b"k"], [b"2"])])
    view.discard()
    assert view.store(raw()).get(b"k") == b"1"
    view.close()
    lane.store(raw()).put(b"k", b"2")
    lane.commit(1)
    assert (lane.epoch, lane.store(raw()).get(b"k")) == (1, b"2")


def test_only_real_changes_of_logged_stores_are_changelog_rows(home: Home) -> None:
    lane = home.lane()
    store, quiet = lane.store(raw()), lane.store(raw("quiet", logged=False))
    store.put(b"b", b"1")
    store.put(b"a", b"1")
    store.delete(b"never")
    quiet.put(b"k", b"1")
    assert list(lane.commit(0)) == [StoreChanges("raw", [b"a", b"b"], [b"1", b"1"])]
    store.delete(b"a")
    store.delete(b"never")
    assert list(lane.commit(1)) == [StoreChanges("raw", [b"a"], [None])]
    quiet.delete(b"k")
    store.delete(b"never")
    assert list(lane.commit(2)) == []


def test_restored_rows_can_be_applied_again(home: Home) -> None:
    lane = home.lane()
    store, offset = lane.store(raw()), lane.registers.register("offset", 0)
    store.put(b"stale", b"1")
    lane.commit(3)
    rows = [StoreChanges("raw", [b"a", b"stale"], [b"2", None])]
    for _ in range(2):
        offset.value = 17
        lane.restore(rows)
        assert (lane.epoch, list(store.scan())) == (3, [(b"a", b"2")])
    lane.restore([], epoch=9)
    lane = home.lane()
    assert (lane.epoch, lane.registers.register("offset", 0).value) == (9, 17)
    with pytest.raises(StateError, match="cannot be taken back"):
        lane.roll_back()
    with pytest.raises(StateError, match="not open"):
        lane.restore(rows)


def test_unused_registers_are_kept(home: Home) -> None:
    lane = home.lane()
    lane.registers.register("a", 0).value = 4
    lane.commit(0)
    lane = home.lane()
    lane.commit(1)
    lane = home.lane()
    assert lane.registers.register("a", 0).value == 4
    assert lane.registers.register("a", 0) is lane.registers.register("a", 9)


def test_a_raw_store_is_scanned_by_prefix_and_counted(home: Home) -> None:
    lane = home.lane()
    store = lane.store(raw())
    for key in (b"a", b"ab", b"b"):
        store.put(key, b"1")
    assert list(store.prefix_scan(b"a", reverse=True)) == [(b"ab", b"1"), (b"a", b"1")]
    assert store.approximate_num_entries() == 3


def test_a_store_used_as_a_queue_returns_its_first_entry_in_order(home: Home) -> None:
    lane = home.lane()
    store = lane.store(raw())
    for number in range(0, 400, 2):
        store.put(b"%04d" % number, b"old")
    lane.commit(0)
    taken = []
    for number in range(1, 400, 2):
        store.put(b"%04d" % number, b"new")
        for _ in range(2):
            key, _ = next(store.scan())
            taken.append(key)
            store.delete(key)
            assert store.get(key) is None
        if number == 199:
            store.put(b"0000", b"again")
            assert next(store.scan()) == (b"0000", b"again")
            assert next(store.scan(b"0000", b"0001")) == (b"0000", b"again")
            store.delete(b"0000")
    assert taken == [b"%04d" % number for number in range(400)]
    assert list(store.scan()) == []
    assert list(store.scan(reverse=True)) == []
    assert list(store.scan(None, b"0100")) == []
    lane.discard()
    assert len(list(store.scan())) == 200


def test_a_store_is_opened_once_and_as_one_kind(home: Home) -> None:
    lane = home.lane()
    assert lane.store(raw()) is lane.store(raw())
    with pytest.raises(StateError, match="already open"):
        lane.store(key_value("raw"))


def test_missing_undo_data_is_an_error() -> None:
    engine = MemoryEngine()
    lane = LaneState(engine)
    lane.store(raw()).put(b"k", b"1")
    lane.commit(0)
    engine._spaces["/lane"].pop(b"undo/0/0/raw")
    with pytest.raises(StateError, match="missing"):
        LaneState(engine).roll_back()


def test_a_lane_in_another_format_is_refused() -> None:
    engine = MemoryEngine()
    engine.write([SpaceBatch("/lane", [b"head"], [encode_head(Head(format=1))])])
    with pytest.raises(StateError, match="format 1"):
        LaneState(engine)


def test_a_lane_that_keeps_one_epoch_only_is_refused() -> None:
    engine = MemoryEngine()
    head = msgspec.msgpack.encode([3, {"raw": 7}, 2, [[0, {}, ["raw"]]], None, "one", 3])
    engine.write([SpaceBatch("/lane", [b"head"], [head + zlib.crc32(head).to_bytes(4, "big")])])
    with pytest.raises(StateError, match="another format"):
        LaneState(engine)


def test_closing_a_lane_closes_its_engine(home: Home) -> None:
    lane = home.lane()
    lane.commit(0)
    lane.close()
    assert LaneState(home.engine()).epoch == 0


class TestWriteIds:
    def test_every_write_has_its_own_and_a_roll_back_returns_to_the_one_before(self, home: Home) -> None:
        lane = home.lane()
        ids = []
        for epoch in range(3):
            lane.commit(epoch, 0, committed=-1)
            lane.commit(epoch, 1, committed=-1)
            ids.append(lane.head.write_id)
        assert len({*ids, ""}) == 4
        assert [lane.head.write_id_of(epoch) for epoch in (-1, 0, 1, 2, 3)] == ["", *ids, None]
        lane.roll_back(2)
        assert (lane.head.write_id, lane.head.write_id_of(2)) == (ids[1], None)
        lane = home.lane()
        assert [lane.head.write_id_of(epoch) for epoch in (0, 1)] == ids[:2]
        lane.commit(2, committed=1)
        assert (lane.head.write_id_of(0), lane.head.write_id_of(1)) == (None, ids[1])
        assert lane.head.write_id not in ids

    def test_a_restored_lane_has_the_id_of_the_write_whose_content_it_has(self, home: Home) -> None:
        lane = home.lane()
        lane.restore([], epoch=5, incarnation="a", attempt=2, write_id="known")
        assert (lane.head.write_id, lane.head.attempt, lane.head.incarnation) == ("known", 2, "a")
        lane.restore([], epoch=5, incarnation="a")
        assert lane.head.write_id not in ("known", "")

    def test_a_stamp_changes_nothing_but_the_attempt(self, home: Home) -> None:
        lane = home.lane()
        lane.commit(4, incarnation="a")
        written = lane.head.write_id
        lane.stamp(3)
        lane = home.lane()
        assert (lane.epoch, lane.head.write_id, lane.head.attempt, lane.head.incarnation) == (4, written, 3, "a")
        lane.roll_back()
        assert lane.epoch == -1


def test_a_lane_that_another_process_has_written_since_refuses_a_write() -> None:
    engine = MemoryEngine()
    first, late = LaneState(engine), LaneState(engine)
    late.store(raw()).put(b"k", b"late")
    first.store(raw()).put(b"k", b"first")
    first.commit(1)
    with pytest.raises(LaneMovedError, match="Another process has written"):
        late.commit(1)
    with pytest.raises(LaneMovedError):
        late.stamp(1)
    assert LaneState(engine).store(raw()).get(b"k") == b"first"
