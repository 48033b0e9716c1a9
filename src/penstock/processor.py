"""The port between what happens to a record and where it happens: operators, user processors and their host.

Built-in operators and user processors stand on the same port, so a lane (in a Spark task or in the test driver)
runs both without knowing which is which.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from penstock.records import Record

if TYPE_CHECKING:
    from penstock.calls import Call, Request
    from penstock.handlers import ErrorHandler
    from penstock.records import Headers, Process, RecordMetadata, ValueAndTimestamp
    from penstock.state import Register, StoreSpec
    from penstock.timing import Duration, Instant

KIn = TypeVar("KIn", contravariant=True)
VIn = TypeVar("VIn", contravariant=True)
KOut = TypeVar("KOut")
VOut = TypeVar("VOut")


class PunctuationType(Enum):
    """Which clock drives a punctuator."""

    STREAM_TIME = "stream_time"
    WALL_CLOCK_TIME = "wall_clock_time"


class TimerKind(IntEnum):
    """Which clock a timer waits for."""

    EVENT_TIME = 0
    PROCESSING_TIME = 1


class Timer(NamedTuple):
    """A timer of one key: what `Processor.on_timer` is given when it fires, and what `Timers` lists before.

    `time` is when it is due, in epoch milliseconds, which may be before the clock that made it fire.
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


class TimerQueue(Protocol):
    """The timers of one node, as the lane sees them."""

    def earliest(self, kind: TimerKind) -> int | None:
        """Before when none of a clock's timers is due; None if there is none."""

    def first(self, kind: TimerKind, now: int) -> int | None:
        """When the first of a clock's timers that have become due is due; None if none has."""

    def fire(self, kind: TimerKind, now: int) -> bool:
        """Fire the first of a clock's timers that have become due; whether there was one."""

    def release(self) -> bool:
        """The round is over: let those fire in the next one that were held back in this; whether any were."""


class View(NamedTuple):
    """How a join reads a table: the newest entry of a key, or the one valid as of a time (versioned tables only)."""

    get: Callable[[Any], ValueAndTimestamp | None]
    get_as_of: Callable[[Any, int], ValueAndTimestamp | None]
    is_versioned: bool


class Clock(Protocol):
    """Stream time as one place in the topology has observed it."""

    @property
    def time(self) -> int:
        """The highest event time observed, -1 before the first."""

    def observe(self, timestamp: int) -> int:
        """Take note of a record's event time and give back the stream time."""


