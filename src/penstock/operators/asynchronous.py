"""Operators that call other systems: they collect requests during the epoch and forward the results at its end."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from penstock.calls import Call, Request, is_async
from penstock.errors import FAILURES
from penstock.metrics import MetricReport, UserMetrics
from penstock.processor import Host, Operator
from penstock.records import Headers, Process, Record, RecordMetadata, SideOutput

KOut = TypeVar("KOut")
VOut = TypeVar("VOut")


@dataclass(frozen=True, slots=True)
class MapValuesAsync(Operator):
    """Replaces the value with the result of the call."""

    is_repeatable: ClassVar[bool] = True  # calls are at least once anyway
    call: Call
    with_key: bool = False

    def bind(self, host: Host, forward: Process) -> Process:
        def take(request: Request, answer: Any) -> None:
            if isinstance(answer, SideOutput):
                host.side_output(answer.name)(request.key, answer.value, request.timestamp, request.headers)
            else:
                forward(request.key, answer, request.timestamp, request.headers)

        return _asking(host, self.call, take, _pair if self.with_key else _value)


@dataclass(frozen=True, slots=True)
class MapAsync(Operator):
    """Replaces key and value with the pair that the call returned."""

    is_repeatable: ClassVar[bool] = True  # calls are at least once anyway
    call: Call

    def bind(self, host: Host, forward: Process) -> Process:
        def take(request: Request, answer: Any) -> None:
            if isinstance(answer, SideOutput):
                host.side_output(answer.name)(request.key, answer.value, request.timestamp, request.headers)
            else:
                key, value = answer
                forward(key, value, request.timestamp, request.headers)

        return _asking(host, self.call, take, _pair)


@dataclass(frozen=True, slots=True)
class ProcessAsync(Operator):
    """Forwards the records that the function sent, to children and to side outputs, once the function has returned."""

    call: Call

    def bind(self, host: Host, forward: Process) -> Process:
        def take(request: Request, context: CallContext[Any, Any]) -> None:
            for report in context.reports():
                host.metrics.add(report)
            for side, record in context.sent:
                send = forward if side is None else host.side_output(side)
                send(record.key, record.value, record.timestamp, record.headers)

        ask, metadata = host.asking(self.call, take), host.cursor.metadata

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            record = Record(key, value, timestamp, headers)
            ask(Request(key, value, timestamp, headers, (record, metadata())))

        return process


class CallContext(Generic[KOut, VOut]):
    """The context of a `process_async` function: forwards records, writes to side outputs, and has metrics.

    Records are sent when the function returns; those of a failed attempt are discarded, and so is what it has counted.
    """

    __slots__ = ("_metrics", "record_metadata", "sent")

    def __init__(self, metadata: RecordMetadata | None) -> None:
        self.record_metadata: RecordMetadata | None = metadata
        """Topic, partition and offset of the record; None for one that a timer or a cache has sent."""
        self.sent: list[tuple[str | None, Record[Any, Any]]] = []
        self._metrics: UserMetrics | None = None

    @property
    def metrics(self) -> UserMetrics:
        """Metrics of this call alone: many calls run at once, and their lane adds them up."""
        if self._metrics is None:
            self._metrics = UserMetrics()
        return self._metrics

    def reports(self) -> list[MetricReport]:
        """Return what the call has measured."""
        return [] if self._metrics is None else self._metrics.reports()

    def forward(self, record: Record[KOut, VOut]) -> None:
        """Forward a record to the node's children."""
        self._send(None, record)

    def side_output(self, name: str, record: Record[Any, Any]) -> None:
        """Send a record to the stream declared as `side_output(name)`."""
        self._send(name, record)

    def _send(self, side: str | None, record: Record[Any, Any]) -> None:
        if record.timestamp < 0:
            raise ValueError(f"Invalid record timestamp {record.timestamp}: it must be 0 or later.")
        self.sent.append((side, record))


def with_context(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function of `process_async` as a call that gets a new context each time and returns it."""

    async def call(record: Record[Any, Any], metadata: RecordMetadata | None, *client: Any) -> CallContext[Any, Any]:
        context: CallContext[Any, Any] = CallContext(metadata)
        await function(record, context, *client)
        return context

    def blocking_call(record: Record[Any, Any], metadata: RecordMetadata | None, *client: Any) -> Any:
        context: CallContext[Any, Any] = CallContext(metadata)
        result = function(record, context, *client)
        return result if inspect.isawaitable(result) else context  # the caller rejects an awaitable

    return call if is_async(function) else blocking_call


def _value(key: Any, value: Any) -> tuple[Any, ...]:
    return (value,)


def _pair(key: Any, value: Any) -> tuple[Any, ...]:
    return (key, value)


def _asking(
    host: Host, call: Call, take: Callable[[Request, Any], None], arguments: Callable[[Any, Any], tuple[Any, ...]]
) -> Process:
    ask, failed = host.asking(call, take), host.failed
    if call.cache is None:

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            ask(Request(key, value, timestamp, headers, arguments(key, value)))

        return process
    by = call.cache.by

    def process_cached(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            question: Hashable = by(key, value)
            hash(question)
        except FAILURES as error:
            failed(error, key)
        else:
            ask(Request(key, value, timestamp, headers, arguments(key, value), question))

    return process_cached
