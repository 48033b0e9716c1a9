"""The errors that the harness retries, and those that it does not."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from verification.harness import patience
from verification.harness.patience import ends, insist, is_passing


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "_PAUSE_S", 0.0)


class Answer:
    def __init__(self, found: int | KafkaError) -> None:
        self._found = found

    @property
    def offset(self) -> int:
        assert isinstance(self._found, int)
        return self._found

    def result(self, _: float) -> Answer:
        if isinstance(self._found, KafkaError):
            raise KafkaException(self._found)
        return self


class Admin:
    """Answers each request with the next of its answers."""

    def __init__(self, *answers: int | KafkaError) -> None:
        self._answers = list(answers)
        self.refreshed = 0

    def list_offsets(self, asked: dict[TopicPartition, object], **_: object) -> dict[TopicPartition, Answer]:
        found = Answer(self._answers.pop(0))
        return dict.fromkeys(asked, found)

    def list_topics(self, **_: object) -> None:
        self.refreshed += 1


def test_a_request_during_a_leader_change_is_retried() -> None:
    admin: Any = Admin(KafkaError(KafkaError.FENCED_LEADER_EPOCH), KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION), 7)
    assert ends(admin, [("in", 0)]) == {("in", 0): 7}
    assert admin.refreshed == 2


def test_a_permanent_error_is_raised_at_once() -> None:
    admin: Any = Admin(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED), 7)
    with pytest.raises(KafkaException):
        ends(admin, [("in", 0)])


def test_retries_stop_at_the_timeout() -> None:
    def ask() -> None:
        raise KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH))

    with pytest.raises(KafkaException):
        insist(ask, timeout_s=-1)


def test_no_error_is_not_transient() -> None:
    assert not is_passing(None)
