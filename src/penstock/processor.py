"""The port between operators, user processors and their host.

Built-in operators and user processors use the same port, so a lane runs both in the same way, on every host.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from penstock.hosted import Resident, Scheduled, TimerKind, TimerQueue
from penstock.records import Record

if TYPE_CHECKING:
    from penstock.calls import Call, Request
    from penstock.errors import Raised
    from penstock.handlers import ErrorHandler
    from penstock.metrics import UserMetrics
    from penstock.records import HostCursor, Process, RecordMetadata, ValueAndTimestamp
    from penstock.state import Register, StoreSpec
    from penstock.timing import Duration, Instant

KIn = TypeVar("KIn", contravariant=True)
VIn = TypeVar("VIn", contravariant=True)
KOut = TypeVar("KOut")
VOut = TypeVar("VOut")

R = TypeVar("R", bound=Resident)

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class PunctuationType(Enum):
    """Which clock drives a punctuator."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"


class Timer(NamedTuple):
    """A timer of one key, as `Timers` lists it and as `Processor.on_timer` receives it.

    `time` is when it is due, in epoch milliseconds; the clock may be later when it fires.
    """

    key: Any
    name: str
    time: int
    kind: TimerKind

    def record(self, value: Any) -> Record[Any, Any]:
        """A record of the timer's key at the timer's time.

        Example:
            >>> Timer("order-7", "", 1_000, TimerKind.EVENT_TIME).record("expired")
            Record(key='order-7', value='expired', timestamp=1000, headers=())
        """
        return Record(self.key, value, self.time)


class View(NamedTuple):
    """How a join reads a table: the newest entry of a key, or the one valid as of a time (versioned tables only)."""

    get: Callable[[Any], ValueAndTimestamp[Any] | None]
    get_as_of: Callable[[Any, int], ValueAndTimestamp[Any] | None]
    is_versioned: bool


class Clock(Protocol):
    """Stream time as one place in the topology has observed it."""

    @property
    def time(self) -> int:
        """The highest event time observed, -1 before the first."""

    def observe(self, timestamp: int) -> int:
        """Observe a record's event time; return the stream time."""


class HostTime(Protocol):
    """The clocks that a lane gives a node, and what a node can have called when a time is reached."""

    def clock(self, name: str) -> Clock:
        """A named stream clock of the lane; the same name is the same clock."""

    def stream_time(self) -> int:
        """The lane's stream time."""

    def event_time(self) -> int:
        """The clock of event-time timers: the watermark if there is one, else the lane's stream time; -1 before both."""

    def wall_clock(self) -> int:
        """The host's current time in epoch milliseconds."""

    @property
    def has_watermarks(self) -> bool:
        """Whether any source declares a watermark, so that buffers wait for the application's."""

    def wait_for_watermark(self, due: Callable[[], int], reach: Callable[[int], None]) -> None:
        """Call `reach(watermark)`, before records, as soon as the application's watermark is at least `due()`."""

    def schedule(
        self,
        interval_ms: int,
        kind: PunctuationType,
        punctuate: Callable[[int], None],
        start_ms: int | None = None,
        *,
        is_late: bool = False,
    ) -> Scheduled:
        """Call `punctuate(timestamp)` at every interval, anchored at `start_ms` if given.

        One that `is_late` was not scheduled by `init`: the next `init` will not schedule it, so nothing of it is stored.
        """

    def resume(self, scheduled: Scheduled) -> None:
        """Go on calling what was scheduled in an earlier lane."""

    def add_timers(self, queue: TimerQueue) -> None:
        """Fire the node's timers when they are due, ordered by time among the timers of all nodes of the lane."""


