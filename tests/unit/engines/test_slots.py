"""A slot as the driver sees it: whatever ends a wait for an answer, the driver learns why, and the slot is not used again."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from penstock.engines import watching as module
from penstock.engines.forked.forking import socket_pair
from penstock.engines.messages import Kind, described, located, receive, send
from penstock.engines.port import LateError, SlotLostError
from penstock.engines.requests import Load
from penstock.engines.slots import Slot
from penstock.engines.watching import Wait, Watch
from penstock.errors import StateError
from penstock.state.remote.secured import secured

KEY = b"k" * 32
PATIENCE_S = 20.0

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["plain", "secured"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Both ends of a connection: the driver's, and that of a slot."""
    driver, own = socket_pair()
    if request.param == "secured":
        with ThreadPoolExecutor(1) as threads:
            pending = threads.submit(secured, own, KEY, is_server=False)
            driver, own = secured(driver, KEY, is_server=True), pending.result()
    with driver, own:
        yield driver, own


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as started:
        yield started
        started.kill()


def slot_of(pair: Pair, process: int = 0, *, is_there: Callable[[], bool] = lambda: True, is_here: bool = False) -> Slot:
    return Slot(pair[0], "host", process, Watch(is_there), is_here=is_here)


def asking(slot: Slot, *batches: pa.RecordBatch, **options: Any) -> tuple[threading.Thread, list[BaseException | bytes]]:
    """Ask in a thread; return it, and the list to which it adds its answer."""
    found: list[BaseException | bytes] = []

    def ask() -> None:
        try:
            found.append(slot.ask(Load(), batches, **options).to_pybytes())
        except BaseException as error:  # noqa: BLE001 - it is looked at
            found.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread, found


def received(own: socket.socket) -> list[Kind]:
    """The frames of a request."""
    return [receive(own)[0] for _ in range(2)]


def test_an_answer_or_an_error_leaves_it_as_it_is(pair: Pair) -> None:
    slot = slot_of(pair)
    for kind, content in ((Kind.VALUE, b"value"), (Kind.ERROR, described(StateError("not there"))), (Kind.ROWS, b"")):
        thread, found = asking(slot)
        assert received(pair[1]) == [Kind.ROWS, Kind.REQUEST]
        send(pair[1], kind, content)
        thread.join(PATIENCE_S)
        [answer] = found
        assert isinstance(answer, StateError) if kind is Kind.ERROR else answer == content
    assert (slot.is_lost, slot.is_given_up) == (False, False)


def test_it_answers_one_request_at_a_time(pair: Pair) -> None:
    slot = slot_of(pair)
    both = [asking(slot), asking(slot)]
    received(pair[1])
    pair[1].settimeout(0.2)
    with pytest.raises(TimeoutError):
        receive(pair[1])
    pair[1].settimeout(PATIENCE_S)
    send(pair[1], Kind.VALUE, b"one")
    received(pair[1])
    send(pair[1], Kind.VALUE, b"two")
    for thread, _ in both:
        thread.join(PATIENCE_S)
    assert sorted(answer for _, found in both for answer in found if isinstance(answer, bytes)) == [b"one", b"two"]


@pytest.mark.parametrize("is_asked", [False, True])
def test_one_that_ends_is_lost(pair: Pair, is_asked: bool) -> None:
    slot = slot_of(pair)
    if not is_asked:
        pair[1].close()
    thread, found = asking(slot)
    if is_asked:
        received(pair[1])
        pair[1].close()
    thread.join(PATIENCE_S)
    [error] = found
    assert isinstance(error, SlotLostError)
    assert error.by_request
    assert "A slot on host has ended unexpectedly" in str(error)
    assert (slot.is_lost, slot.is_given_up) == (True, False)
    with pytest.raises(SlotLostError, match="it was lost before") as again:
        slot.ask(Load())
    assert not again.value.by_request


