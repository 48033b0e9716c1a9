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
    """A node failed on a record; names the node, the user's line and where the record came from."""

    code = "processing"


ATTRIBUTED = (ProcessingError, TopologyError)
"""Errors that already name the node they belong to; what a node lets pass untouched."""


class SerializationError(PenstockError, ValueError):
    """Bytes that are not what the serde expects, or a value the serde cannot write."""

    code = "serialization"


class StateError(PenstockError):
    """A store was used in a way it does not allow."""

    code = "state"
