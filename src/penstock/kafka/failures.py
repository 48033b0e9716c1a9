"""Translates librdkafka's errors: each becomes the Penstock error that says what happened and what to do."""

from __future__ import annotations

import re

from confluent_kafka import KafkaError, KafkaException

from penstock.errors import BrokerError, CommitError, ConfigError, FencedError, PenstockError, ProductionError, TopicError

_FENCED = {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
_OUT_OF_REACH = {
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
}
_COORDINATOR_MOVES = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError._TRANSPORT,
    KafkaError._DESTROY_BROKER,
}
_NOT_ALLOWED = {
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_NO_SUCH_TOPIC = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.TOPIC_EXCEPTION,
}
_REFUSED_RECORD = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_RECORD}


_WRONG_VALUE = re.compile(r'(?<=[Ii]nvalid value) ".*"(?= for )', re.DOTALL)
"""The invalid value in librdkafka's message. It is cut out, because it may be a password on the wrong line."""


def kafka_error(raised: BaseException) -> KafkaError | None:
    """Return librdkafka's error. A callback that runs while a fatal error propagates hides it in a SystemError."""
    if isinstance(raised, SystemError) and raised.__cause__ is not None:
        raised = raised.__cause__
    found = raised.args[0] if isinstance(raised, KafkaException) and raised.args else None
    return found if isinstance(found, KafkaError) else None


def is_retriable(raised: BaseException) -> bool:
    """Whether the same call may be retried."""
    error = kafka_error(raised)
    return error is not None and error.retriable()


def is_passing(raised: BaseException) -> bool:
    """Whether the transaction failed only because a coordinator was moving or not ready, so that a new one may succeed."""
    error = kafka_error(raised)
    return error is not None and error.txn_requires_abort() and error.code() in _COORDINATOR_MOVES


def requires_abort(raised: BaseException) -> bool:
    """Whether the transaction has failed and must be aborted."""
    error = kafka_error(raised)
    return error is not None and error.txn_requires_abort()


def is_unexplained(raised: BaseException | None) -> bool:
    """Whether the client has failed for good, and the exception does not say why."""
    error = None if raised is None else kafka_error(raised)
    return error is not None and error.code() == KafkaError._FATAL


def failure(error: KafkaError, what: str) -> PenstockError:
    """Return our error for one of librdkafka's; `what` says what failed."""
    code = error.code()
    text = f"{what}: {error.str()}"
    if code in _FENCED:
        return FencedError(f"{what}: another instance of the application has taken over.")
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return ConfigError("transaction_timeout: it exceeds the brokers' maximum (their transaction.max.timeout.ms). Reduce it.")
    if code in _NOT_ALLOWED:
        return ConfigError(f"{text}. Check the credentials and their permissions.")
    if code in _NO_SUCH_TOPIC:
        return TopicError(text)
    if code in _REFUSED_RECORD:
        return ProductionError(text)
    if code in _OUT_OF_REACH:
        return BrokerError(f"{text}. Check bootstrap_servers, the network, and that the brokers are up.")
    return CommitError(text)


def translated(raised: BaseException, what: str) -> PenstockError:
    """Return our error for an exception that a client raised."""
    error = kafka_error(raised)
    return CommitError(f"{what}: {raised}") if error is None else failure(error, what)


def configured_wrongly(raised: KafkaException) -> ConfigError:
    """Return our error for settings that a client does not accept."""
    error = kafka_error(raised)
    return ConfigError(f"kafka: {_WRONG_VALUE.sub('', error.str() if error else str(raised))}")