def test_a_close_by_another_thread_ends_the_wait_at_once(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a task that was replaced, for example: its successor has registered."""
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 3 * PATIENCE_S)
    slot = slot_of(pair)
    thread, found = asking(slot)
    received(pair[1])
    time.sleep(0.05)
    slot.close()
    thread.join(PATIENCE_S)
    assert isinstance(found[0], SlotLostError)
    assert receive_end(pair[1])


def receive_end(own: socket.socket) -> bool:
    """Whether the other side has closed its socket."""
    own.settimeout(PATIENCE_S)
    try:
        receive(own)
    except (EOFError, OSError):
        return True
    return False


@pytest.mark.parametrize("is_here", [True, False])
def test_one_that_is_late_is_given_up_and_ended_if_it_is_here(
    pair: Pair, process: subprocess.Popen[bytes], is_here: bool
) -> None:
    slot = slot_of(pair, process.pid, is_here=is_here)
    with pytest.raises(LateError, match="A slot on host has not answered in time"):
        slot.ask(Load(), deadline=time.monotonic() + 0.05)
    assert (slot.is_lost, slot.is_given_up, slot.process) == (True, True, process.pid)
    if is_here:
        assert process.wait(PATIENCE_S) < 0
    else:
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.1)


def test_one_whose_process_has_ended_already_is_late_too(pair: Pair) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with pytest.raises(LateError):
        slot_of(pair, ended.pid, is_here=True).ask(Load(), deadline=0.0)


def test_one_on_a_host_that_is_gone_is_lost_long_before_it_is_late(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.01)
    looks = iter([True, True, False])
    slot = slot_of(pair, is_there=lambda: next(looks))
    with pytest.raises(SlotLostError, match="its host does not answer") as error:
        slot.ask(Load(), deadline=time.monotonic() + PATIENCE_S)
    assert not error.value.by_request
    assert (slot.is_lost, slot.is_given_up) == (True, True)
    assert next(looks, None) is None


LARGE = pa.record_batch({"value": pa.array([bytes(1 << 20)] * 40)})
"""More than the buffers of a connection hold."""


@pytest.mark.parametrize("stuck", ["sending", "receiving"])
@pytest.mark.parametrize("reason", ["late", "gone", "closed"])
def test_one_that_stops_in_the_middle_of_a_message_is_not_waited_for_either(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, stuck: str, reason: str
) -> None:
    """A process that is suspended, for example."""
    monkeypatch.setattr(module, "_LOOK_EVERY_S", 0.05)
    slot = slot_of(pair, is_there=lambda: reason != "gone")
    deadline = time.monotonic() + (0.3 if reason == "late" else 3 * PATIENCE_S)
    thread, found = asking(slot, *[LARGE] * (stuck == "sending"), deadline=deadline)
    if stuck == "receiving":
        received(pair[1])
        pair[1].sendall(struct.pack("!BQ", Kind.ROWS, 1_000) + b"half of it")
    if reason == "closed":
        time.sleep(0.1)
        slot.close()
    thread.join(PATIENCE_S)
    [error] = found
    assert type(error) is (LateError if reason == "late" else SlotLostError)
    assert ("its host does not answer" in str(error)) == (reason == "gone")
    assert (slot.is_lost, slot.is_given_up) == (True, reason != "closed")


def test_an_answer_that_comes_too_late_leaves_no_slot_that_cannot_be_used(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    slot, waits = slot_of(pair), list[Wait]()
    monkeypatch.setattr(Watch, "begin", lambda watch, wait: waits.append(wait))
    thread, found = asking(slot)
    received(pair[1])
    waits[0].is_late = True
    send(pair[1], Kind.VALUE, b"value")
    thread.join(PATIENCE_S)
    assert isinstance(found[0], LateError)
    assert slot.is_lost


@pytest.mark.parametrize("is_followed", [False, True])
def test_progress_may_be_followed_or_not(pair: Pair, is_followed: bool) -> None:
    followed: list[tuple[str, int | None]] = []
    thread, found = asking(slot_of(pair), on_progress=(lambda *seen: followed.append(seen)) if is_followed else None)
    received(pair[1])
    for where, left in [("composing", None), ("reading", 7), ("reading", 0)]:
        send(pair[1], Kind.PROGRESS, located(where, left))
    send(pair[1], Kind.VALUE, b"done")
    thread.join(PATIENCE_S)
    assert found == [b"done"]
    assert followed == [("composing", None), ("reading", 7), ("reading", 0)] * is_followed


def test_one_that_advances_may_take_its_time_but_not_one_that_stands_still(pair: Pair) -> None:
    slot, seen = slot_of(pair), list[int | None]()
    thread, found = asking(slot, on_progress=lambda where, left: seen.append(left), patience_s=0.5)
    received(pair[1])
    for left in [None, 7] * 5:
        time.sleep(0.1)
        send(pair[1], Kind.PROGRESS, located("here", left))
    assert not found
    thread.join(PATIENCE_S)
    assert isinstance(found[0], LateError)
    assert seen == [None, 7] * 5