class Host(Protocol):
    """What a lane offers the node it binds. Names are those of the topology."""

    metrics: UserMetrics
    """The metrics of user code in this lane."""

    retried: Wrap
    """Has a function that reads, calls the user's code, and writes nothing, retried: an attempt begins with what is stored."""

    @property
    def node(self) -> str:
        """The name of the node being bound."""

    @property
    def time(self) -> HostTime:
        """Clocks, and what waits for them."""

    @property
    def cursor(self) -> HostCursor:
        """The current record."""

    def store(self, name: str) -> Any:
        """A typed store of this lane."""

    def user_store(self, name: str) -> Any:
        """A store for user code; it must be connected to the node."""

    def spec(self, name: str) -> StoreSpec:
        """The declaration of a store."""

    def register(self, name: str, initial: int) -> Register:
        """A named integer of the lane's state; the same name is the same register."""

    def owns(self, key: bytes) -> bool:
        """Whether this lane processes records of this key."""

    def child(self, name: str) -> Process:
        """The child of the node with this name."""

    def side_output(self, name: str) -> Process:
        """A side output of the node; it must be declared."""

    def view(self, table: str) -> View:
        """How to read the table that the named node produces."""

    def failed(self, error: Raised, key: Any) -> None:
        """Report that the node's code failed on a record; an `ATTRIBUTED` error, of a node further down, is raised again."""

    def late(self, handler: ErrorHandler, error: Exception, key: Any) -> None:
        """Report that the current record is late; its source's handler decides what happens to it."""

    def dropped(self, reason: str) -> None:
        """Count a record that the node skipped by its semantics (null key, late, expired)."""

    def request_commit(self) -> None:
        """Request epochs that end early."""

    def pending(self, store: str, flush: Callable[[dict[Any, Any]], None]) -> dict[Any, Any]:
        """Pending changes of a cached store; `flush` receives them when the epoch ends, in store order."""

    def on_flush(self, store: str, flush: Callable[[], None]) -> None:
        """Call `flush` when the epoch ends, in store order.

        Of several nodes with one store, only the last in the topology is called: it registers first, because nodes are bound
        in reverse order.
        """

    def asking(self, call: Call, take: Callable[[Request, Any], None]) -> Callable[[Request], None]:
        """Make calls when the epoch ends; return the function that accepts a request while its record is current.

        `take` receives each request with its answer, in the order of requests, with its record as the current one. Results must
        go through an exchange, because the records of the epoch are already processed.
        """

    def on_start(self, start: Callable[[], None]) -> None:
        """Call `start` once all nodes are bound, in topological order."""

    def resident(self, make: Callable[..., R], setup: Callable[[], Any] | None = None, part: str = "") -> R:
        """An object of the node that stays while lanes are bound anew: `make` is called only if there is none.

        With `setup`, it is called with the client that `setup` has opened for the node in this process. A node may have several
        objects, one for each `part`.
        """


class Lineage(Enum):
    """What the results of a node follow from, besides the current record, and what it keeps of records for others to find.

    Traces go by it. What is kept is found by key, by all nodes that use the first store of the node that keeps it.
    """

    PLAIN = "follows from the current record alone"
    REPLACES = "keeps the last record of a key"
    KEEPS = "keeps records"
    MEETS = "follows also from what is kept for the key"
    GATHERS = "keeps records, and follows from all that is kept for the key"


