"""The translation of librdkafka's errors."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from penstock.errors import BrokerError, CommitError, ConfigError, FencedError, PenstockError, ProductionError, TopicError
from penstock.kafka.failures import configured_wrongly, failure, is_passing, is_retriable, kafka_error, requires_abort, translated

MEANINGS = {
    KafkaError._FENCED: FencedError,
    KafkaError.INVALID_PRODUCER_EPOCH: FencedError,
    KafkaError.PRODUCER_FENCED: FencedError,
    KafkaError.INVALID_TRANSACTION_TIMEOUT: ConfigError,
    KafkaError.SASL_AUTHENTICATION_FAILED: ConfigError,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ConfigError,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ConfigError,
    KafkaError.UNKNOWN_TOPIC_OR_PART: TopicError,
    KafkaError._UNKNOWN_PARTITION: TopicError,
    KafkaError.MSG_SIZE_TOO_LARGE: ProductionError,
    KafkaError._TIMED_OUT: BrokerError,
    KafkaError._MSG_TIMED_OUT: BrokerError,
    KafkaError._ALL_BROKERS_DOWN: BrokerError,
    KafkaError.INVALID_TXN_STATE: CommitError,
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER: CommitError,
}


@pytest.mark.parametrize(("code", "kind"), MEANINGS.items())
def test_each_error_is_translated(code: int, kind: type[PenstockError]) -> None:
    error = failure(KafkaError(code, "why"), "what")
    assert type(error) is kind
    assert type(translated(KafkaException(KafkaError(code, "why")), "what")) is kind
    if kind is not FencedError and code != KafkaError.INVALID_TRANSACTION_TIMEOUT:
        assert "what: why" in str(error)


def hidden() -> SystemError:
    raised = SystemError("a result with an exception set")
    raised.__cause__ = KafkaException(KafkaError(KafkaError._FENCED, fatal=True))
    return raised


def test_an_error_hidden_by_a_callback_is_found() -> None:
    found = kafka_error(hidden())
    assert found is not None
    assert found.code() == KafkaError._FENCED
    assert isinstance(translated(hidden(), "what"), FencedError)


def test_an_error_that_is_not_kafkas_keeps_its_text() -> None:
    assert kafka_error(SystemError("odd")) is None
    assert kafka_error(KafkaException("odd")) is None
    assert not is_retriable(SystemError("odd"))
    assert not requires_abort(SystemError("odd"))
    assert str(translated(SystemError("odd"), "what")) == "what: odd"
    assert "odd" in str(configured_wrongly(KafkaException("odd")))


def test_retriable_errors_differ_from_those_that_require_an_abort() -> None:
    again = KafkaException(KafkaError(KafkaError._TIMED_OUT, retriable=True))
    abort = KafkaException(KafkaError(KafkaError._TIMED_OUT, txn_requires_abort=True))
    assert (is_retriable(again), requires_abort(again)) == (True, False)
    assert (is_retriable(abort), requires_abort(abort)) == (False, True)


def test_a_moving_coordinator_differs_from_a_failed_transaction() -> None:
    moving = KafkaException(KafkaError(KafkaError.NOT_COORDINATOR, txn_requires_abort=True))
    failed = KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, txn_requires_abort=True))
    fatal = KafkaException(KafkaError(KafkaError.NOT_COORDINATOR, fatal=True))
    assert [is_passing(error) for error in (moving, failed, fatal, SystemError("odd"))] == [True, False, False, False]
