"""Table–table joins on a foreign key: the left row subscribes to a right key, the right side responds to the left key.

Subscriptions and responses each cross an exchange, so a left row may change before its response arrives. A response carries a
digest of the row it belongs to, and is dropped if the row no longer matches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

from penstock.errors import FAILURES
from penstock.operators.drops import NULL_KEY
from penstock.processor import Host, Operator
from penstock.records import Change, Headers, Process
from penstock.serdes import Serde, SerializationError
from penstock.serdes.wrappers import WrappingSerde
from penstock.state import RawLayout, StoreKind, StoreSpec

DIGEST_BYTES = 16

_NO_DIGEST = 0x80


class Instruction(IntEnum):
    """What the right side does with a subscription."""

    DELETE_KEY_NO_PROPAGATE = 0
    DELETE_KEY_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE = 2
    PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE = 3


class Subscription(NamedTuple):
    """A left row's subscription to a right key; `digest` is None if the left row was deleted."""

    digest: bytes | None
    instruction: Instruction
    primary_key: Any


class SubscriptionResponse(NamedTuple):
    """The response to a subscription: the right value, None if there is none."""

    digest: bytes | None
    foreign_value: Any


class CombinedKey(NamedTuple):
    """Which left row subscribes to which right key."""

    foreign_key: Any
    primary_key: Any


class SubscriptionSerde(WrappingSerde[Subscription]):
    """The serde of subscriptions; `inner` is the left table's key serde.

    A byte with the instruction (plus 128 if there is no digest), the digest, the left key.
    """

    @cached_property
    def serialize(self) -> Callable[[Subscription], bytes]:
        write = self.inner.serialize

        def serialize(subscription: Subscription) -> bytes:
            digest, instruction, primary_key = subscription
            if digest is None:
                return bytes((instruction | _NO_DIGEST,)) + write(primary_key)
            return b"".join((bytes((instruction,)), digest, write(primary_key)))

        return serialize

    @cached_property
    def deserialize(self) -> Callable[[bytes], Subscription]:
        read = self.inner.deserialize

        def deserialize(data: bytes) -> Subscription:
            try:
                has_digest = data[0] < _NO_DIGEST
                instruction = Instruction(data[0] & ~_NO_DIGEST)
            except (IndexError, ValueError):
                raise SerializationError(f"Invalid subscription of {len(data)} bytes.") from None
            digest, rest = _cut_digest(data, has_digest)
            return Subscription(digest, instruction, read(rest))

        return deserialize


class ResponseSerde(WrappingSerde[SubscriptionResponse]):
    """The serde of responses; `inner` is the right table's value serde.

    A byte that is 128 if there is no digest, else 0; the digest; the value. As in Kafka Streams, zero bytes mean no value: a
    right row whose value has zero bytes, such as the empty string, joins as if it did not exist.
    """

    @cached_property
    def serialize(self) -> Callable[[SubscriptionResponse], bytes]:
        write = self.inner.serialize

        def serialize(response: SubscriptionResponse) -> bytes:
            digest, value = response
            data = b"" if value is None else write(value)
            return b"\x80" + data if digest is None else b"".join((b"\x00", digest, data))

        return serialize

    @cached_property
    def deserialize(self) -> Callable[[bytes], SubscriptionResponse]:
        read = self.inner.deserialize

        def deserialize(data: bytes) -> SubscriptionResponse:
            if data[:1] not in {b"\x00", b"\x80"}:
                raise SerializationError(f"Invalid response to a subscription, of {len(data)} bytes.")
            digest, rest = _cut_digest(data, has_digest=data[0] == 0)
            return SubscriptionResponse(digest, read(rest) if rest else None)

        return deserialize


