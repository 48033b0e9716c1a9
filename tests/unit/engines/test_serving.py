"""The loop of a slot, here in a thread: it answers requests until the driver has gone, whatever they are."""

from __future__ import annotations

import errno
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pyarrow as pa
import pytest

from penstock.advance import advanced
from penstock.engines import serving
from penstock.engines.forked.forking import socket_pair
from penstock.engines.messages import unpacked
from penstock.engines.port import LateError, SlotLostError, TaskFailedError
from penstock.engines.requests import Load, RestoreLane
from penstock.engines.serving import STATE_DIR, Totals, added, loaded, serve
from penstock.engines.slots import Slot
from penstock.engines.watching import Watch
from penstock.epochs.program import Program
from penstock.errors import StateError
from tests.unit.engines.programs import nothing, stateless
from tests.unit.epochs.application import program_of

ROWS = pa.RecordBatch.from_pydict({"number": pa.array(range(10), pa.int64())})
PREPARED: list[str] = []
ENTERED, GO_ON = threading.Event(), threading.Event()
PATIENCE_S = 20.0


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(serving, "_programs", {})
    PREPARED.clear()
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@dataclass(frozen=True)
class Echo:
    """Returns every other row that it gets, or raises an error."""

    error: BaseException | None = None
    reads_topics: ClassVar[bool] = True

    def run(self, program: Program, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.error is not None:
            raise self.error
        for batch in batches:
            yield batch.take(pa.array(range(0, batch.num_rows, 2)))


class SlowRestore(RestoreLane):
    """A restore that reports twice."""

    def restore(self, program: Program, report: Callable[[int], None]) -> bytes:
        report(7)
        report(0)
        return b"restored"


class LongRestore(RestoreLane):
    """It copies a large store, for example."""

    def restore(self, program: Program, report: Callable[[int], None]) -> bytes:
        for number in range(20):
            advanced(f"copying page {number}")
            time.sleep(0.05)
        return b"restored"


class StuckRestore(RestoreLane):
    """A restore from a disk that does not answer any more. The process is alive all the same."""

    def restore(self, program: Program, report: Callable[[int], None]) -> bytes:
        advanced("reading in-0 at offset 3")
        GO_ON.wait(PATIENCE_S)
        return b"restored"


class BrokenRestore(RestoreLane):
    """A restore whose source hangs up."""

    def restore(self, program: Program, report: Callable[[int], None]) -> bytes:
        report(7)
        raise ConnectionResetError("the source hung up")


class EagerRestore(RestoreLane):
    """A restore that reports when the driver has gone, and would go on without it."""

    def restore(self, program: Program, report: Callable[[int], None]) -> bytes:
        ENTERED.set()
        GO_ON.wait(PATIENCE_S)
        for _ in range(10):
            with suppress(OSError):
                report(7)
        return b"restored"


def note() -> None:
    PREPARED.append("once")


def fail_once() -> None:
    PREPARED.append("tried")
    if len(PREPARED) == 1:
        raise RuntimeError("not yet")


def program(**changes: Any) -> Program:
    return replace(program_of(stateless()), **changes)


def packed(program: Program, prepare: Callable[[], None] = nothing) -> bytes:
    return bytes(cloudpickle.dumps((program, prepare)))


@contextmanager
def served(prepare: Callable[[], None] = nothing) -> Iterator[tuple[Slot, list[Totals]]]:
    """A slot in a thread, and what it has done in the end."""
    driver, own = socket_pair()
    done: list[Totals] = []

    def run() -> None:
        with own:
            done.append(serve(own, packed(program(), prepare)))

    thread = threading.Thread(target=run)
    thread.start()
    slot = Slot(driver, "here", 0, Watch(), is_here=False)
    try:
        yield slot, done
    finally:
        slot.close()
        thread.join(PATIENCE_S)


def test_requests_are_answered_one_by_one_and_counted() -> None:
    with served() as (slot, done):
        for _ in range(2):
            assert unpacked(slot.ask(Echo(), [ROWS, ROWS])) == [ROWS.take(pa.array(range(0, 10, 2)))] * 2
        assert unpacked(slot.ask(Load())) == []
        assert done == []
    [totals] = done
    assert (totals.requests, totals.records, totals.rows, totals.bytes) == (3, 40, 20, 160)
    assert totals.memory > 1 << 20


def test_rows_that_come_from_no_topic_are_not_counted_as_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Echo, "reads_topics", False)
    with served() as (slot, done):
        slot.ask(Echo(), [ROWS])
    assert (done[0].records, done[0].rows) == (0, 5)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (StateError("not at the epoch"), StateError),
        (ValueError("a bug"), TaskFailedError),
        (SystemExit("enough"), TaskFailedError),
        (MemoryError("all of it"), TaskFailedError),
        (ConnectionResetError("my database hung up"), TaskFailedError),
        (BrokenPipeError("so did my cache"), TaskFailedError),
        (EOFError("and my file"), TaskFailedError),
    ],
)
def test_an_error_is_an_answer_and_the_slot_goes_on(error: BaseException, expected: type[Exception]) -> None:
    with served() as (slot, done):
        with pytest.raises(expected, match=str(error)):
            slot.ask(Echo(error))
        assert unpacked(slot.ask(Load())) == []
    assert done[0].requests == 1


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("IO error: No space left on device")]
)
def test_a_full_disk_is_named_with_the_directory_of_the_stores(error: Exception) -> None:
    with served() as (slot, _):
        with pytest.raises(StateError, match=r"^Cannot write to .* on .*the disk is full.* Free some space") as found:
            slot.ask(Echo(error))
        assert str(Path(program().directory).absolute()) in str(found.value)


