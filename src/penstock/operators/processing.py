"""Hosts user processors: `Processor` and `FixedKeyProcessor` behind the same port as built-in operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.errors import ATTRIBUTED, TopologyError
from penstock.processor import Cancellable, Host, Operator, Processor, PunctuationType
from penstock.records import Headers, Process, Record, RecordMetadata
from penstock.timing import duration_ms, instant_ms

Supplier = Callable[[], Processor[Any, Any, Any, Any]]
"""A processor class, or a function without arguments that makes a processor."""


@dataclass(frozen=True, slots=True)
class Processing(Operator):
    """Runs a user's processor."""

    runs_user_objects: ClassVar[bool] = True

    supplier: Supplier
    fixed_key: bool

    @property
    def follows_stream_time(self) -> bool:
        """See `Operator`."""
        return True

    def bind(self, host: Host, forward: Process) -> Process:
        processor = self.supplier()
        if not isinstance(processor, Processor):
            raise TopologyError(f"{host.node}: the supplier made a {type(processor).__name__}; it must make a Processor")
        context = Context(host, forward)
        host.on_start(lambda: processor.init(context))
        host.on_close(processor.close)
        run, failed, fixed_key = processor.process, host.failed, self.fixed_key

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                if fixed_key:
                    context.fixed_key = key
                run(Record(key, value, timestamp, headers))
            except ATTRIBUTED:
                raise
            except Exception as error:
                failed(error, key, value, timestamp, headers)

        if fixed_key:
            context.check_key = True
        return process


class Context:
    """The `ProcessorContext` of one user processor."""

    __slots__ = ("_forward", "_host", "check_key", "fixed_key")

    def __init__(self, host: Host, forward: Process) -> None:
        self._host = host
        self._forward = forward
        self.check_key = False
        self.fixed_key: Any = None

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        """Hand a record on."""
        if self.check_key and record.key is not self.fixed_key and record.key != self.fixed_key:
            self._refuse_key()
        if record.timestamp < 0:
            self._refuse_timestamp(record)
        forward = self._forward if child is None else self._host.child(child)
        forward(record.key, record.value, record.timestamp, record.headers)

    def side_output(self, name: str, record: Record[Any, Any]) -> None:
        """Send a record aside."""
        if self.check_key and record.key is not self.fixed_key and record.key != self.fixed_key:
            self._refuse_key()
        if record.timestamp < 0:
            self._refuse_timestamp(record)
        self._host.side_output(name)(record.key, record.value, record.timestamp, record.headers)

    def store(self, name: str) -> Any:
        """A store connected to this processor."""
        return self._host.user_store(name)

    def schedule(self, interval: Any, kind: PunctuationType, callback: Callable[[int], None], start: Any = None) -> Cancellable:
        """Call back at every interval."""
        start_ms = None if start is None else instant_ms(start)
        return Cancellable(self._host.schedule(duration_ms(interval), kind, callback, start_ms))

    def commit(self) -> None:
        """An early end of the epoch, where the host can give one."""
        self._host.request_commit()

    @property
    def record_metadata(self) -> RecordMetadata | None:
        """Where the record in hand came from."""
        return self._host.metadata()

    def current_stream_time_ms(self) -> int:
        """Stream time."""
        return self._host.stream_time()

    def current_system_time_ms(self) -> int:
        """Wall-clock time."""
        return self._host.wall_clock()

    def _refuse_key(self) -> None:
        raise ValueError(f"{self._host.node}: a FixedKeyProcessor must not change the key; use process() instead")

    def _refuse_timestamp(self, record: Record[Any, Any]) -> None:
        raise ValueError(f"{self._host.node}: a record needs a timestamp of 0 or later, not {record.timestamp}")