def subscription_store_spec(name: str) -> StoreSpec:
    """The store that `SubscriptionReceive` writes and `ForeignTableJoin` scans: digests by combined key.

    A key is the size of the right key in four bytes, the right key, the left key. So the left rows of one right key are
    adjacent, ordered by the left keys' bytes, and no right key is mistaken for a prefix of a longer one.
    """
    return StoreSpec(name, StoreKind.RAW, layout=RawLayout.SUBSCRIPTIONS)


@dataclass(frozen=True, slots=True)
class SubscriptionSend(Operator):
    """On the left: turns each change of a row into subscriptions and unsubscriptions."""

    extractor: Callable[[Any, Any], Any]
    foreign_key: Serde[Any]
    value: Serde[Any]
    left: bool
    versioned: bool

    def bind(self, host: Host, forward: Process) -> Process:
        extractor, write, versioned = self.extractor, self.value.serialize, self.versioned
        instructions = self._left if self.left else self._inner
        failed, dropped, cause = host.failed, host.dropped, host.cursor.cause
        asked: dict[Any, int] = {}  # by row: which record of the epoch caused its last subscription

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                new, old, is_latest = change
                if versioned and not is_latest:
                    dropped("out of order")
                    return
                if new is None and old is None:
                    return
                old_key = None if old is None else extractor(key, old)
                new_key = None if new is None else extractor(key, new)
                if new is not None and new_key is None and not self.left:
                    dropped("null foreign key")
                digest = None if new is None else _digest(write(new))
                questions = instructions(old_key, new_key)
                row, now = _hashable(key), cause()
                if asked.setdefault(row, now) != now:  # its response will be stale: request another
                    questions = _asking(questions, new_key)
                for foreign_key, instruction in questions:
                    forward(foreign_key, Subscription(digest, instruction, key), timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        return process

    def _left(self, old_key: Any, new_key: Any) -> list[tuple[Any, Instruction]]:
        """Request a response to every change, as every left row is in the result; for a null key, one without a right row."""
        ask = (new_key, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)
        if old_key is not None and self._differ(old_key, new_key):
            return [(old_key, Instruction.DELETE_KEY_NO_PROPAGATE), ask]
        return [ask]

    def _inner(self, old_key: Any, new_key: Any) -> list[tuple[Any, Instruction]]:
        """Request a response only if the result may change."""
        if new_key is None:
            return [] if old_key is None else [(old_key, Instruction.DELETE_KEY_AND_PROPAGATE)]
        if old_key is not None and self._differ(old_key, new_key):
            return [
                (old_key, Instruction.DELETE_KEY_NO_PROPAGATE),
                (new_key, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE),
            ]
        return [(new_key, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE)]

    def _differ(self, one: Any, other: Any) -> bool:
        write = self.foreign_key.serialize
        return other is None or write(one) != write(other)


@dataclass(frozen=True, slots=True)
class SubscriptionReceive(Operator):
    """On the right: stores each subscription and forwards it under its combined key."""

    store: str
    foreign_key: Serde[Any]
    primary_key: Serde[Any]

    def bind(self, host: Host, forward: Process) -> Process:
        put = host.store(self.store).put
        write_foreign, write_primary = self.foreign_key.serialize, self.primary_key.serialize
        failed, dropped = host.failed, host.dropped

        def process(key: Any, subscription: Subscription, timestamp: int, headers: Headers) -> None:
            try:
                digest, instruction, primary_key = subscription
                if key is not None:
                    row = _prefix(write_foreign(key)) + write_primary(primary_key)
                    put(row, digest if instruction in _SUBSCRIBING else None)
                elif instruction is not Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE:
                    dropped("null foreign key")
                    return
                forward(CombinedKey(key, primary_key), subscription, timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        return process


@dataclass(frozen=True, slots=True)
class SubscriptionJoin(Operator):
    """On the right: responds to a subscription with the current right row."""

    foreign_table: str

    def bind(self, host: Host, forward: Process) -> Process:
        failed = host.failed
        foreign_get = host.view(self.foreign_table).get

        def process(key: CombinedKey, subscription: Subscription, timestamp: int, headers: Headers) -> None:
            try:
                digest, instruction, _ = subscription
                foreign_key, primary_key = key
                found = None if foreign_key is None else foreign_get(foreign_key)
                if instruction is Instruction.DELETE_KEY_NO_PROPAGATE:
                    return
                if found is None:
                    if instruction is not Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE:
                        forward(primary_key, SubscriptionResponse(digest, None), timestamp, headers)
                    return
                value = None if instruction is Instruction.DELETE_KEY_AND_PROPAGATE else found[0]
                forward(primary_key, SubscriptionResponse(digest, value), max(timestamp, found[1]), headers)
            except FAILURES as error:
                failed(error, key)

        return process


@dataclass(frozen=True, slots=True)
class ForeignTableJoin(Operator):
    """On the right: notifies every subscriber of a row that it has changed."""

    store: str
    foreign_key: Serde[Any]
    primary_key: Serde[Any]
    versioned: bool

    def bind(self, host: Host, forward: Process) -> Process:
        scan = host.store(self.store).prefix_scan
        write_foreign, read_primary = self.foreign_key.serialize, self.primary_key.deserialize
        versioned, failed, dropped = self.versioned, host.failed, host.dropped

        def process(key: Any, change: Change, timestamp: int, headers: Headers) -> None:
            try:
                if key is None:
                    dropped(NULL_KEY)
                    return
                if versioned and not change[2]:
                    dropped("out of order")
                    return
                value, prefix = change[0], _prefix(write_foreign(key))
                for row, digest in scan(prefix):
                    forward(read_primary(row[len(prefix) :]), SubscriptionResponse(digest, value), timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        return process


@dataclass(frozen=True, slots=True)
class ResponseJoin(Operator):
    """Back on the left: joins a response with the current row if that is still the one that subscribed. Forwards plain values."""

    primary_table: str
    value: Serde[Any]
    joiner: Callable[[Any, Any], Any]
    left: bool

    def bind(self, host: Host, forward: Process) -> Process:
        joiner, left, write = self.joiner, self.left, self.value.serialize
        failed, dropped = host.failed, host.dropped
        primary_get = host.view(self.primary_table).get

        def process(key: Any, response: SubscriptionResponse, timestamp: int, headers: Headers) -> None:
            try:
                digest, foreign = response
                found = primary_get(key)
                if digest != (None if found is None else _digest(write(found[0]))):
                    dropped("stale response")
                elif foreign is None and (found is None or not left):
                    forward(key, None, timestamp, headers)
                else:
                    forward(key, joiner(None if found is None else found[0], foreign), timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        return process


def _hashable(key: Any) -> Any:
    return key if isinstance(key, (str, int, bytes)) else repr(key)


def _asking(questions: list[tuple[Any, Instruction]], new_key: Any) -> list[tuple[Any, Instruction]]:
    """Return the same changes, but request a response unconditionally."""
    ends = [(key, Instruction.DELETE_KEY_NO_PROPAGATE) for key, instruction in questions if instruction not in _SUBSCRIBING]
    return [*ends, (new_key, Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE)]


_SUBSCRIBING = frozenset({Instruction.PROPAGATE_NULL_IF_NO_FK_VAL_AVAILABLE, Instruction.PROPAGATE_ONLY_IF_FK_VAL_AVAILABLE})


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST_BYTES).digest()


def _prefix(foreign_key: bytes) -> bytes:
    """Return the prefix of a right key's combined keys."""
    return len(foreign_key).to_bytes(4, "big") + foreign_key


def _cut_digest(data: bytes, has_digest: bool) -> tuple[bytes | None, bytes]:
    """Return the digest after the first byte, and the rest."""
    if not has_digest:
        return None, data[1:]
    end = 1 + DIGEST_BYTES
    if len(data) < end:
        raise SerializationError(f"Invalid subscription or response: its {len(data)} bytes end within the digest.")
    return data[1:end], data[end:]