def test_progress_comes_before_the_answer() -> None:
    none: Any = None
    seen: list[int | None] = []
    with served() as (slot, _):
        assert slot.ask(SlowRestore(0, none, none), on_progress=lambda where, left: seen.append(left)).to_pybytes() == b"restored"
        assert slot.ask(SlowRestore(0, none, none)).to_pybytes() == b"restored"
    assert seen == [7, 0]


def test_a_restore_without_a_report_says_where_it_is_as_long_as_it_advances(monkeypatch: pytest.MonkeyPatch) -> None:
    none: Any = None
    seen: list[tuple[str, int | None]] = []
    monkeypatch.setattr(serving, "_SPEAK_EVERY_S", 0.02)
    before = threading.active_count()
    with served() as (slot, _):
        asked = slot.ask(LongRestore(0, none, none), on_progress=lambda *found: seen.append(found), patience_s=0.4)
        assert asked.to_pybytes() == b"restored"
        assert unpacked(slot.ask(Load())) == []
    assert threading.active_count() <= before + 1  # that of the watch ends at its next look
    assert len(seen) > 5
    assert seen[0] == ("copying page 0", None)


def test_a_restore_that_is_stuck_is_given_up_although_its_process_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    none: Any = None
    monkeypatch.setattr(serving, "_SPEAK_EVERY_S", 0.02)
    GO_ON.clear()
    seen: list[str] = []
    with served() as (slot, _):
        with pytest.raises(LateError):
            slot.ask(StuckRestore(0, none, none), on_progress=lambda where, left: seen.append(where), patience_s=0.4)
        GO_ON.set()
    assert seen == ["reading in-0 at offset 3"]


def test_a_restore_that_loses_its_own_connection_is_an_answer_too() -> None:
    none: Any = None
    with served() as (slot, _):
        with pytest.raises(TaskFailedError, match="the source hung up"):
            slot.ask(BrokenRestore(0, none, none))
        assert unpacked(slot.ask(Load())) == []


def test_a_restore_ends_with_the_driver() -> None:
    none: Any = None
    ENTERED.clear()
    GO_ON.clear()
    with served() as (slot, done):
        asking = threading.Thread(target=lambda: lost(slot, EagerRestore(0, none, none)))
        asking.start()
        assert ENTERED.wait(PATIENCE_S)
        slot.close()
        asking.join(PATIENCE_S)
        GO_ON.set()
    assert done[0].requests == 0


def test_it_is_prepared_by_the_first_request() -> None:
    with served(note) as (slot, _):
        assert PREPARED == []
        slot.ask(Load())
        slot.ask(Load())
    assert PREPARED == ["once"]
    assert gc.get_threshold()[0] == serving.COLLECT_EVERY


def test_a_preparation_that_has_failed_is_tried_again() -> None:
    with served(fail_once) as (slot, _):
        with pytest.raises(TaskFailedError, match="RuntimeError: not yet"):
            slot.ask(Load())
        slot.ask(Load())
    assert PREPARED == ["tried", "tried"]


@dataclass(frozen=True)
class Waits:
    """Waits for a test, then returns more than a connection holds."""

    reads_topics: ClassVar[bool] = False

    def run(self, program: Program, batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ENTERED.set()
        GO_ON.wait(PATIENCE_S)
        yield pa.RecordBatch.from_pydict({"text": ["x" * 50_000_000]})


def test_it_ends_if_the_driver_goes_before_it_has_answered() -> None:
    ENTERED.clear()
    GO_ON.clear()
    with served() as (slot, done):
        asking = threading.Thread(target=lambda: lost(slot, Waits()))
        asking.start()
        assert ENTERED.wait(PATIENCE_S)
        slot.close()
        asking.join(PATIENCE_S)
        GO_ON.set()
    assert (done[0].requests, done[0].rows) == (0, 0)


def lost(slot: Slot, request: Any) -> None:
    with pytest.raises(SlotLostError):
        slot.ask(request)


class TestTheProgram:
    def test_it_is_unpacked_once_and_replaced_by_that_of_a_new_start(self) -> None:
        first, second = packed(program(incarnation="one")), packed(program(incarnation="two"))
        assert loaded(first) is loaded(first)
        assert loaded(second).incarnation == "two"
        assert list(serving._programs) == [second]

    def test_a_process_is_prepared_once_per_program(self) -> None:
        given = packed(program(), note)
        assert loaded(given) is loaded(given)
        assert PREPARED == ["once"]

    @pytest.mark.parametrize("is_spread", [True, False])
    def test_a_host_of_a_cluster_may_have_its_own_directory(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_spread: bool
    ) -> None:
        monkeypatch.setenv(STATE_DIR, str(tmp_path))
        found = loaded(packed(program(directory="common", is_spread=is_spread)))
        assert found.directory == (str(tmp_path) if is_spread else "common")

    def test_without_one_it_has_the_common_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(STATE_DIR, raising=False)
        assert loaded(packed(program(directory="common", is_spread=True))).directory == "common"


def test_totals_of_slots_are_added_but_not_their_memory() -> None:
    found = added([Totals(1, 2, 3, 4, 50 << 20), Totals(10, 20, 30, 40, 60 << 20)])
    assert found == Totals(11, 22, 33, 44, 60 << 20)
    assert str(found) == "11 requests, 22 records, 33 rows, 44 bytes, at most 60 MiB in a slot"
    assert added([]) == Totals()
