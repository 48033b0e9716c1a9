"""Hosts user processors: `Processor` and `FixedKeyProcessor` behind the same port as built-in operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from penstock.errors import FAILURES, TopologyError
from penstock.hosted import Scheduled
from penstock.metrics import UserMetrics
from penstock.operators.results import explained_context
from penstock.operators.timers import ProcessorTimers
from penstock.processor import Cancellable, Host, Lineage, Operator, Processor, PunctuationType, Timer
from penstock.records import Headers, Process, Record, RecordMetadata
from penstock.state import SharedKeyValueStore
from penstock.timing import Duration, Instant, duration_ms, instant_ms

Supplier = Callable[..., Processor[Any, Any, Any, Any]]
"""A processor class, or a function that makes a processor, of the client if there is `setup=`, else without arguments."""

SetUp = Callable[[], Any] | None
"""Opens the client of a node's processors, once per process."""


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


def made_by(supplier: Supplier, client: tuple[Any, ...], host: Host) -> Processor[Any, Any, Any, Any]:
    """Return a new processor from the supplier, which gets the client, if there is one."""
    processor = supplier(*client)
    if not isinstance(processor, Processor):
        raise TopologyError(f"{host.node}: the supplier must return a Processor, not a {type(processor).__name__}.")
    return processor


C = TypeVar("C", bound="Context")


class Begun(Generic[C]):
    """A user's object with its context: a `Resident` that begins with `init` in the first lane, and goes on in later ones."""

    def __init__(self, made: Any, context: C) -> None:
        self.made: Any = made
        self.context: C = context
        self._has_begun = False

    def bind(self, host: Host, forward: Process) -> None:
        """Bind it to the lane of the next epoch, which starts it."""
        self.context.bind(host, forward)
        host.on_start(self._start)

    @property
    def user_object(self) -> Any:
        """See `Resident`."""
        return getattr(self.made, "user_object", self.made)  # without what retries it

    @property
    def has_rescheduled(self) -> bool:
        """See `Resident`."""
        return any(scheduled.is_late is not scheduled.cancelled for scheduled in self.context.scheduled)

    def close(self) -> None:
        """See `Resident`."""
        if self._has_begun:
            self.made.close()

    def _start(self) -> None:
        if self._has_begun:
            self.context.resume()
            return
        self.made.init(self.context)
        self._has_begun = self.context.has_begun = True


@dataclass(frozen=True, slots=True)
class ProcessorOperator(Operator):
    """Runs a user's processor; `timers` is the store of its timers, if it has any."""

    runs_user_objects: ClassVar[bool] = True
    lineage: ClassVar[Lineage] = Lineage.GATHERS

    supplier: Supplier
    fixed_key: bool
    timers: str | None = None
    setup: SetUp = None

    def bind(self, host: Host, forward: Process) -> Process:
        found = host.resident(lambda *client: Begun(made_by(self.supplier, client, host), Context()), self.setup)
        found.bind(host, forward)
        processor, context = found.made, found.context
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

        timers = context.key_timers = context.key_timers or ProcessorTimers()
        timers.bind(host, store, fire)
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
    """The `ProcessorContext` of one user processor, which may keep it, and what it has from it, for its life.

    `has_begun` says that `init` has returned.
    """

    __slots__ = ("_forward", "_host", "_shared", "check_key", "fixed_key", "has_begun", "key_timers", "scheduled")

    _host: Host
    _forward: Process

    def __init__(self) -> None:
        self.scheduled: list[Scheduled] = []
        self._shared: dict[str, SharedKeyValueStore[Any, Any]] = {}
        self.check_key: bool = False
        self.fixed_key: Any = None
        self.has_begun: bool = False
        self.key_timers: ProcessorTimers | None = None

    def bind(self, host: Host, forward: Process) -> None:
        """Bind it to the lane of the next epoch."""
        self._host = host
        self._forward = forward
        for name, store in self._shared.items():
            store.follow(host.user_store(name))

    def resume(self) -> None:
        """Go on calling what the processor has scheduled."""
        self.scheduled = [scheduled for scheduled in self.scheduled if not scheduled.cancelled]
        for scheduled in self.scheduled:
            self._host.time.resume(scheduled)

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
        if name in self._shared:
            return self._shared[name]
        found = self._host.user_store(name)
        if isinstance(found, SharedKeyValueStore):
            self._shared[name] = found
        return found

    def schedule(
        self, interval: Duration, kind: PunctuationType, callback: Callable[[int], None], start: Instant | None = None
    ) -> Cancellable:
        """Call `callback` at every interval."""
        start_ms = None if start is None else instant_ms(start)
        is_late, schedule = self.has_begun, self._host.time.schedule
        scheduled = schedule(duration_ms(interval), kind, callback, start_ms, is_late=is_late)
        self.scheduled.append(scheduled)
        return Cancellable(scheduled.cancel)

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
