"""`MockProcessorContext`: for tests of a processor by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from penstock.errors import TopologyError
from penstock.metrics import UserMetrics
from penstock.processor import Cancellable, PunctuationType
from penstock.records import NO_TIMESTAMP, Record, RecordMetadata
from penstock.state import LaneState, StoreSpec, memory_engine
from penstock.timing import Duration, Instant, duration_ms


class Forwarded(NamedTuple):
    """A record that was forwarded, to the child with this name, or to all children."""

    record: Record[Any, Any]
    child: str | None = None


@dataclass
class Scheduled:
    """A punctuator; call `punctuate(timestamp)` to run it."""

    interval_ms: int
    kind: PunctuationType
    punctuate: Callable[[int], None]
    is_cancelled: bool = False


class MockProcessorContext:
    """A `ProcessorContext` that records what a processor does: pass it to `init`, then call `process`.

    Stores are in memory. Nothing happens by itself: set `stream_time_ms`, `system_time_ms` and `record_metadata`, and call
    punctuators. For timers, and for nodes together, use `TopologyTestDriver`.

    Example:
        >>> from penstock import Processor, Record, key_value_store
        >>> from penstock.testing import MockProcessorContext
        >>> class Count(Processor):
        ...     def process(self, record):
        ...         counts = self.context.store("counts")
        ...         counts[record.key] = (counts.get(record.key) or 0) + 1
        ...         self.context.forward(record.with_value(counts[record.key]))
        >>> context, count = MockProcessorContext(key_value_store("counts", value=int)), Count()
        >>> count.init(context)
        >>> count.process(Record("ann", "click", 5))
        >>> [forwarded.record.value for forwarded in context.forwarded], context.store("counts")["ann"]
        ([1], 1)
    """

    def __init__(self, *stores: StoreSpec) -> None:
        self._state = LaneState(memory_engine())
        self._specs = {spec.name: spec for spec in stores}
        self.forwarded: list[Forwarded] = []
        self.side_outputs: list[tuple[str, Record[Any, Any]]] = []
        self.scheduled: list[Scheduled] = []
        self.has_committed: bool = False
        self.metrics: UserMetrics = UserMetrics()
        """The processor's metrics: `context.metrics["orders_rejected"].value`."""
        self.stream_time_ms: int = NO_TIMESTAMP
        self.system_time_ms: int = 0
        self.record_metadata: RecordMetadata | None = None

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        """Record it in `forwarded`."""
        self.forwarded.append(Forwarded(record, child))

    def side_output(self, name: str, record: Record[Any, Any]) -> None:
        """Record it in `side_outputs`."""
        self.side_outputs.append((name, record))

    def store(self, name: str) -> Any:
        """Return one of the stores."""
        spec = self._specs.get(name)
        if spec is None:
            known = ", ".join(self._specs) or "none"
            raise TopologyError(f"Unknown store {name!r}. Stores of this context: {known}.")
        return self._state.store(spec)

    def schedule(
        self, interval: Duration, kind: PunctuationType, callback: Callable[[int], None], start: Instant | None = None
    ) -> Cancellable:
        """Record it in `scheduled`."""
        scheduled = Scheduled(duration_ms(interval), kind, callback)
        self.scheduled.append(scheduled)

        def cancel() -> None:
            scheduled.is_cancelled = True

        return Cancellable(cancel)

    @property
    def timers(self) -> NoReturn:
        """Raise: timers need a clock."""
        raise TopologyError("A MockProcessorContext has no timers. Test the processor with TopologyTestDriver.")

    def commit(self) -> None:
        """Set `has_committed`."""
        self.has_committed = True

    def current_stream_time_ms(self) -> int:
        """Return `stream_time_ms`."""
        return self.stream_time_ms

    def current_system_time_ms(self) -> int:
        """Return `system_time_ms`."""
        return self.system_time_ms
