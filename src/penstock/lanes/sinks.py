"""The last step of a lane: serializes records and puts them into the outbox."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from penstock.errors import ATTRIBUTED, FAILURES, RegistryError
from penstock.lanes.cursor import Cursor
from penstock.lanes.failures import Failures
from penstock.lanes.outbox import Outbox, Row, RowKind
from penstock.records import Headers, Process, RecordContext, is_name
from penstock.topology.nodes import SinkNode

Serialize = Callable[[Any], bytes]

_SHOWN = 100
_new = tuple.__new__  # cheaper than Row(...), once per record sent


def bind_sink(node: SinkNode, outbox: Outbox, failures: Failures, partitions: Callable[[str], int]) -> Process:
    """Return the `process` of a sink."""
    if isinstance(node.topic, str) and node.partitioner is None:
        return _bind_plain(node, node.topic, outbox, failures)
    return _bind_routed(node, outbox, failures, partitions)


def _bind_plain(node: SinkNode, topic: str, outbox: Outbox, failures: Failures) -> Process:
    """Return the `process` of a sink whose topic is known, and whose partitions the producer chooses."""
    send, cursor, partition = outbox.send, outbox.cursor, by_key(node)
    serialize_key, serialize_value = _serializers(node, topic)
    kind = RowKind.EXCHANGE if node.internal else RowKind.SINK

    def send_plain(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            key_bytes = None if key is None else serialize_key(key)
            value_bytes = None if value is None else serialize_value(value)
            send(_new(Row, (topic, key_bytes, value_bytes, timestamp, headers, partition, kind, cursor.row)))
        except RegistryError:
            raise
        except FAILURES as error:
            failures.production(node, error, key)

    return send_plain


def _bind_routed(node: SinkNode, outbox: Outbox, failures: Failures, partitions: Callable[[str], int]) -> Process:
    """Return the `process` of a sink with functions that choose topics or partitions."""
    send, cursor = outbox.send, outbox.cursor
    topic, partitioner, unchosen = node.topic, node.partitioner, by_key(node)
    kind = RowKind.EXCHANGE if node.internal else RowKind.SINK
    serializers: dict[str, tuple[Serialize, Serialize]] = {}

    def send_routed(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            target: Any = topic if isinstance(topic, str) else topic(key, value, _context(cursor, timestamp, headers))
            found = serializers.get(target) if isinstance(target, str) else None
            if found is None:
                found = serializers[target] = _serializers(node, _checked(target))
            key_bytes = None if key is None else found[0](key)
            value_bytes = None if value is None else found[1](value)
            chosen = partitioner(target, key, value, partitions(target)) if partitioner is not None else None
            for partition in (unchosen,) if chosen is None else _partitions(chosen, partitions(target)):
                send(Row(target, key_bytes, value_bytes, timestamp, headers, partition, kind, cursor.row))
        except ATTRIBUTED:
            raise
        except FAILURES as error:
            failures.production(node, error, key)

    return send_routed


def _serializers(node: SinkNode, topic: str) -> tuple[Serialize, Serialize]:
    """Return how a sink writes keys and values: their form may depend on the topic, but within an exchange it never does."""
    if node.internal:
        return node.key.serialize, node.value.serialize
    return node.key.for_topic(topic, is_key=True).serialize, node.value.for_topic(topic, is_key=False).serialize


def _checked(target: Any) -> str:
    if not isinstance(target, str):
        raise TypeError(f"the function that chooses the topic returned {target!r}, not a topic name")
    if not is_name(target):
        raise ValueError(
            f"the function that chooses the topic returned {target[:_SHOWN]!a}, which is not a valid topic name: "
            f"use at most 249 letters, digits, '.', '_' and '-'"
        )
    return target


def by_key(node: SinkNode) -> int | None:
    """Return what a row has for a partition if its key decides; see `Row`."""
    return -node.partition_tail or None


def _partitions(chosen: int | Collection[int], count: int) -> Collection[int]:
    """Check and return the partitions that a partitioner chose."""
    several: tuple[Any, ...] = (chosen,) if isinstance(chosen, int) else tuple(chosen)
    for partition in several:
        if not isinstance(partition, int) or not 0 <= partition < count:
            raise ValueError(f"the partitioner returned {chosen!r}, but the partitions are 0 to {count - 1}")
    return several


def _context(cursor: Cursor, timestamp: int, headers: Headers) -> RecordContext:
    topic, partition, offset = cursor.metadata() or (None, -1, -1)
    return RecordContext(topic, partition, offset, timestamp, headers)
