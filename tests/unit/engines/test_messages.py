"""Messages between two ends of a socket: whatever is sent arrives, and a closed socket is the end."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pytest

from penstock import errors
from penstock.engines.forked.forking import socket_pair
from penstock.engines.messages import Kind, described, raised, receive, send, send_rows, unpacked
from penstock.engines.port import LateError, TaskFailedError
from penstock.errors import FencedError, PenstockError, ProcessingError

LARGE = bytes(range(256)) * (10 << 12)  # 10 MB


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket_pair()
    with one, other:
        yield one, other


def batch(*numbers: int) -> pa.RecordBatch:
    columns = [pa.array(numbers, pa.int64()), pa.array([b"%d" % number for number in numbers], pa.binary())]
    return pa.RecordBatch.from_arrays(columns, ["number", "text"])


@pytest.mark.parametrize("kind", Kind)
def test_a_frame_arrives_as_it_was_sent(pair: tuple[socket.socket, socket.socket], kind: Kind) -> None:
    send(pair[0], kind, b"content")
    found, content = receive(pair[1])
    assert (found, content.to_pybytes()) == (kind, b"content")


def test_frames_arrive_one_by_one_and_in_order(pair: tuple[socket.socket, socket.socket]) -> None:
    sent = [(Kind.PROGRESS, b"1"), (Kind.ROWS, b""), (Kind.VALUE, b"three"), (Kind.ROWS, b"")]
    for kind, content in sent:
        send(pair[0], kind, content)
    received = [receive(pair[1]) for _ in sent]
    assert [(kind, content.to_pybytes()) for kind, content in received] == sent


def test_content_that_is_larger_than_any_buffer_goes_both_ways(pair: tuple[socket.socket, socket.socket]) -> None:
    def echo() -> None:
        kind, content = receive(pair[1])
        send(pair[1], kind, content)

    answering = threading.Thread(target=echo)
    answering.start()
    send(pair[0], Kind.ROWS, LARGE)
    kind, content = receive(pair[0])
    answering.join()
    assert kind is Kind.ROWS
    assert content.to_pybytes() == LARGE


def test_a_closed_socket_is_the_end(pair: tuple[socket.socket, socket.socket]) -> None:
    send(pair[0], Kind.VALUE, b"last")
    pair[0].close()
    assert receive(pair[1])[1].to_pybytes() == b"last"
    with pytest.raises(EOFError, match="the other process has closed its socket"):
        receive(pair[1])


@pytest.mark.parametrize("sent", [3, struct.calcsize("!BQ"), 40])
def test_a_socket_that_closes_in_the_middle_of_a_frame_is_the_end(pair: tuple[socket.socket, socket.socket], sent: int) -> None:
    pair[0].sendall((struct.pack("!BQ", Kind.ROWS, 100) + bytes(100))[:sent])
    pair[0].close()
    with pytest.raises(EOFError):
        receive(pair[1])


class TestTables:
    def test_batches_keep_their_boundaries_and_their_content(self, pair: tuple[socket.socket, socket.socket]) -> None:
        batches = [batch(1, 2), batch(), batch(3)]
        send_rows(pair[0], batches)
        kind, content = receive(pair[1])
        assert kind is Kind.ROWS
        assert unpacked(content) == batches

    def test_a_slice_takes_only_its_own_rows(self, pair: tuple[socket.socket, socket.socket]) -> None:
        whole = batch(*range(100_000))
        send_rows(pair[0], [whole.slice(500, 2)])
        _, content = receive(pair[1])
        assert unpacked(content) == [batch(500, 501)]
        assert content.size < 2_000

    def test_no_batches_are_an_empty_message(self, pair: tuple[socket.socket, socket.socket]) -> None:
        send_rows(pair[0], [])
        _, content = receive(pair[1])
        assert content.size == 0
        assert unpacked(content) == []

    def test_a_message_follows_a_table(self, pair: tuple[socket.socket, socket.socket]) -> None:
        batches = [batch(*range(start, start + 1_000)) for start in range(0, 5_000, 1_000)]
        send_rows(pair[0], batches)
        send(pair[0], Kind.VALUE, b"next")
        assert unpacked(receive(pair[1])[1]) == batches
        assert receive(pair[1])[1].to_pybytes() == b"next"


def crossed(error: BaseException) -> PenstockError:
    """What arrives of an error that a slot has raised and described."""
    try:
        raise error
    except BaseException as caught:  # noqa: BLE001 - any error crosses
        return raised(described(caught))


class TestErrors:
    KINDS = tuple(name for name in errors.__all__ if name.endswith("Error"))

    @pytest.mark.parametrize("name", KINDS)
    def test_each_of_ours_keeps_its_type_and_its_text(self, name: str) -> None:
        kind = getattr(errors, name)
        found = crossed(kind("é: a reason\nof two lines"))
        assert (type(found), str(found)) == (kind, "é: a reason\nof two lines")

    def test_there_are_some(self) -> None:
        assert {"FencedError", "LaneMovedError", "ProcessingError", "StateError"} <= set(self.KINDS)

    def test_one_that_users_do_not_know_is_an_error_of_processing(self) -> None:
        class OwnError(FencedError):
            """Of a user's module, perhaps."""

        for error in (LateError("late"), OwnError("late")):
            found = crossed(error)
            assert (type(found), str(found)) == (ProcessingError, "late")

    @pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), SystemExit("enough"), MemoryError()])
    def test_any_other_arrives_with_its_traceback(self, error: BaseException) -> None:
        found = crossed(error)
        assert type(found) is TaskFailedError
        assert str(found).startswith("Unexpected failure: Traceback")
        assert "in crossed" in str(found)
        assert type(error).__name__ in str(found)

    def test_of_a_long_traceback_the_end_arrives(self) -> None:
        found = str(crossed(ValueError("x" * 10_000 + " the end")))
        assert found.endswith("the end\n")
        assert len(found) < 5_000

    def test_what_is_no_error_is_refused(self) -> None:
        with pytest.raises(msgspec.DecodeError):
            raised(b"nonsense")
