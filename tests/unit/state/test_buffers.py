"""Buffers in time order: what is taken when, and that a new buffer on the same space continues."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.records import Headers, RecordMetadata
from penstock.serdes import String
from penstock.state import LaneState, OrderedSpace, StoreKind, StoreSpec, memory_engine
from penstock.state.buffers import NEVER, ChangeBuffer, RecordBuffer, UnjoinedBuffer, Waiting
from tests.unit.state.homes import of_stores

HEADERS: Headers = (("a", b"\x00"), ("a", None), ("ü", b""))
ORIGIN = RecordMetadata("topic", 3, 2**40)


@pytest.fixture
def lane() -> LaneState:
    return LaneState(memory_engine())


@pytest.fixture
def space(lane: LaneState) -> OrderedSpace:
    opened: OrderedSpace = lane.store(StoreSpec("buffer", StoreKind.RAW))
    return opened


def waiting(value: bytes) -> Waiting:
    return Waiting(value, HEADERS, ORIGIN)


def test_a_buffer_needs_serdes() -> None:
    with pytest.raises(StateError, match="'b' needs a serde"):
        _ = StoreSpec("b", StoreKind.RAW, String()).serdes
    assert StoreSpec("b", StoreKind.RAW, String(), String()).serdes == (String(), String())


class TestUnjoined:
    def test_order_is_time_then_right_before_left_then_key_then_arrival(self, space: OrderedSpace) -> None:
        buffer = UnjoinedBuffer(space)
        buffer.add(300, False, b"a", b"1")
        buffer.add(2, True, b"a", b"2")
        buffer.add(2, False, b"b", b"3")
        buffer.add(2, False, b"a", b"5")
        buffer.add(2, False, b"a", b"4")
        rows = [(row.timestamp, row.is_left, row.key, row.value) for row in buffer]
        assert rows == [
            (2, False, b"a", b"5"),
            (2, False, b"a", b"4"),
            (2, False, b"b", b"3"),
            (2, True, b"a", b"2"),
            (300, False, b"a", b"1"),
        ]

    def test_a_record_with_a_partner_is_removed_with_its_duplicates(self, space: OrderedSpace, lane: LaneState) -> None:
        buffer = UnjoinedBuffer(space)
        buffer.add(1, True, b"a", b"1")
        buffer.add(1, True, b"a", b"2")
        buffer.met(1, False, b"a")
        buffer.met(1, True, b"b")
        assert len(list(buffer)) == 2
        buffer.met(1, True, b"a")
        assert list(buffer) == []
        assert [len(changes.keys) for changes in lane.commit(1)] == []  # nothing is logged either


class TestRecordBuffer:
    def test_records_leave_by_time_key_and_arrival(self, space: OrderedSpace) -> None:
        buffer = RecordBuffer(space)
        for timestamp, key, value in ((3, b"b", b"1"), (3, b"a", b"2"), (3, b"a", b"3"), (1, b"c", b"4"), (4, b"a", b"5")):
            buffer.add(timestamp, key, waiting(value))
        assert buffer.earliest == 1
        assert list(buffer.take(3)) == [
            (1, b"c", waiting(b"4")),
            (3, b"a", waiting(b"2")),
            (3, b"a", waiting(b"3")),
            (3, b"b", waiting(b"1")),
        ]
        assert buffer.earliest == 4
        assert len(list(buffer.take(NEVER))) == 1
        assert buffer.earliest == NEVER

    def test_a_record_is_kept_until_the_next_one_is_requested(self, space: OrderedSpace) -> None:
        buffer = RecordBuffer(space)
        for value in (b"1", b"2"):
            buffer.add(0, b"a", waiting(value))
        for expected in (b"1", b"1"):
            assert next(buffer.take(0))[2].value == expected
        taken = buffer.take(0)
        next(taken)
        assert next(taken)[2].value == b"2"
        del taken
        assert [record.value for _, _, record in RecordBuffer(space).take(0)] == [b"2"]

    def test_records_taken_before_a_failed_one_are_not_taken_again(self, space: OrderedSpace) -> None:
        buffer = RecordBuffer(space)
        for value in (b"1", b"2", b"3"):
            buffer.add(0, b"a", waiting(value))

        def join(failing: bytes) -> list[bytes]:
            joined = []
            for _, _, record in buffer.take(0):
                if record.value == failing:
                    raise ValueError(failing)
                joined.append(record.value)
            return joined

        for failing in (b"2", b"2", b"3"):
            with pytest.raises(ValueError, match=failing.decode()):
                join(failing)
        assert buffer.earliest == 0
        assert join(b"") == [b"3"]
        assert list(space.scan()) == []

    def test_the_records_of_a_position_are_written_once(self, space: OrderedSpace) -> None:
        buffer, written, put = RecordBuffer(space), [], space.put
        for value in (b"1", b"2", b"3"):
            buffer.add(0, b"a", waiting(value))

        def counted(key: bytes, value: bytes | None) -> None:
            written.append(value)
            put(key, value)

        space.put = counted
        assert len(list(buffer.take(0))) == 3
        assert written == [None]


class TestChangeBuffer:
    def put(self, buffer: ChangeBuffer, time: int, key: bytes, new: bytes | None, old: bytes | None = None) -> None:
        buffer.put(time, key, new, old, time + 1, HEADERS, ORIGIN)

    def test_a_change_is_kept_with_timestamp_headers_and_origin(self, space: OrderedSpace) -> None:
        buffer = ChangeBuffer(space)
        assert buffer.get(b"a") is None
        self.put(buffer, 5, b"a", b"1", b"0")
        self.put(buffer, 9, b"a", b"2", b"1")
        held = buffer.get(b"a")
        assert held is not None
        assert (held.time, held.timestamp, held.new, held.old, held.prior) == (5, 10, b"2", b"1", b"0")
        assert (held.headers, held.origin) == (HEADERS, ORIGIN)

    def test_a_change_without_origin_counts_less(self, space: OrderedSpace) -> None:
        buffer = ChangeBuffer(space)
        buffer.put(5, b"a", b"1", None, 6, (), None)
        assert buffer.measured == (1, 8 + 1 + 1 + 20)

    def test_entries_by_key_do_not_mix_with_those_by_time(self, space: OrderedSpace) -> None:
        buffer = ChangeBuffer(space)
        for key in (b"", b"\xff\xff", b"t", b"k"):
            self.put(buffer, NEVER - 1, key, b"v")
        assert [key for key, _ in buffer.up_to(NEVER)] == [b"", b"k", b"t", b"\xff\xff"]
        assert buffer.measured[0] == 4

    def test_a_removed_change_leaves_no_entries(self, space: OrderedSpace) -> None:
        buffer = ChangeBuffer(space)
        for number, key in enumerate((b"a", b"b", b"c")):
            self.put(buffer, number, key, b"v")
        assert buffer.measured[0] == 3
        for key, held in buffer.up_to(1):
            buffer.remove(key, held)
        assert (buffer.earliest, buffer.measured) == (2, (1, 8 + 1 + 1 + 20 + 5 + 4))
        for key, held in buffer.up_to(NEVER):
            buffer.remove(key, held)
        assert (buffer.earliest, buffer.measured) == (NEVER, (0, 0))
        assert list(space.scan()) == []

    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["put", "put", "put", "expire", "rebind", "measure"]),
                st.integers(0, 20),
                st.sampled_from([b"a", b"b", b"ab"]),
                st.none() | st.binary(max_size=3),
                st.none() | st.binary(max_size=3),
            )
        )
    )
    def test_a_new_buffer_on_the_same_space_has_the_same_state(self, steps: Any) -> None:
        space: OrderedSpace = LaneState(memory_engine()).store(StoreSpec("buffer", StoreKind.RAW))
        buffer = ChangeBuffer(space)
        for step, time, key, new, old in steps:
            if step == "put":
                self.put(buffer, time, key, new, old)
            elif step == "expire":
                for expired, held in buffer.up_to(time):
                    buffer.remove(expired, held)
                assert buffer.earliest > time
            elif step == "rebind":
                buffer = ChangeBuffer(space)
            fresh = ChangeBuffer(space)
            assert buffer.earliest == fresh.earliest
            if step == "measure":
                sizes = [held.size(found) for found, held in fresh.up_to(NEVER)]
                assert buffer.measured == fresh.measured == (len(sizes), sum(sizes))

    def test_its_content_is_counted_once_per_lane(self, lane: LaneState, monkeypatch: pytest.MonkeyPatch) -> None:
        spec = StoreSpec("buffer", StoreKind.RAW)
        buffer = ChangeBuffer(lane.store(spec))
        self.put(buffer, 1, b"a", b"v")
        one = buffer.measured
        lane.commit(0)
        self.put(buffer, 2, b"b", b"v")
        self.put(buffer, 3, b"a", b"longer")
        two = buffer.measured
        assert two[0] == 2
        lane.commit(1)
        again = LaneState(lane._engine)
        monkeypatch.setattr(OrderedSpace, "prefix_scan", None)
        assert ChangeBuffer(again.store(spec)).measured == two
        for key, held in (buffer := ChangeBuffer(again.store(spec))).up_to(NEVER):
            buffer.remove(key, held)
        assert buffer.measured == (0, 0)
        again.discard()
        assert buffer.measured == two
        again.roll_back()
        assert buffer.measured == one

    def test_restored_rows_are_counted_again(self, lane: LaneState) -> None:
        spec = StoreSpec("buffer", StoreKind.RAW)
        self.put(ChangeBuffer(lane.store(spec)), 1, b"a", b"v")
        rows, engine = of_stores(lane.commit(0)), memory_engine()
        other = LaneState(engine)
        buffer = ChangeBuffer(other.store(spec))
        self.put(buffer, 2, b"b", b"v")
        count, size = buffer.measured
        assert count == 1
        other.commit(0)
        other = LaneState(engine)
        other.store(spec)
        other.restore(rows)
        assert ChangeBuffer(other.store(spec)).measured == (2, 2 * size)
