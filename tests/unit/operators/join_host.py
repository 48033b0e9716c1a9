"""A lane in memory for operator tests: nodes that are bound once, or again for every record as on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from penstock.errors import ATTRIBUTED, ProcessingError
from penstock.metrics import UserMetrics
from penstock.processor import Operator, View, Wrap
from penstock.records import NO_HEADERS, Headers, Process, RecordMetadata
from penstock.state import LaneState, Register, StoreSpec, memory_engine


class Out(NamedTuple):
    """A record that left the lane."""

    key: Any
    value: Any
    timestamp: int


class RegisterClock:
    """Stream time in a register of the lane."""

    def __init__(self, register: Register) -> None:
        self._register = register

    @property
    def time(self) -> int:
        return self._register.value

    @property
    def reached(self) -> int:
        return -1

    def observe(self, timestamp: int) -> int:
        self._register.value = max(self._register.value, timestamp)
        return self._register.value


class MemoryHost:
    """Hosts the nodes of a test: each input is a chain of operators, the last of which forwards to `out`."""

    node = "the-node"

    def __init__(self, *specs: StoreSpec, views: dict[str, View] | None = None, rebind: bool = False) -> None:
        self.state = LaneState(memory_engine())
        self.metrics = UserMetrics()
        self.retried: Wrap = lambda attempt: attempt
        self.specs = {spec.name: spec for spec in specs}
        self.views = views or {}
        self.rebind = rebind
        self.go_on = False
        self.epoch = 0
        self.drops: list[str] = []
        self.failures: list[Exception | SystemExit] = []
        self.out: list[Out] = []
        self.headers: list[Headers] = []
        self.origin: RecordMetadata | None = RecordMetadata("in", 0, 0)
        self._inputs: dict[str, tuple[Operator, ...]] = {}
        self._bound: dict[str, Process] = {}

    @property
    def time(self) -> MemoryHost:
        return self

    @property
    def cursor(self) -> MemoryHost:
        return self

    def add(self, name: str, *operators: Operator) -> None:
        self._inputs[name] = operators

    def pipe(self, name: str, key: Any, value: Any, timestamp: int, headers: Headers = NO_HEADERS) -> list[Out]:
        """Process a record in its own epoch and return the output."""
        if self.rebind:
            self._bound.clear()
        if not self._bound:
            self._bound = {each: self._chain(operators) for each, operators in self._inputs.items()}
        self._bound[name](key, value, timestamp, headers)
        self.epoch += 1
        self.state.commit(self.epoch)
        return self.take()

    def take(self) -> list[Out]:
        taken, self.out = self.out, []
        return taken

    def _chain(self, operators: tuple[Operator, ...]) -> Process:
        process: Process = self._collect
        for operator in reversed(operators):
            process = operator.bind(self, process)
        return process

    def _collect(self, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        self.out.append(Out(key, value, timestamp))
        self.headers.append(headers)

    def store(self, name: str) -> Any:
        return self.state.store(self.specs[name])

    def spec(self, name: str) -> StoreSpec:
        return self.specs[name]

    def view(self, table: str) -> View:
        return self.views[table]

    def failed(self, error: Exception | SystemExit, key: Any) -> None:
        if isinstance(error, ATTRIBUTED):
            raise error
        self.failures.append(error)
        if not self.go_on:
            raise ProcessingError(str(error)) from error

    def dropped(self, reason: str) -> None:
        self.drops.append(reason)

    def register(self, name: str, initial: int) -> Any:
        return self.state.registers.register(name, initial)

    def clock(self, name: str) -> RegisterClock:
        return RegisterClock(self.state.registers.register(f"clock/{name}", -1))

    def cause(self) -> int:
        return 0

    def metadata(self) -> RecordMetadata | None:
        return self.origin

    @contextmanager
    def at(self, origin: RecordMetadata | None) -> Iterator[None]:
        before, self.origin = self.origin, origin
        try:
            yield
        finally:
            self.origin = before

    def child(self, name: str) -> Process:
        raise NotImplementedError

    def side_output(self, name: str) -> Process:
        raise NotImplementedError

    def user_store(self, name: str) -> Any:
        raise NotImplementedError

    def pending(self, store: str, flush: Callable[[dict[Any, Any]], None]) -> dict[Any, Any]:
        raise NotImplementedError

    def on_flush(self, store: str, flush: Callable[[], None]) -> None:
        raise NotImplementedError

    def asking(self, call: Any, take: Callable[[Any, Any], None]) -> Callable[[Any], None]:
        raise NotImplementedError

    def on_start(self, start: Callable[[], None]) -> None:
        raise NotImplementedError

    def schedule(
        self,
        interval_ms: int,
        kind: Any,
        punctuate: Callable[[int], None],
        start_ms: int | None = None,
        *,
        is_late: bool = False,
    ) -> Any:
        raise NotImplementedError

    def resume(self, scheduled: Any) -> None:
        raise NotImplementedError

    def resident(self, make: Callable[..., Any], setup: Any = None, part: str = "") -> Any:
        raise NotImplementedError

    def request_commit(self) -> None:
        raise NotImplementedError

    def stream_time(self) -> int:
        raise NotImplementedError

    def wall_clock(self) -> int:
        raise NotImplementedError

    def event_time(self) -> int:
        raise NotImplementedError

    has_watermarks = False

    def late(self, handler: Any, error: Exception, key: Any) -> None:
        raise NotImplementedError

    def wait_for_watermark(self, due: Callable[[], int], reach: Callable[[int], None]) -> None:
        """No source has a watermark here."""

    def add_timers(self, queue: Any) -> None:
        raise NotImplementedError

    def at_timer(self, key: bytes, time: int) -> None:
        raise NotImplementedError

    def owns(self, key: bytes) -> bool:
        raise NotImplementedError
