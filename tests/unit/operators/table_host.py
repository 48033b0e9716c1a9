"""A lane of table nodes: the real stores in memory, exchanges as a queue, and what the last nodes forward as output."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from penstock.errors import ATTRIBUTED, ProcessingError
from penstock.processor import Host, Operator, TableOperator, View
from penstock.records import NO_HEADERS, Headers, Process, RecordMetadata
from penstock.serdes import Int64, Serde, String
from penstock.state import LaneState, StoreKind, StoreSpec, memory_engine


class Out(NamedTuple):
    """A record that left the lane."""

    key: Any
    value: Any
    timestamp: int


@dataclass(frozen=True)
class Exchange(Operator):
    """Serializes records out of the lane and brings them back when the bench delivers them."""

    key: Serde[Any]
    value: Serde[Any]

    def bind(self, host: Host, forward: Process) -> Process:
        queue = cast("NodeHost", host).bench.exchanges.setdefault(host.node, deque())

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            row = None if key is None else self.key.serialize(key), self.value.serialize(value)
            queue.append(lambda: deliver(*row, timestamp, headers))

        def deliver(key: bytes | None, value: bytes, timestamp: int, headers: Headers) -> None:
            forward(None if key is None else self.key.deserialize(key), self.value.deserialize(value), timestamp, headers)

        return process


@dataclass(frozen=True)
class Refusing(Operator):
    """A node below that fails with an error that already names its node."""

    def bind(self, host: Host, forward: Process) -> Process:
        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            raise ProcessingError("refused")

        return process


class NodeHost:
    """The host of one node of the bench."""

    has_watermarks = False

    def __init__(self, bench: Bench, node: str) -> None:
        self.bench = bench
        self.node = node

    @property
    def time(self) -> NodeHost:
        return self

    @property
    def cursor(self) -> NodeHost:
        return self

    def late(self, handler: Any, error: Exception, key: Any) -> None:
        raise NotImplementedError

    def wait_for_watermark(self, due: Callable[[], int], reach: Callable[[int], None]) -> None:
        """No source has a watermark here."""

    def store(self, name: str) -> Any:
        return self.bench.state.store(self.bench.specs[name])

    user_store = store

    def spec(self, name: str) -> StoreSpec:
        return self.bench.specs[name]

    def view(self, table: str) -> View:
        return self.bench.view(table)

    def retried(self, attempt: Callable[..., Any]) -> Callable[..., Any]:
        return attempt

    def failed(self, error: Exception | SystemExit, key: Any) -> None:
        if isinstance(error, ATTRIBUTED):
            raise error
        self.bench.failures.append((self.node, error, key))
        if not self.bench.goes_on:
            raise ProcessingError(f"{self.node}: {error}") from error

    def dropped(self, reason: str) -> None:
        self.bench.drops.append((self.node, reason))

    def pending(self, store: str, flush: Callable[[dict[Any, Any]], None]) -> dict[Any, Any]:
        changes = self.bench.pending.setdefault(store, {})
        self.on_flush(store, lambda: flush(changes))
        return changes

    def on_flush(self, store: str, flush: Callable[[], None]) -> None:
        self.bench.flushes.setdefault(store, flush)  # the last node in the topology is bound first

    def on_start(self, start: Callable[[], None]) -> None:
        self.bench.starts.append(start)

    def resident(self, make: Callable[..., Any], setup: Any = None, part: str = "") -> Any:
        made = make()
        self.bench.closes.append(made.close)
        return made

    def cause(self) -> int:
        return self.bench.piped

    def metadata(self) -> RecordMetadata | None:
        return self.bench.origin

    @contextmanager
    def at(self, origin: RecordMetadata | None) -> Iterator[None]:
        before, self.bench.origin = self.bench.origin, origin
        try:
            yield
        finally:
            self.bench.origin = before

    def stream_time(self) -> int:
        return self.bench.stream_time


class Bench:
    """Nodes in topological order; those without children forward to `out`."""

    def __init__(self, *specs: StoreSpec) -> None:
        self.specs = {spec.name: spec for spec in specs}
        self.state = LaneState(memory_engine())
        self.stream_time = -1
        self.goes_on = False
        self.auto_deliver = True
        self.piped = 0  # every record is its own cause
        self.drops: list[tuple[str, str]] = []
        self.failures: list[tuple[Any, ...]] = []
        self.headers: list[Headers] = []
        self.out: list[Out] = []
        self.exchanges: dict[str, deque[Callable[[], None]]] = {}
        self.origin: RecordMetadata | None = None
        self.pending: dict[str, dict[Any, Any]] = {}
        self.flushes: dict[str, Callable[[], None]] = {}
        self.starts: list[Callable[[], None]] = []
        self.closes: list[Callable[[], None]] = []
        self._nodes: dict[str, tuple[Operator, tuple[str, ...]]] = {}
        self._bound: dict[str, Process] = {}
        self._views: dict[str, View] = {}

    def add(self, name: str, operator: Operator, *parents: str) -> Bench:
        self._nodes[name] = (operator, parents)
        return self

    def pipe(self, node: str, key: Any, value: Any, timestamp: int = 0, headers: Headers = NO_HEADERS) -> list[Out]:
        """Process a record at a node and return the output."""
        self.piped += 1
        self._bind()
        self.stream_time = max(self.stream_time, timestamp)
        self._bound[node](key, value, timestamp, headers)
        if self.auto_deliver:
            self.deliver()
        return self.take()

    def deliver(self) -> None:
        """Deliver all records in exchanges."""
        while any(self.exchanges.values()):
            for queue in self.exchanges.values():
                if queue:
                    queue.popleft()()

    def flush(self) -> list[Out]:
        """End the epoch and return the output."""
        for flush in reversed(self.flushes.values()):  # nodes are bound from the last to the first
            flush()
            self.deliver()
        return self.take()

    def take(self) -> list[Out]:
        taken, self.out = self.out, []
        return taken

    def view(self, table: str) -> View:
        if table not in self._views:
            operator = cast("TableOperator", self._nodes[table][0])
            self._views[table] = operator.view(self.host(table))
        return self._views[table]

    def rows(self, store: str) -> dict[Any, Any]:
        return dict(self.state.store(self.specs[store]).items())

    def host(self, node: str) -> Host:
        return cast("Host", NodeHost(self, node))

    def _bind(self) -> None:
        if self._bound:
            return
        for name, (operator, _) in reversed(self._nodes.items()):
            children = [self._bound[child] for child, (_, parents) in self._nodes.items() if name in parents]
            self._bound[name] = operator.bind(self.host(name), _fan_out(children) if children else self._collect)
        for start in reversed(self.starts):
            start()

    def _collect(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.out.append(Out(key, value, timestamp))
        self.headers.append(headers)


def _fan_out(children: list[Process]) -> Process:
    def forward(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for child in children:
            child(key, value, timestamp, headers)

    return forward


def table(name: str, value: Serde[Any] | None = None, *, cached: bool = False, key: Serde[Any] | None = None) -> StoreSpec:
    """A timestamped store of strings by string."""
    return StoreSpec(
        name, StoreKind.TIMESTAMPED, String() if key is None else key, String() if value is None else value, cached=cached
    )


def versioned_table(name: str, history_ms: int = 100) -> StoreSpec:
    """A versioned store of strings by string."""
    return StoreSpec(name, StoreKind.VERSIONED, String(), String(), retention_ms=history_ms)


def number_table(name: str, *, cached: bool = False) -> StoreSpec:
    """A timestamped store of integers by string."""
    return table(name, Int64(), cached=cached)


def apply(rows: dict[Any, Any], outputs: list[Out]) -> dict[Any, Any]:
    """Return a table's content after the lane has forwarded these plain values."""
    for key, value, _ in outputs:
        if value is None:
            rows.pop(key, None)
        else:
            rows[key] = value
    return rows
