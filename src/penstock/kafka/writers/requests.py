"""Requests of Kafka's protocol that aiokafka lacks: transactions whose producer epoch is raised by every end, and features."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct, Response, ResponseHeader_v0
from aiokafka.protocol.types import Boolean, CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

_FINALIZED_FEATURES = 2
"""The tag of the field that has the features which the whole cluster uses."""

_FEATURE = CompactArray(("name", CompactString("utf-8")), ("max_level", Int16), ("min_level", Int16), ("tags", TaggedFields))

_PRODUCER = Schema(
    ("throttle_time_ms", Int32),
    ("error_code", Int16),
    ("producer_id", Int64),
    ("producer_epoch", Int16),
    ("tags", TaggedFields),
)
"""Answers that give a producer id and epoch."""


class _TakenOver(Response):
    """The producer id and epoch of the new owner."""

    API_KEY = 22
    API_VERSION = 4
    SCHEMA = _PRODUCER


class _TakeOverStruct(RequestStruct):
    """The fields of `take_over`, version 4."""

    API_KEY = 22
    API_VERSION = 4
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _TakenOver
    SCHEMA = Schema(
        ("transactional_id", CompactString("utf-8")),
        ("transaction_timeout_ms", Int32),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("tags", TaggedFields),
    )


class _TakeOver(Request[_TakeOverStruct]):
    """Takes over a transactional id: fences its producer, and aborts the transaction that is open."""

    API_KEY = 22

    def __init__(self, transactional_id: str, timeout_ms: int) -> None:
        self._arguments: tuple[Any, ...] = (transactional_id, timeout_ms, -1, -1, {})

    def build(self, request_struct_class: type[_TakeOverStruct]) -> _TakeOverStruct:
        """Return the request."""
        return request_struct_class(*self._arguments)


class _Ended(Response):
    """The producer id and epoch of the next transaction."""

    API_KEY = 26
    API_VERSION = 5
    SCHEMA = _PRODUCER


class _EndStruct(RequestStruct):
    """The fields of `end`, version 5."""

    API_KEY = 26
    API_VERSION = 5
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _Ended
    SCHEMA = Schema(
        ("transactional_id", CompactString("utf-8")),
        ("producer_id", Int64),
        ("producer_epoch", Int16),
        ("committed", Boolean),
        ("tags", TaggedFields),
    )


class _End(Request[_EndStruct]):
    """Commits or aborts a transaction; the answer has the producer id and epoch of the next one."""

    API_KEY = 26

    def __init__(self, transactional_id: str, producer_id: int, producer_epoch: int, is_commit: bool) -> None:
        self._arguments: tuple[Any, ...] = (transactional_id, producer_id, producer_epoch, is_commit, {})

    def build(self, request_struct_class: type[_EndStruct]) -> _EndStruct:
        """Return the request."""
        return request_struct_class(*self._arguments)


class _Supported(Response):
    """What a broker supports; features are among its tags."""

    API_KEY = 18
    API_VERSION = 3
    SCHEMA = Schema(
        ("error_code", Int16),
        (
            "api_versions",
            CompactArray(("api_key", Int16), ("min_version", Int16), ("max_version", Int16), ("tags", TaggedFields)),
        ),
        ("throttle_time_ms", Int32),
        ("tags", TaggedFields),
    )


class _FeaturesStruct(RequestStruct):
    """The fields of `features`, version 3."""

    API_KEY = 18
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _Supported
    SCHEMA = Schema(
        ("client_software_name", CompactString("utf-8")),
        ("client_software_version", CompactString("utf-8")),
        ("tags", TaggedFields),
    )

    def parse_response_header(self, read_buffer: BytesIO | bytes) -> ResponseHeader_v0:
        """Return the header: this answer has the oldest one, so that any client can read it."""
        return ResponseHeader_v0.decode(read_buffer)


class _Features(Request[_FeaturesStruct]):
    """Asks a broker what the cluster supports."""

    API_KEY = 18
    ALLOW_UNKNOWN_API_VERSION = True

    def build(self, request_struct_class: type[_FeaturesStruct]) -> _FeaturesStruct:
        """Return the request."""
        return request_struct_class("penstock", "1", {})


def take_over(transactional_id: str, timeout_ms: int) -> Any:
    """Return the request that takes over a transactional id: fences its producer, and aborts the transaction that is open."""
    return _TakeOver(transactional_id, timeout_ms)


def end(transactional_id: str, producer_id: int, producer_epoch: int, is_commit: bool) -> Any:
    """Return the request that ends a transaction; the answer has the producer id and epoch of the next one."""
    return _End(transactional_id, producer_id, producer_epoch, is_commit)


def features() -> Any:
    """Return the request for what the cluster supports."""
    return _Features()


def levels_of(answer: Any) -> dict[str, int]:
    """Return the level of each feature that the cluster uses, from the answer to `features`."""
    found = answer.tags.get(_FINALIZED_FEATURES)
    return {} if found is None else {name: most for name, most, _, _ in _FEATURE.decode(BytesIO(found)) or ()}
