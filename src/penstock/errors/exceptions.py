"""The exception tree; each kind has a stable code for logs and dead letters, and the exit code a process ends with."""

from __future__ import annotations

from typing import ClassVar


class PenstockError(Exception):
    """Anything Penstock raises on purpose."""

    code: ClassVar[str] = "penstock"
    exit_code: ClassVar[int] = 1


class ConfigError(PenstockError):
    """A setting is missing, misspelt or cannot work; says which and the cure."""

    code = "config"
    exit_code = 2


class TopologyError(PenstockError):
    """The topology cannot be built or does not fit together."""

    code = "topology"
    exit_code = 3


class IncompatibleTopologyError(TopologyError):
    """The state that was committed belongs to another topology; says what changed."""

    code = "incompatible"
    exit_code = 4


class ProcessingError(PenstockError):
    """A node failed on a record; names the node, the user's line and where the record came from."""

    code = "processing"
    exit_code = 10


ATTRIBUTED = (ProcessingError, TopologyError)
"""Errors that already name the node they belong to; what a node lets pass untouched."""


class CircuitOpenError(PenstockError):
    """A call was not made, because those before it have failed and the circuit breaker is open."""

    code = "circuit"
    exit_code = 10


class LateRecordError(PenstockError):
    """A record came after its source had told that no such record was expected any more."""

    code = "late"
    exit_code = 10


class SerializationError(PenstockError, ValueError):
    """Bytes that are not what the serde expects, or a value the serde cannot write."""

    code = "serialization"
    exit_code = 10


class ProductionError(PenstockError):
    """A record cannot be written to its topic; names the topic and the node."""

    code = "production"
    exit_code = 11


class TopicError(PenstockError):
    """A topic is missing, or is not what the application needs; says the cure."""

    code = "topic"
    exit_code = 12


class StateError(PenstockError):
    """A store was used in a way it does not allow, or is not at the epoch it should be at."""

    code = "state"
    exit_code = 13


class QueryError(PenstockError):
    """A question that a store cannot answer; says why."""

    code = "query"
    exit_code = 14


class UnknownStoreError(QueryError):
    """There is no such store; names those there are."""

    code = "unknown_store"


class NotReadyError(QueryError):
    """The application cannot be asked now: it restores, has ended, or has not come to that epoch; says which. Ask again."""

    code = "not_ready"


class QueryTimeoutError(QueryError):
    """A question took longer than it may."""

    code = "query_timeout"


class FencedError(PenstockError):
    """Another instance of the application has taken over."""

    code = "fenced"
    exit_code = 20


class CommitError(PenstockError):
    """A transaction could not be committed: it timed out or was aborted. Nothing of it is visible; start again."""

    code = "commit"
    exit_code = 21


class StalledError(PenstockError):
    """An epoch has not come to its end within its time: the process cannot be trusted to go on. Start again."""

    code = "stalled"
    exit_code = 23


class EpochTooLargeError(PenstockError):
    """An epoch has more records, more rows to send, or takes longer, than it can have: it is tried again with fewer records.

    Only an epoch that has no records to leave out ends the application with it.
    """

    code = "epoch_too_large"
    exit_code = 24


class BrokerError(PenstockError):
    """The brokers were out of reach for longer than the application may wait."""

    code = "broker"
    exit_code = 22