class Host(Protocol):
    """What a lane offers the node it binds. Names are those of the topology."""

    @property
    def node(self) -> str:
        """The name of the node being bound."""

    def store(self, name: str) -> Any:
        """A typed store of this lane."""

    def user_store(self, name: str) -> Any:
        """A store for user code, which must have been connected to the node."""

    def spec(self, name: str) -> StoreSpec:
        """What the store was declared as."""

    def child(self, name: str) -> Process:
        """One named child of the node."""

    def side_output(self, name: str) -> Process:
        """Where records go that the node sends aside under this name, which must have been declared."""

    def view(self, table: str) -> View:
        """How to read the table that the named node produces."""

    def failed(self, error: Exception, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        """Report that the node's code failed on a record; raises an error that names node, line and record."""

    def late(self, handler: ErrorHandler, error: Exception, key: Any) -> None:
        """Report that the record in hand came too late for its source, whose handler says what becomes of it."""

    def dropped(self, reason: str) -> None:
        """Count a record that the node skipped by its semantics (null key, late, expired)."""

    def pending(self, store: str, flush: Callable[[dict[Any, Any]], None]) -> dict[Any, Any]:
        """Changes of a cached store that wait for the end of the epoch; `flush` is given them then, in store order."""

    def on_flush(self, store: str, flush: Callable[[], None]) -> None:
        """Have `flush` called when the epoch ends, in store order.

        Of several nodes with one store the last in the topology is called: the first to ask, for binding goes backwards.
        """

    def asking(self, call: Call, take: Callable[[Request, Any], None]) -> Callable[[Request], None]:
        """Have calls made when the epoch ends: gives what takes a request, while its record is in hand.

        `take` is given each request with its answer, in the order of requests, as if its record were in hand again. What follows
        from answers must go through an exchange: the records of the epoch are done by then.
        """

    def on_start(self, start: Callable[[], None]) -> None:
        """Have `start` called once all nodes are bound, in topological order."""

    def register(self, name: str, initial: int) -> Register:
        """A named integer of the lane's state; the same name is the same register."""

    def clock(self, name: str) -> Clock:
        """A named stream clock of the lane; the same name is the same clock."""

    @property
    def has_watermarks(self) -> bool:
        """Whether sources tell watermarks, so that what is held back waits for the application's."""

    def wait_for_watermark(self, due: Callable[[], int], reach: Callable[[int], None]) -> None:
        """Have `reach(watermark)` called before records as soon as the application's watermark is at least `due()`."""

    def schedule(
        self, interval_ms: int, kind: PunctuationType, punctuate: Callable[[int], None], start_ms: int | None = None
    ) -> Callable[[], None]:
        """Call `punctuate(timestamp)` at every interval, anchored at `start_ms` if given; returns what cancels it."""

    def add_timers(self, queue: TimerQueue) -> None:
        """Have the node's timers fire when they are due, in the order of their times among those of the lane's other nodes."""

    def at_timer(self, key: bytes, time: int) -> None:
        """Say that a timer is in hand, for errors and dead letters to name it."""

    def owns(self, key: bytes) -> bool:
        """Whether records of this key come to this lane."""

    def cause(self) -> int:
        """Which of the epoch's records is in hand, by its number in the order of processing.

        -1 when all are done, -2 while timers fire before the first.
        """

    def on_close(self, close: Callable[[], None]) -> None:
        """Have `close` called when the lane lets go of the node."""

    def request_commit(self) -> None:
        """Ask for epochs that end early."""

    def metadata(self) -> RecordMetadata | None:
        """Where the record in hand came from; None when a timer or a flush is running."""

    def at(self, origin: RecordMetadata | None) -> AbstractContextManager[None]:
        """While a record that was held back goes on, let `metadata` tell where that one came from."""

    def stream_time(self) -> int:
        """The lane's stream time."""

    def event_time(self) -> int:
        """The clock of event-time timers: the watermark if there is one, else the lane's stream time; -1 before both."""

    def wall_clock(self) -> int:
        """The current time in epoch milliseconds, as the host tells it."""


class Operator(ABC):
    """What a node does, as a frozen, picklable value; `bind` makes it run."""

    runs_user_objects: ClassVar[bool] = False
    """Whether a processor of the user's runs here, which may ask for the time at any record and schedule punctuators."""

    runs_serially: ClassVar[bool] = False
    """Whether it works on the stores of all lanes at once, and so alone, in a stage of its own."""

    is_repeatable: ClassVar[bool] = False
    """Whether a record may pass a second time without a trace: at most one comes of each, made from that one alone."""

    @abstractmethod
    def bind(self, host: Host, forward: Process) -> Process:
        """The node's `process`, closed over its host and over `forward`, which hands a record to all children."""


class TableOperator(Operator):
    """An operator whose output is a table: it forwards `Change` values and can be read by key."""

    @abstractmethod
    def view(self, host: Host) -> View:
        """How downstream joins read the table."""


@dataclass(frozen=True, slots=True)
class Cancellable:
    """A scheduled punctuator."""

    cancel: Callable[[], None]
    """Stop it; it does not fire again."""


class Timers(Protocol):
    """The timers of a processor for the key in hand: that of the record, or of the timer that fires.

    A timer is known by its key and its name; the key is always the one in hand. To register it again, on either clock, replaces
    it. What `on_timer` registers for a time that is not later than that of the timer in hand waits until the clock has moved.
    """

    def processing_time(self, *, after: Duration | None = None, at: Instant | None = None, name: str = "") -> None:
        """Call `on_timer` once the wall clock has come to `at`, or `after` so long from now."""

    def event_time(self, *, after: Duration | None = None, at: Instant | None = None, name: str = "") -> None:
        """Call `on_timer` once event time has come to `at`, or so long `after` the record or event-time timer in hand.

        Event time is the application's watermark if a source declares one, and the lane's stream time otherwise.
        """

    def get(self, name: str = "") -> Timer | None:
        """The timer of that name, None if there is none."""

    def all(self) -> list[Timer]:
        """All timers of the key, by name."""

    def delete(self, name: str = "") -> bool:
        """Let the timer of that name never fire; whether there was one."""


class ProcessorContext(Protocol[KOut, VOut]):
    """What a `Processor` can do besides computing."""

    def forward(self, record: Record[KOut, VOut], child: str | None = None) -> None:
        """Hand a record to all children of this processor, or to the named one."""

    def side_output(self, name: str, record: Record[Any, Any]) -> None:
        """Send a record aside, to the stream that was declared as `side_output(name)` of what this processor gives."""

    def store(self, name: str) -> Any:
        """A store that was connected to this processor."""

    def schedule(self, interval: Any, kind: PunctuationType, callback: Callable[[int], None], start: Any = None) -> Cancellable:
        """Call `callback(timestamp_ms)` every `interval` of stream time or of wall-clock time, anchored at `start`."""

    @property
    def timers(self) -> Timers:
        """Timers of the key in hand, for processors that override `on_timer`."""

    def commit(self) -> None:
        """Ask for a commit as soon as possible.

        What was processed up to this call is committed at the end of the epoch in hand, and never waits for a later one. The
        epochs that follow are small (`small_epoch_records`), and come one after the other without waiting for `epoch_interval`,
        as long as somebody has asked in the one before. Kafka Streams commits after the record in hand; here the records that
        this epoch has already taken come first.
        """

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Topic, partition and offset of the record in hand; None inside a punctuator."""

    def current_stream_time_ms(self) -> int:
        """The highest event time seen so far, -1 before the first record."""

    def current_system_time_ms(self) -> int:
        """The wall clock, which a test can move."""


class Processor(Generic[KIn, VIn, KOut, VOut]):
    """User code that sees one record at a time and may keep state and timers.

    Subclass it, override `process`, and pass the class (or a function that makes one) to `KStream.process` or
    `Topology.add_processor`. `self.context` is set by `init`.
    """

    context: ProcessorContext[KOut, VOut]

    def init(self, context: ProcessorContext[KOut, VOut]) -> None:
        """Called before the first record of an epoch; override to look up stores and schedule punctuators.

        A lane may be bound anew for every epoch: what must outlive one belongs in a store, not on `self`.
        """
        self.context = context

    def process(self, record: Record[KIn, VIn]) -> None:
        """Called for every record."""
        raise NotImplementedError

    def on_timer(self, timer: Timer) -> None:
        """Called when a timer that was registered with `self.context.timers` is due, in the lane of its key, between records.

        A processor whose class overrides this keeps its timers in a store of its own.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Called once when the processor is no longer needed."""


class FixedKeyProcessor(Processor[KIn, VIn, Any, VOut]):
    """A processor that may change anything but the key, so nothing has to be re-keyed after it."""


class ValueTransformer(Generic[KIn, VIn, VOut]):
    """Stateful replacement of a table's values; see `KTable.transform_values`."""

    context: ProcessorContext[Any, Any]

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        """Called before the first value of an epoch."""
        self.context = context

    def transform(self, key: KIn, value: VIn) -> VOut:
        """The new value."""
        raise NotImplementedError

    def close(self) -> None:
        """Called once when the transformer is no longer needed."""
