"""An epoch passes a lane once per stage, and several may be in flight: steps are rolled back one by one or together."""

from __future__ import annotations

import pytest

from penstock.errors import StateError
from penstock.serdes import String
from penstock.state import LaneState, Mark, StoreKind, StoreSpec
from penstock.state.engines.engine import SpaceBatch
from tests.unit.state.homes import Home

LEFT = StoreSpec("left", StoreKind.KEY_VALUE, String(), String())
RIGHT = StoreSpec("right", StoreKind.KEY_VALUE, String(), String())


def two_epochs(home: Home) -> LaneState:
    """Epoch 0 with one stage, epoch 1 with two that touch the same store."""
    lane = home.lane()
    left, right = lane.store(LEFT), lane.store(RIGHT)
    left.put("a", "0")
    lane.commit(0)
    left.put("a", "1")
    lane.registers.register("clock", -1).value = 10
    lane.commit(1, stage=0)
    left.put("a", "2")
    right.put("b", "2")
    lane.registers.register("clock", -1).value = 20
    lane.commit(1, stage=2)
    return lane


def content(lane: LaneState) -> dict[str, str]:
    return {**dict(lane.store(LEFT).all()), **dict(lane.store(RIGHT).all())}


def test_a_retried_stage_rolls_back_only_its_own_step(home: Home) -> None:
    lane = two_epochs(home)
    lane.roll_back(stage=2)
    assert (lane.epoch, content(lane)) == (1, {"a": "1"})
    assert lane.registers.register("clock", -1).value == 10
    lane.verify()


def test_rolling_back_an_epoch_rolls_back_all_its_steps(home: Home) -> None:
    lane = two_epochs(home)
    lane.roll_back()
    assert (lane.epoch, content(lane)) == (0, {"a": "0"})
    assert lane.registers.register("clock", -1).value == -1
    lane.verify()


def test_a_stage_cannot_be_written_twice_or_out_of_order(home: Home) -> None:
    lane = two_epochs(home)
    for stage in (0, 1, 2):
        with pytest.raises(StateError, match="cannot follow"):
            lane.commit(1, stage=stage)


def test_readers_see_the_previous_epoch_during_all_steps(home: Home) -> None:
    view = two_epochs(home).read_committed(0)
    assert content(view) == {"a": "0"}


def test_the_next_epoch_discards_the_undo_data_of_the_last(home: Home) -> None:
    lane = two_epochs(home)
    lane.store(LEFT).put("a", "3")
    lane.commit(2)
    lane.roll_back()
    assert (lane.epoch, content(lane)) == (1, {"a": "2", "b": "2"})
    with pytest.raises(StateError, match="nothing is kept"):
        lane.roll_back()


class TestInFlight:
    def three_epochs(self, home: Home) -> LaneState:
        """Epoch 0 is committed; epochs 1, of two stages, and 2 are in flight."""
        lane = two_epochs(home)
        lane.store(LEFT).put("a", "3")
        lane.store(RIGHT).put("b", None)
        lane.commit(2, committed=0)
        return lane

    @pytest.mark.parametrize(
        ("epoch", "stage", "reached", "left"),
        [
            (2, 0, (1, 2), {"a": "2", "b": "2"}),
            (1, 2, (1, 0), {"a": "1"}),
            (1, 1, (1, 0), {"a": "1"}),
            (1, 0, (0, -1), {"a": "0"}),
            (3, 0, (2, 0), {"a": "3"}),
        ],
    )
    def test_all_is_taken_back_from_a_stage_of_an_epoch_on(
        self, home: Home, epoch: int, stage: int, reached: tuple[int, int], left: dict[str, str]
    ) -> None:
        lane = self.three_epochs(home)
        lane.roll_back(epoch, stage)
        assert (lane.reached, content(lane)) == (reached, left)
        lane.verify()
        lane = home.lane()
        assert (lane.reached, content(lane)) == (reached, left)

    def test_every_epoch_since_the_committed_one_can_be_read(self, home: Home) -> None:
        lane = self.three_epochs(home)
        assert lane.earliest == 0
        views = [content(lane.read_committed(epoch)) for epoch in (0, 1, 2)]
        assert views == [{"a": "0"}, {"a": "2", "b": "2"}, {"a": "3"}]

    @pytest.mark.parametrize(("committed", "earliest"), [(-1, 0), (0, 0), (1, 1), (2, 2)])
    def test_what_is_committed_can_no_longer_be_taken_back(self, home: Home, committed: int, earliest: int) -> None:
        lane = self.three_epochs(home)
        lane.commit(3, committed=committed)
        assert lane.earliest == earliest
        with pytest.raises(StateError, match=f"epoch {earliest} cannot be taken back"):
            lane.roll_back(earliest)
        assert lane.epoch == 3
        with pytest.raises(StateError, match="cannot be read as of epoch -1"):
            lane.read_committed(-1)
        lane.roll_back(earliest + 1)
        assert lane.epoch == earliest
        lane.verify()

    def test_without_a_committed_epoch_only_the_last_can_be_taken_back(self, home: Home) -> None:
        lane = self.three_epochs(home)
        lane.commit(3)
        assert lane.earliest == 2

    def test_nothing_in_flight_leaves_the_undo_data_of_one_epoch(self, home: Home) -> None:
        lane = self.three_epochs(home)
        lane.store(LEFT).put("a", "4")
        lane.commit(3, committed=2)
        assert [key for key, _ in lane._engine.scan("/lane", None, None)] == [b"head", b"undo/3/0/left"]

    def test_a_restore_leaves_nothing_to_take_back(self, home: Home) -> None:
        lane = self.three_epochs(home)
        lane.restore([], epoch=2)
        assert (lane.earliest, content(lane)) == (2, {"a": "3"})
        assert [key for key, _ in lane._engine.scan("/lane", None, None)] == [b"head"]


def test_mark_and_incarnation_stay_with_the_lane(home: Home) -> None:
    lane = home.lane()
    mark = Mark(7, 1_000, {"t/0": 42}, {"t": "id"})
    lane.restore([], epoch=7, incarnation="first", mark=mark)
    lane.commit(8, incarnation="second")
    assert (lane.head.mark, lane.head.incarnation, lane.epoch) == (mark, "second", 8)
    lane.roll_back()
    assert (lane.head.mark, lane.epoch) == (mark, 7)


@pytest.mark.parametrize(("key", "value"), [(b"a", b"x"), (b"a", None), (b"c", b"x")])
def test_damaged_content_is_detected(home: Home, key: bytes, value: bytes | None) -> None:
    lane = two_epochs(home)
    lane.verify()
    engine = lane._engine
    engine.write([SpaceBatch("left", [bytes(2) + key], [value])])
    with pytest.raises(StateError, match="damaged"):
        LaneState(engine).verify()


def test_a_damaged_head_is_detected(home: Home) -> None:
    lane = two_epochs(home)
    engine = lane._engine
    head = engine.get("/lane", b"head")
    assert head is not None
    for place in range(0, len(head), 7):
        flipped = bytes([*head[:place], head[place] ^ 4, *head[place + 1 :]])
        engine.write([SpaceBatch("/lane", [b"head"], [flipped])])
        with pytest.raises(StateError, match="damaged"):
            LaneState(engine)
