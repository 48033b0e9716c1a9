"""The exception tree; each kind has a stable code that logs, exit codes and dead letters can carry."""

from __future__ import annotations

from typing import ClassVar


class PenstockError(Exception):
    """Anything Penstock raises on purpose."""

    code: ClassVar[str] = "penstock"


class TopologyError(PenstockError):
    """The topology cannot be built or does not fit together."""

    code = "topology"


class ProcessingError(PenstockError):
    """User code failed on a record and the handler did not let it pass."""

    code = "processing"


ATTRIBUTED = (ProcessingError, TopologyError)
"""Errors that already name the node they belong to; what a node lets pass untouched."""


class SerializationError(PenstockError, ValueError):
    """Bytes that are not what the serde expects, or a value the serde cannot write."""

    code = "serialization"


class StateError(PenstockError):
    """A store was used in a way it does not allow."""

    code = "state"
