"""A lane with one windowed node: the real stores in memory, and a minimal host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.errors import ATTRIBUTED
from penstock.processor import TableOperator
from penstock.records import NO_HEADERS, Change, Headers, ValueAndTimestamp, Windowed
from penstock.serdes import Int64, Serde, String
from penstock.state import LaneState, MemoryEngine, Register, StoreKind, StoreSpec

STORE = "windows"


class Result(NamedTuple):
    """What the node forwarded."""

    key: str
    start: int
    end: int
    new: Any
    old: Any
    timestamp: int


class Clock:
    """Stream time, the highest event time so far."""

    def __init__(self) -> None:
        self.time = -1

    def observe(self, timestamp: int) -> int:
        self.time = max(self.time, timestamp)
        return self.time


class Bench:
    """Hosts one node; `pipe` processes a record and returns what the node forwarded for it."""

    node = "node"

    has_watermarks = False

    def __init__(
        self,
        operator: Any,
        *,
        cached: bool = False,
        retention_ms: int | None = None,
        value: Serde[Any] | None = None,
        downstream: Callable[[], None] | None = None,
    ) -> None:
        windows = operator.windows
        sessions = not hasattr(windows, "size_ms")
        self.operator: TableOperator = operator
        self._spec = StoreSpec(
            STORE,
            StoreKind.SESSION if sessions else StoreKind.TIMESTAMPED_WINDOW,
            key=String(),
            value=String() if value is None else value,
            retention_ms=windows.retention_ms if retention_ms is None else retention_ms,
            window_size_ms=None if sessions else windows.size_ms,
            time_ordered=operator.emit_on_close,
            cached=cached,
        )
        self._lane = LaneState(MemoryEngine())
        self._store = self._lane.store(self._spec)
        self._clocks: dict[str, Clock] = {}
        self._flush: Callable[[], None] | None = None
        self._pending: dict[Any, Any] = {}
        self._downstream = downstream
        self.registers: dict[str, Register] = {}
        self.drops: list[str] = []
        self.failures: list[tuple[Exception | SystemExit, Any]] = []
        self.results: list[Result] = []
        self.headers: list[Headers] = []
        self.bind()

    @property
    def time(self) -> Bench:
        return self

    @property
    def cursor(self) -> Bench:
        return self

    def late(self, handler: Any, error: Exception, key: Any) -> None:
        raise NotImplementedError

    def wait_for_watermark(self, due: Callable[[], int], reach: Callable[[int], None]) -> None:
        """No source has a watermark here."""

    def bind(self) -> None:
        """Bind the operator (again), as at the start of an epoch."""
        host: Any = self
        self._flush = None
        self._process = self.operator.bind(host, self._forward)
        self._view = self.operator.view(host)

    def pipe(self, key: str | None, value: Any, timestamp: int, headers: Headers = NO_HEADERS) -> list[Result]:
        self.results, self.headers = [], []
        self._process(key, value, timestamp, headers)
        return self.results

    def flush(self) -> list[Result]:
        """Return what a cached store's node forwards at the end of an epoch."""
        assert self._flush is not None
        self.results, self.headers = [], []
        self._flush()
        return self.results

    def get(self, key: str, start: int, end: int) -> ValueAndTimestamp | None:
        return self._view.get(Windowed(key, start, end))

    @property
    def observed_stream_time(self) -> int:
        """The highest time that the store was given."""
        time: int = self._store.observed_stream_time
        return time

    def content(self) -> dict[tuple[str, int, int], Any]:
        """Everything in the store."""
        return {tuple(windowed): value for windowed, value in self._store.all()}

    def _forward(self, key: Any, change: Change, timestamp: int, headers: Headers) -> None:
        assert change.is_latest
        self.results.append(Result(key.key, key.start, key.end, change.new, change.old, timestamp))
        self.headers.append(headers)
        if self._downstream is not None:
            self._downstream()

    # what the node needs from its host

    def store(self, name: str) -> Any:
        assert name == STORE
        return self._store

    def spec(self, name: str) -> StoreSpec:
        assert name == STORE
        return self._spec

    def clock(self, name: str) -> Clock:
        return self._clocks.setdefault(name, Clock())

    def register(self, name: str, initial: int) -> Register:
        return self.registers.setdefault(name, Register(initial))

    def pending(self, store: str, flush: Callable[[dict[Any, Any]], None]) -> dict[Any, Any]:
        assert store == STORE
        self.on_flush(store, lambda: flush(self._pending))
        return self._pending

    def on_flush(self, store: str, flush: Callable[[], None]) -> None:
        assert store == STORE
        self._flush = self._flush or flush  # the last node in the topology is bound first

    def dropped(self, reason: str) -> None:
        self.drops.append(reason)

    def retried(self, attempt: Callable[..., Any]) -> Callable[..., Any]:
        return attempt

    def failed(self, error: Exception | SystemExit, key: Any) -> None:
        if isinstance(error, ATTRIBUTED):
            raise error
        self.failures.append((error, key))


def nothing() -> str:
    """The initial aggregate of most tests."""
    return ""


def append(key: str, value: str | None, aggregate: str | None) -> str | None:
    """The aggregator of most tests: concatenates the values, or returns None."""
    if value == "delete":
        return None
    return (aggregate or "") + ("-" if value is None else value)


def zero() -> int:
    """The initial aggregate for sets of records, one bit per record."""
    return 0


def unite(key: str, one: int, other: int) -> int:
    """An aggregator and a merger for such sets."""
    return one | other


BITS = Int64()
EVER = 10**9
