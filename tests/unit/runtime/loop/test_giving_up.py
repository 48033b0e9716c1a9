"""A record that is too large for any epoch: its handler decides, and the error names the record and the cure."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamsBuilder, dead_letter, log_and_continue, retry
from penstock.epochs.program import Epoch, Program
from penstock.epochs.wire import OUT, Kind, decode_control
from penstock.errors import EpochTooLargeError, PenstockError, ProcessingError
from penstock.handlers import ErrorHandler, ErrorHandlers, Failure
from penstock.lanes.epoch import HEADERS
from penstock.runtime.loop.giving_up import GivingUp
from tests.unit.epochs.application import program_of

EPOCH = Epoch(5, 4, 1_000, (("in", 0), ("in", 1)))
ERROR = EpochTooLargeError("The epoch's Spark job failed, probably because of its size: OutOfMemoryError")


class Topic:
    """Jobs that can only read a record."""

    def __init__(self, failure: PenstockError | None = None) -> None:
        self.asked: list[tuple[Any, int]] = []
        self._failure = failure

    def read(self, partition: tuple[str, int], offset: int) -> pa.Table:
        self.asked.append((partition, offset))
        if self._failure:
            raise self._failure
        headers = pa.array([[{"name": "colour", "value": b"red"}]], HEADERS)
        return pa.table({"key": [b"key"], "value": [b"value"], "timestamp": [77], "headers": headers})


def program(handler: ErrorHandler | None = None) -> Program:
    builder = StreamsBuilder()
    builder.stream("other").to("out")
    builder.stream("in", name="large-things").to("out")
    return program_of(builder.build(), handlers=ErrorHandlers() if handler is None else ErrorHandlers(processing=handler))


def given_up(handler: ErrorHandler | None, topic: Topic | None = None) -> list[dict[str, Any]]:
    rows = GivingUp(program(handler), topic or Topic())(EPOCH, ("in", 1), 42, ERROR)  # type: ignore[arg-type]
    assert rows.schema.names == OUT.names
    return list(rows.to_pylist())


def test_by_default_the_application_ends_with_the_record_and_the_cure() -> None:
    with pytest.raises(ProcessingError) as raised:
        given_up(None)
    said = str(raised.value)
    assert "The record from in-1 at offset 42 is too large, even for an epoch of its own" in said
    assert "OutOfMemoryError" in said
    assert "large-things, declared at" in said
    assert "raise epoch_timeout" in said
    assert raised.value.__cause__ is ERROR


def test_a_skipped_record_is_counted() -> None:
    [row] = given_up(log_and_continue())
    assert row["kind"] == Kind.CONTROL
    assert decode_control(row["value"]).dropped == [("large-things", "processing error", 1)]


@pytest.mark.parametrize("handler", [dead_letter("dead"), retry(then=dead_letter("dead")), lambda failure: dead_letter("dead")])
def test_a_dead_letter_holds_the_record_and_says_why(handler: ErrorHandler) -> None:
    topic = Topic()
    letter, told = given_up(handler, topic)
    assert topic.asked == [(("in", 1), 42)]
    assert (letter["kind"], letter["topic"], letter["key"], letter["value"]) == (Kind.DEAD_LETTER, "dead", b"key", b"value")
    headers = {header["name"]: header["value"] for header in letter["headers"]}
    assert headers["colour"] == b"red"
    assert headers["__streams.errors.offset"] == b"42"
    assert b"OutOfMemoryError" in headers["__streams.errors.message"]
    assert decode_control(told["value"]).dropped == [("large-things", "dead letter", 1)]


def test_a_record_that_cannot_be_read_becomes_a_letter_without_content() -> None:
    letter, _ = given_up(dead_letter("dead"), Topic(ERROR))
    assert (letter["key"], letter["value"]) == (None, None)


def test_a_dead_letter_cannot_become_one_again() -> None:
    with pytest.raises(ProcessingError, match="it comes from that topic"):
        given_up(dead_letter("in"))


def test_a_function_that_decides_sees_the_failure() -> None:
    seen: list[Failure] = []

    def decides(failure: Failure) -> Any:
        seen.append(failure)
        return log_and_continue()

    given_up(decides)
    assert (seen[0].error, seen[0].metadata, seen[0].key, seen[0].read_from) == (ERROR, ("in", 1, 42), b"key", "in")
