"""Why a commit failed: if another instance has taken over, that is the reason, whatever the broker has said first."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.config import Config
from penstock.errors import CommitError, FencedError, PenstockError
from penstock.kafka import publishers
from penstock.kafka.publishers import TransactionalPublisher


class Client:
    """A producer whose commit fails so that the transaction must be aborted; `abort` raises what the test says."""

    had_trouble = False

    def __init__(self, abort: KafkaError | None) -> None:
        self._abort = abort
        self.client = self

    def commit_transaction(self, timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError.UNKNOWN, "Failed to end transaction", txn_requires_abort=True))

    def abort_transaction(self, timeout: float) -> None:
        if self._abort is not None:
            raise KafkaException(self._abort)

    def delivery_failure(self, wait_s: float = 0.0) -> PenstockError | None:
        return None


@pytest.mark.parametrize(
    ("abort", "expected"),
    [
        (None, CommitError),
        (KafkaError(KafkaError._FENCED, "fenced", fatal=True), FencedError),
        (KafkaError(KafkaError._STATE, "no transaction"), CommitError),
    ],
)
def test_a_commit_fails_because_another_instance_has_taken_over(
    monkeypatch: pytest.MonkeyPatch, abort: KafkaError | None, expected: type[PenstockError]
) -> None:
    made: Any = Client(abort)
    monkeypatch.setattr(publishers, "REPORT_S", 0.0)
    publisher = TransactionalPublisher(Config(kafka={"bootstrap.servers": "nowhere:1"}), "app", "app", ())
    publisher._producer = made
    with pytest.raises(expected):
        publisher.commit()
