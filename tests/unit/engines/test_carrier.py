"""How requests are carried to slots: in parallel, with the rows and records that each gets."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from penstock.engines.carrier import Carrier, Errand
from penstock.engines.exchanging import Listen, Sending
from penstock.engines.port import LateError, SlotLostError, TaskFailedError
from penstock.engines.reading import Reading
from penstock.engines.requests import Load, RestoreLane, RowsRequest, RunStep
from penstock.epochs.in_process import by_lane, collected, divided
from penstock.epochs.program import Epoch, Program
from penstock.epochs.walk import Act, walk_of
from penstock.epochs.wire import OUT
from penstock.errors import ProcessingError
from tests.unit.engines.driving import INPUTS, PARTITIONS, ignore
from tests.unit.engines.programs import atomic, installed, re_keyed, stateless
from tests.unit.epochs.application import every_kind_of_store, program_of

EPOCH = Epoch(0, -1, 5_000, tuple(INPUTS.topics), (-1,) * PARTITIONS)
PATIENCE_S = 20.0
EMPTY = pa.py_buffer(b"")


class Slots:
    """Slots that note what they are asked, and answer with nothing or with an error."""

    def __init__(self, *answers: Exception | None) -> None:
        self.asked: list[tuple[int, Any, Sequence[pa.RecordBatch]]] = []
        self.deadlines: set[float] = set()
        self.patience_s = 0.0
        self._answers = answers
        self._lock = threading.Lock()

    def slot(self, position: int) -> Any:
        slots = self

        class Slot:
            host = f"host-{position}"

            def ask(
                self, request: Any, batches: Any = (), deadline: float = 0.0, on_progress: Any = None, patience_s: float = 0.0
            ) -> pa.Buffer:
                with slots._lock:
                    slots.patience_s = patience_s
                    slots.asked.append((position, request, batches))
                    slots.deadlines.add(deadline)
                error = slots._answers[position] if slots._answers else None
                if on_progress is not None:
                    on_progress("reading in-0 at offset 3", 7)
                if error is not None:
                    raise error
                if isinstance(request, Listen):
                    return pa.py_buffer(msgspec.msgpack.encode(f"inbox-{position}"))
                if isinstance(request, RestoreLane):
                    return pa.py_buffer(msgspec.msgpack.encode((request.lane, "behind", 5, "id", 0)))
                return EMPTY

        return Slot()


class Ended:
    """What slots do in the end: the rows stay where they are, and each slot is asked once more."""

    def sending(self, epoch: Epoch) -> Sending:
        return Sending(lambda program, rows: [rows] * program.lanes, OUT, 0)

    def finish(self, carry: Callable[[RowsRequest], pa.Table]) -> pa.Table:
        return carry(Load())

    def abandon(self) -> None:
        pass


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return installed(re_keyed(), tmp_path, 3)


def carrier_of(program: Program, slots: Slots) -> Carrier:
    none: Any = None
    return Carrier(program, slots.slot, PATIENCE_S, lambda slot: none)


def errands(count: int) -> list[Errand]:
    return [Errand(position, Load()) for position in range(count)]


def test_requests_run_at_the_same_time_and_share_their_patience(program: Program) -> None:
    slots, all_there = Slots(), threading.Barrier(3)
    original = slots.slot

    def slot(position: int) -> Any:
        all_there.wait(PATIENCE_S)
        return original(position)

    none: Any = None
    carrier = Carrier(program, slot, PATIENCE_S, lambda slot: none)
    assert carrier.run(errands(3)) == [[], [], []]
    assert len(slots.deadlines) == 1
    carrier.close()


def test_a_single_request_needs_no_thread(program: Program) -> None:
    before = threading.active_count()
    assert carrier_of(program, Slots()).run(errands(1)) == [[]]
    assert threading.active_count() == before


LOST, FAILED, LATE, REASON = SlotLostError("lost"), TaskFailedError("failed"), LateError("late"), ProcessingError("reason")


@pytest.mark.parametrize(
    ("answers", "raised"),
    [
        ((None, LOST, None), LOST),
        ((FAILED, LOST, None), FAILED),
        ((LOST, FAILED, None), LOST),
        ((LOST, None, REASON), REASON),  # to try again would not help
        ((LOST, FAILED, LATE), LATE),
    ],
)
def test_all_are_completed_before_the_error_that_matters_most_is_raised(
    program: Program, answers: tuple[Exception | None, ...], raised: Exception
) -> None:
    slots = Slots(*answers)
    with pytest.raises(type(raised), match=str(raised)):
        carrier_of(program, slots).run(errands(3))
    assert sorted(position for position, _, _ in slots.asked) == [0, 1, 2]


def test_restored_lanes_report_by_their_numbers(program: Program) -> None:
    none: Any = None
    seen: list[tuple[int, str, int | None]] = []
    requests = [RestoreLane(lane, none, none) for lane in range(3)]
    restored = carrier_of(program, Slots()).restore([1, 0, 1], requests, lambda *found: seen.append(found))
    assert [(lane.lane, lane.found, lane.rows) for lane in restored] == [(lane, "behind", 5) for lane in range(3)]
    places = [(0, "host-1"), (1, "host-0"), (2, "host-1")]
    reached = [(lane, f"reading in-0 at offset 3 on {host}", 7) for lane, host in places]
    assert sorted(seen, key=lambda found: found[0]) == [each for found in reached for each in (found, (found[0], "", None))]


@pytest.mark.parametrize(
    ("answers", "lanes"),
    [
        ((None, None, "died"), {2}),
        (("gone", "died", "gone"), {1}),  # the others were not restored at all: their stores are innocent
        (("died", None, "died"), {0, 2}),
        (("gone", None, None), set()),
    ],
)
def test_a_lost_restore_names_the_lanes_that_may_have_killed_a_slot(
    program: Program, answers: Sequence[str | None], lanes: set[int]
) -> None:
    none: Any = None
    requests = [RestoreLane(lane, none, none) for lane in range(3)]
    slots = Slots(*(None if answer is None else SlotLostError(answer, by_request=answer == "died") for answer in answers))
    with pytest.raises(SlotLostError) as error:
        carrier_of(program, slots).restore(range(3), requests, ignore)
    assert error.value.lanes == lanes


class TestSteps:
    def walked(self, program: Program, ranges: Any, entering: Sequence[int]) -> Iterator[tuple[RunStep, int, int]]:
        """Each request of an epoch, with the position of its slot and the number of its records."""
        slots = Slots()
        carrier_of(program, slots).take_steps(EPOCH, INPUTS.records(EPOCH, ranges), [5, 6, 5][: program.lanes], entering)
        for position, request, batches in sorted(slots.asked, key=lambda asked: (asked[1].step.stage, asked[1].task)):
            yield request, position, sum(batch.num_rows for batch in batches)

    def test_records_enter_at_as_many_slots_as_there_are(self, tmp_path: Path) -> None:
        program = installed(stateless(), tmp_path, 3)
        ranges = {("in", 0): (0, 9), ("in", 1): (0, 20), ("in", 2): (0, 30)}
        found = [(request.task, position, records) for request, position, records in self.walked(program, ranges, [7, 9])]
        assert found == [(0, 7, 30), (1, 9, 29)]  # partitions stay together, the largest come first

    def test_later_steps_run_where_lanes_are(self, program: Program) -> None:
        found = list(self.walked(program, {("in", 0): (0, 9)}, [7, 9]))
        assert [(request.step.stage, request.task, position) for request, position, _ in found] == [
            *((0, 0, 7), (0, 1, 9)),
            *((1, 0, 5), (1, 1, 6), (1, 2, 5)),
            *((2, 0, 5), (2, 1, 6), (2, 2, 5)),
        ]

    def test_records_go_to_the_lanes_of_their_keys_if_they_need_no_entry(self, tmp_path: Path) -> None:
        program = installed(every_kind_of_store(), tmp_path, 3)
        found = list(self.walked(program, {("in", 0): (0, 30)}, [7, 9]))
        first = [(request.step.act, position, records) for request, position, records in found if request.step.stage == 0]
        if walk_of(program)[0].act is Act.ENTER:
            pytest.fail("this topology was to need no entry")
        assert [position for _, position, _ in first] == [5, 6, 5]
        assert sum(records for _, _, records in first) == 30
        assert all(records for _, _, records in first)

    @pytest.mark.parametrize("reads", [False, True])
    def test_all_steps_share_one_patience_with_what_comes_before_and_after(self, program: Program, reads: bool) -> None:
        """An epoch of several steps that is too large is late before it counts as stuck, and runs again with fewer records."""
        slots, ranges = Slots(), {("in", 0): (0, 9)}
        carrier = Carrier(program, slots.slot, PATIENCE_S, lambda slot: Listen("host", b""))
        if reads:
            carrier.take_steps_in_slots(EPOCH, Reading(ranges, {"in": 0}, lambda: INPUTS), [5, 6, 5], [5, 6], Ended())
        else:
            carrier.take_steps(EPOCH, INPUTS.records(EPOCH, ranges), [5, 6, 5], [5, 6], Ended())
        carrier.close()
        assert len(slots.asked) > 2 * program.lanes
        assert {isinstance(request, Listen) for _, request, _ in slots.asked} == {reads, False}
        assert len(slots.deadlines) == 1


@pytest.mark.parametrize(("patience_s", "silent_s"), [(PATIENCE_S, 60.0), (240.0, 240.0)])
def test_a_slot_that_falls_silent_in_a_restore_is_lost_with_its_lane(
    program: Program, patience_s: float, silent_s: float
) -> None:
    none: Any = None
    slots = Slots(None, LATE, None)
    carrier = Carrier(program, slots.slot, patience_s, lambda slot: none)
    with pytest.raises(SlotLostError) as error:
        carrier.restore(range(3), [RestoreLane(lane, none, none) for lane in range(3)], ignore)
    carrier.close()
    assert error.value.lanes == {1}
    said = f"The restore of lane 1 on host-1 has not advanced for {silent_s:g} s, reading in-0 at offset 3. Check the disk"
    assert str(error.value).startswith(said)
    assert slots.patience_s == silent_s


def test_rows_of_a_part_keep_their_order() -> None:
    table = pa.table({"number": range(6)})
    parts = divided(table, [2, 0, 2, 0, 2, 0], 4)
    assert [part.column("number").to_pylist() for part in parts] == [[1, 3, 5], [], [0, 2, 4], []]
    batches = [part.to_batches() for part in parts]
    assert collected(batches, table.schema).column("number").to_pylist() == [1, 3, 5, 0, 2, 4]
    assert collected([], table.schema).num_rows == 0


def test_a_single_lane_gets_all_rows_as_they_are() -> None:
    table = pa.table({"shard": [3, 1, 2]})
    assert by_lane(program_of(atomic(), lanes=1), table) == [table]