class Operator(ABC):
    """What a node does, as a frozen, picklable value; `bind` makes it runnable."""

    runs_user_objects: ClassVar[bool] = False
    """Whether it runs a user's processor, which may read the time at any record and schedule punctuators."""

    runs_serially: ClassVar[bool] = False
    """Whether it uses the stores of all lanes at once, so that it must run alone in its own stage."""

    is_repeatable: ClassVar[bool] = False
    """Whether a record may be processed twice without side effects: it gives at most one record, which depends on it alone."""

    retries_what_it_reads: ClassVar[bool] = False
    """Whether its functions get what is stored, which they may change: it is read for each attempt (`Host.retried`)."""

    lineage: ClassVar[Lineage] = Lineage.PLAIN
    """What its results follow from."""

    windows_include_end: ClassVar[bool] = False
    """Whether records at the very end of a window have a part in its result."""

    @abstractmethod
    def bind(self, host: Host, forward: Process) -> Process:
        """Return the node's `process`, bound to its host and to `forward`, which passes a record to all children."""

    def wrapped(self, function: Wrap, supplier: Wrap) -> Operator:
        """The same with the user's code wrapped: functions, and what makes processors, which can forward and write to stores."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        wrap = supplier if self.runs_user_objects else function
        code = {name: wrap(value) for name, value in given.items() if callable(value)}
        return replace(self, **code) if code else self  # type: ignore[type-var]


class TableOperator(Operator):
    """An operator whose output is a table: it forwards `Change` values and can be read by key."""

    @abstractmethod
    def view(self, host: Host) -> View:
        """How downstream joins read the table."""


@dataclass(frozen=True, slots=True)
class Cancellable:
    """A scheduled punctuator."""

    cancel: Callable[[], None]
    """Cancel it: it does not fire again, until the application is started again and `init` schedules it anew."""


class Timers(Protocol):
    """The timers of a processor for the current key: that of the record, or of the timer that fires.

    A timer is identified by its key and its name; the key is always the current one. Registering it again, on either clock,
    replaces it. If `on_timer` registers a timer that is not later than the current one, it fires once the clock has advanced.
    """

    def processing_time(self, *, after: Duration | None = None, at: Instant | None = None, name: str = "") -> None:
        """Call `on_timer` once the wall clock reaches `at`, or `after` this duration from now."""

    def event_time(self, *, after: Duration | None = None, at: Instant | None = None, name: str = "") -> None:
        """Call `on_timer` once event time reaches `at`, or `after` this duration from the current record or event-time timer.

        Event time is the application's watermark if a source declares one, and the lane's stream time otherwise.
        """

    def get(self, name: str = "") -> Timer | None:
        """The timer with this name; None if there is none."""

    def all(self) -> list[Timer]:
        """All timers of the key, by name."""

    def delete(self, name: str = "") -> bool:
        """Delete the timer with this name; return whether there was one."""


class ProcessorContext(Protocol[KOut, VOut]):
    """What a `Processor` can do besides computing."""

    def forward(self, record: Record[KOut, VOut], child: str | None = None) -> None:
        """Pass a record to all children of this processor, or to the named one."""

    def side_output(self, name: str, record: Record[Any, Any]) -> None:
        """Send a record to the stream that was declared as `side_output(name)` of this processor's result."""

    def store(self, name: str) -> Any:
        """A store that is connected to this processor."""

    def schedule(
        self, interval: Duration, kind: PunctuationType, callback: Callable[[int], None], start: Instant | None = None
    ) -> Cancellable:
        """Call `callback(timestamp_ms)` every `interval` of stream time or of wall-clock time, anchored at `start`."""

    @property
    def timers(self) -> Timers:
        """Timers of the current key, for processors that override `on_timer`."""

    @property
    def metrics(self) -> UserMetrics:
        """Counters, gauges and histograms of the processor's own; they count what is committed."""

    def commit(self) -> None:
        """Request a commit as soon as possible.

        Everything processed before this call is committed at the end of the current epoch, never in a later one. The following
        epochs are small (`small_epoch_records`) and do not wait for `epoch_interval`, as long as each requests a commit again.
        Kafka Streams commits after the current record; here, the epoch processes the records that it has already read first.
        """

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the current record; None inside a punctuator."""

    def current_stream_time_ms(self) -> int:
        """The highest event time seen so far, -1 before the first record."""

    def current_system_time_ms(self) -> int:
        """The wall clock, which a test can move."""


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """User code that processes one record at a time and may keep state and timers.

    Subclass it, override `process`, and pass the class (or a function that returns an instance) to `KStream.process` or
    `Topology.add_processor`. `init` sets `self.context`.
    """

    context: ProcessorContext[KOut, VOut]

    transient: ClassVar[Collection[str]] = ()
    """Attributes that change after `init`, and that may be lost at any time, such as caches. Tests do not compare them."""

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Called before the first record; override to look up stores, schedule punctuators and open connections.

        A processor lives as long as its shard stays in its process. Then `close` is called and another processor begins, here or
        elsewhere: after a crash, a failed epoch or a move. What must outlive that belongs in a store, not on `self`.
        """
        self.context = context

    def process(self, record: Record[KIn, VIn]) -> None:
        """Called for every record."""
        raise NotImplementedError

    def on_timer(self, timer: Timer) -> None:
        """Called when a timer that was registered with `self.context.timers` is due, in the lane of its key, between records.

        A processor whose class overrides this has its own store of timers.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Called once when the processor is no longer needed."""


class FixedKeyProcessor(Processor[KIn, VIn, Any, VOut]):
    """A processor that may change anything but the key, so its result needs no re-keying."""


class ValueTransformer(Generic[KIn, VIn, VOut]):
    """Stateful replacement of a table's values; see `KTable.transform_values`."""

    context: ProcessorContext[Any, Any]

    transient: ClassVar[Collection[str]] = ()
    """See `Processor.transient`."""

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        """Called before the first value; the transformer lives as long as its shard stays in its process."""
        self.context = context

    def transform(self, key: KIn, value: VIn) -> VOut:
        """The new value."""
        raise NotImplementedError

    def close(self) -> None:
        """Called once when the transformer is no longer needed."""
