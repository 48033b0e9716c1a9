"""The exception tree; each class has a stable code for logs and dead letters, and an exit code for the process."""

from __future__ import annotations

from typing import ClassVar


class PenstockError(Exception):
    """The base class of all errors that Penstock raises."""

    code: ClassVar[str] = "penstock"
    exit_code: ClassVar[int] = 1


class ConfigError(PenstockError):
    """A setting is missing, misspelt or invalid; names the setting and the cure."""

    code = "config"
    exit_code = 2


class TopologyError(PenstockError):
    """The topology cannot be built."""

    code = "topology"
    exit_code = 3


class IncompatibleTopologyError(TopologyError):
    """The committed state belongs to another topology; says what changed."""

    code = "incompatible"
    exit_code = 4


class ProcessingError(PenstockError):
    """A node failed on a record; names the node, the user's line and where the record came from."""

    code = "processing"
    exit_code = 10


class RegistryError(PenstockError):
    """The schema registry does not answer, or denies access: no record is at fault, so no handler may drop one. Start again."""

    code = "registry"
    exit_code = 25


class CircuitOpenError(PenstockError):
    """A call was not made, because earlier calls have failed and the circuit breaker is open."""

    code = "circuit"
    exit_code = 10


class LateRecordError(PenstockError):
    """A record is older than its source's watermark."""

    code = "late"
    exit_code = 10


class SerializationError(PenstockError, ValueError):
    """A serde cannot read bytes or write a value."""

    code = "serialization"
    exit_code = 10


class ProductionError(PenstockError):
    """A record cannot be written to its topic; names the topic and the node."""

    code = "production"
    exit_code = 11


class TopicError(PenstockError):
    """A topic is missing, or not as the application needs it; names the cure."""

    code = "topic"
    exit_code = 12


class StateError(PenstockError):
    """A store does not support an operation, or is not at the epoch it should be at."""

    code = "state"
    exit_code = 13


class LaneMovedError(StateError):
    """A lane's store on this host is not the one that the epoch continues: the lane has moved, or has to be restored."""


class QueryError(PenstockError):
    """A store cannot answer a query; says why."""

    code = "query"
    exit_code = 14


class UnknownStoreError(QueryError):
    """No store has that name; lists the stores."""

    code = "unknown_store"


class NotReadyError(QueryError):
    """The application cannot answer queries now: it restores, has ended, or has not reached that epoch; says which. Retry."""

    code = "not_ready"


class QueryTimeoutError(QueryError):
    """A query took too long."""

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
    """An epoch did not finish within `epoch_timeout`, or a restore did not advance: the process must end. Start again."""

    code = "stalled"
    exit_code = 23


class EpochTooLargeError(PenstockError):
    """An epoch has too many records or rows to send, or takes too long: it is retried with fewer records.

    It ends the application only if the epoch has no records to leave out.
    """

    code = "epoch_too_large"
    exit_code = 24


class BrokerError(PenstockError):
    """The brokers were unreachable for longer than `broker_timeout`."""

    code = "broker"
    exit_code = 22


ATTRIBUTED = (ProcessingError, TopologyError, RegistryError, LaneMovedError)
"""Errors that nodes pass on unchanged: they already name their node, or no record is at fault."""
