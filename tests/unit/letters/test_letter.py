"""A letter's headers are read as they were written."""

from __future__ import annotations

import pytest

from penstock import RecordMetadata
from penstock.errors import SerializationError
from penstock.handlers import FailureKind
from penstock.letters import Letter, attempts, replay_headers, replayed_into, without_replay_node
from tests.unit.letters.letters import SOURCE, letter


def test_a_letter_is_read_as_it_was_written() -> None:
    found = letter(kind=FailureKind.PRODUCTION, error=SerializationError("bad"), headers=(("trace", b"1"),), time_ms=99)
    assert (found.error, found.message) == ("penstock.errors.exceptions.SerializationError", "bad")
    assert (found.node, found.kind, found.application, found.epoch, found.time_ms) == ("map", "production", "app", 3, 99)
    assert found.source == SOURCE
    assert "SerializationError: bad" in found.stack
    assert found.record_headers == (("trace", b"1"),)
    assert found.attempt == 0
    assert found.is_whole


def test_a_letter_from_after_an_exchange_is_not_whole() -> None:
    assert not letter(read_from="by-repartition").is_whole


def test_a_letter_that_comes_from_no_single_record_has_no_source() -> None:
    found = letter(source=None, read_from=None)
    assert found.source is None
    assert not found.is_whole


def test_a_letter_without_its_value_is_not_whole() -> None:
    whole = letter()
    assert not Letter(*_parts(whole), (*whole.headers, ("__penstock.errors.size", b"2000000"))).is_whole


@pytest.mark.parametrize("data", [b"", b"-1", b"x", b"9" * 30, "²".encode(), None])
def test_an_invalid_number_is_ignored(data: bytes | None) -> None:
    whole = letter()
    spoilt = Letter(*_parts(whole), (*whole.headers, ("__streams.errors.offset", data), ("__penstock.errors.time", data)))
    assert spoilt.source is None
    assert spoilt.time_ms == whole.timestamp


def test_a_letter_without_headers_can_be_read() -> None:
    found = Letter(RecordMetadata("dead", 0, 0), None, None, 5, ())
    assert (found.error, found.node, found.application, found.source, found.time_ms, found.attempt) == ("", "", "", None, 5, 0)


def test_a_replayed_record_names_its_letter_and_the_number_of_attempts() -> None:
    first = letter(4, headers=(("trace", b"1"),))
    headers = replay_headers(first, first.headers, None)
    assert headers == (("trace", b"1"), ("__penstock.replay.letter", b"dead-0-4"), ("__penstock.replay.attempt", b"1"))
    second = letter(9, headers=headers)
    assert second.attempt == 1
    again = replay_headers(second, second.headers, "map")
    assert again == (
        ("trace", b"1"),
        ("__penstock.replay.letter", b"dead-0-9"),
        ("__penstock.replay.attempt", b"2"),
        ("__penstock.replay.node", b"map"),
    )
    assert replayed_into(again) == "map"
    assert replayed_into(headers) is None
    assert without_replay_node(again) == again[:3]


def test_attempts_from_another_topic_do_not_count() -> None:
    headers = replay_headers(letter(topic="dead-of-others"), (), None)
    assert attempts(headers, "dead-of-others") == 1
    assert letter(headers=headers).attempt == 0


def _parts(whole: Letter) -> tuple[RecordMetadata, bytes | None, bytes | None, int]:
    return whole.place, whole.key, whole.value, whole.timestamp
