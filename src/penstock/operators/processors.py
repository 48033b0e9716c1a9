"""Hosts user processors: `Processor` and `FixedKeyProcessor` behind the same port as built-in operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from penstock.errors import FAILURES, TopologyError
from penstock.metrics import UserMetrics
from penstock.operators.results import explained_context
from penstock.operators.timers import ProcessorTimers
from penstock.processor import Cancellable, Host, Lineage, Operator, Processor, PunctuationType, Timer
from penstock.records import Headers, Process, Record, RecordMetadata
from penstock.timing import Duration, Instant, duration_ms, instant_ms

Supplier = Callable[[], Processor[Any, Any, Any, Any]]
"""A processor class, or a function without arguments that makes a processor."""


def sets_timers(supplier: Supplier) -> bool:
    """Return whether a supplier's processors have timers: whether their class overrides `on_timer`."""
    made = class_of_made(supplier)
    return made is not None and issubclass(made, Processor) and made.on_timer is not Processor.on_timer


def class_of_made(supplier: Any) -> type | None:
    """Return the class of what a supplier makes; None if it fails.

    A function is called to find out; Kafka Streams, too, calls every supplier while a topology is built.
    """
    while isinstance(supplier, partial):
        supplier = supplier.func
    if isinstance(supplier, type):
        return supplier
    try:
        return type(supplier())
    except Exception:
        return None  # reported when the processor is bound


def made_by(supplier: Supplier, host: Host) -> Processor[Any, Any, Any, Any]:
    """Return a new processor from the supplier."""
    processor = supplier()
    if not isinstance(processor, Processor):
        raise TopologyError(f"{host.node}: the supplier must return a Processor, not a {type(processor).__name__}.")
    return processor


@dataclass(frozen=True, slots=True)
class ProcessorOperator(Operator):
    """Runs a user's processor; `timers` is the store of its timers, if it has any."""

    runs_user_objects: ClassVar[bool] = True
    lineage: ClassVar[Lineage] = Lineage.GATHERS

    supplier: Supplier
    fixed_key: bool
    timers: str | None = None

    def bind(self, host: Host, forward: Process) -> Process:
        processor = made_by(self.supplier, host)
        context = Context(host, forward)
        host.on_start(lambda: processor.init(context))
        host.on_close(processor.close)
        if self.fixed_key:
            context.check_key = True
        if self.timers is not None:
            return self._bind_timers(host, context, processor, self.timers)
        run, failed, fixed_key = processor.process, host.failed, self.fixed_key

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                if fixed_key:
                    context.fixed_key = key
                run(Record(key, value, timestamp, headers))
            except FAILURES as error:
                failed(explained_context(error), key)

        return process

    def _bind_timers(self, host: Host, context: Context, processor: Processor[Any, Any, Any, Any], store: str) -> Process:
        """Bind a processor with timers, which needs the current key."""
        run, on_timer, failed = processor.process, processor.on_timer, host.failed

        def fire(timer: Timer) -> None:
            try:
                context.fixed_key = timer.key
                on_timer(timer)
            except FAILURES as error:
                failed(explained_context(error), timer.key)

        timers = context.key_timers = ProcessorTimers(host, store, fire)
        host.time.add_timers(timers)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                context.fixed_key = key
                timers.key, timers.timestamp = key, timestamp
                run(Record(key, value, timestamp, headers))
            except FAILURES as error:
                failed(explained_context(error), key)
            finally:
                timers.key = None

        return process


class Context:
    """The `ProcessorContext` of one user processor."""

    __slots__ = ("_forward", "_host", "check_key", "fixed_key", "key_timers")

    def __init__(self, host: Host, forward: Process) -> None:
        self._host = host
        self._forward = forward
        self.check_key: bool = False
        self.fixed_key: Any = None
        self.key_timers: ProcessorTimers | None = None

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        """Forward a record to the node's children, or to the named one."""
        if type(record) is not Record:
            self._refuse_other(record)
        if self.check_key and record.key is not self.fixed_key and record.key != self.fixed_key:
            self._refuse_key()
        if record.timestamp < 0:
            self._refuse_timestamp(record)
        forward = self._forward if child is None else self._host.child(child)
        forward(record.key, record.value, record.timestamp, record.headers)

    def side_output(self, name: str, record: Record[Any, Any]) -> None:
        """Send a record to a side output."""
        if type(record) is not Record:
            self._refuse_other(record)
        if self.check_key and record.key is not self.fixed_key and record.key != self.fixed_key:
            self._refuse_key()
        if record.timestamp < 0:
            self._refuse_timestamp(record)
        self._host.side_output(name)(record.key, record.value, record.timestamp, record.headers)

    def store(self, name: str) -> Any:
        """Return a store connected to this processor."""
        return self._host.user_store(name)

    def schedule(
        self, interval: Duration, kind: PunctuationType, callback: Callable[[int], None], start: Instant | None = None
    ) -> Cancellable:
        """Call `callback` at every interval."""
        start_ms = None if start is None else instant_ms(start)
        return Cancellable(self._host.time.schedule(duration_ms(interval), kind, callback, start_ms))

    @property
    def timers(self) -> ProcessorTimers:
        """Timers of the current key."""
        if self.key_timers is None:
            raise TopologyError(
                f"{self._host.node} has no timers: override on_timer in the processor's class, and pass as supplier the class, "
                f"a functools.partial of it, or a function that can be called while the topology is built."
            )
        return self.key_timers

    @property
    def metrics(self) -> UserMetrics:
        """Metrics of the processor's own."""
        return self._host.metrics

    def commit(self) -> None:
        """Request an early end of the epoch, if the host supports it."""
        self._host.request_commit()

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Where the current record came from."""
        return self._host.cursor.metadata()

    def current_stream_time_ms(self) -> int:
        """Return the stream time."""
        return self._host.time.stream_time()

    def current_system_time_ms(self) -> int:
        """Return the wall-clock time."""
        return self._host.time.wall_clock()

    def _refuse_other(self, given: object) -> None:
        if not isinstance(given, Record):
            cure = "pass record.with_value(...), or a new Record(key, value, timestamp)"
            raise TypeError(f"{self._host.node} forwards a {type(given).__name__}, not a Record: {cure}.")

    def _refuse_key(self) -> None:
        raise ValueError(f"{self._host.node}: a FixedKeyProcessor must not change the key. Use process() instead.")

    def _refuse_timestamp(self, record: Record[Any, Any]) -> None:
        raise ValueError(f"{self._host.node}: invalid record timestamp {record.timestamp}: it must be 0 or later.")
