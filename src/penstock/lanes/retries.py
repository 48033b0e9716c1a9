"""Which code of a node can be called again when it fails: that which has done nothing yet that would then be done twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.errors import ATTRIBUTED
from penstock.processor import Operator, Processor, ProcessorContext, Timer, ValueTransformer
from penstock.records import Record

Persistence = Callable[[Exception, Callable[[], Any], Callable[[], bool]], Any]
"""`again(error, attempt, is_clean)`: what further attempts give, made as long as the last has left nothing behind; or raises."""

READS = frozenset(
    {
        *("all", "approximate_num_entries", "entries", "entry", "fetch", "fetch_all", "fetch_entry", "fetch_keys", "fetch_range"),
        *(
            "fetch_session",
            "find_by_end_range",
            "find_sessions",
            "find_sessions_by_keys",
            "get",
            "history",
            "items",
            "keys",
            "name",
            "newest",
        ),
        *("observed_stream_time", "prefix_scan", "range", "reverse_all", "reverse_range", "values"),
    }
)
"""What of a store only reads. All else counts as a write."""


def persistent(operator: Operator, again: Persistence) -> Operator:
    """The operator with its functions, or its processor, called again by `again` when they fail.

    A function that is given to a verb can neither forward nor write to a store, so it can always be called again. A processor
    can do both, and is watched.
    """
    return operator.wrapped(
        function=lambda function: _repeated(function, again),
        supplier=lambda supplier: lambda: _watched(supplier(), again),
    )


def _repeated(function: Callable[..., Any], again: Persistence) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ATTRIBUTED:
            raise
        except Exception as error:
            return again(error, lambda: function(*arguments), lambda: True)

    return call


def _watched(user_object: Any, again: Persistence) -> Any:
    if isinstance(user_object, Processor):
        return WatchedProcessor(user_object, again)
    if isinstance(user_object, ValueTransformer):
        return WatchedTransformer(user_object, again)
    return user_object  # which its operator refuses


class Watch:
    """Whether the attempt under way has left anything behind."""

    __slots__ = ("is_clean",)

    def __init__(self) -> None:
        self.is_clean: bool = True

    def run(self, call: Callable[[], Any], again: Persistence) -> Any:
        """Call, and call again."""

        def attempt() -> Any:
            self.is_clean = True
            return call()

        try:
            return attempt()
        except ATTRIBUTED:
            raise
        except Exception as error:
            return again(error, attempt, lambda: self.is_clean)


class WatchedProcessor(Processor[Any, Any, Any, Any]):
    """A user's processor, whose `process` may be called again."""

    def __init__(self, processor: Processor[Any, Any, Any, Any], again: Persistence) -> None:
        self._processor = processor
        self._again = again
        self._watch = Watch()

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        """See `Processor`."""
        self._processor.init(WatchedContext(context, self._watch))

    def process(self, record: Record[Any, Any]) -> None:
        """See `Processor`."""
        self._watch.run(lambda: self._processor.process(record), self._again)

    def on_timer(self, timer: Timer) -> None:
        """See `Processor`."""
        self._watch.run(lambda: self._processor.on_timer(timer), self._again)

    def close(self) -> None:
        """See `Processor`."""
        self._processor.close()


class WatchedTransformer(ValueTransformer[Any, Any, Any]):
    """A user's transformer, whose `transform` may be called again."""

    def __init__(self, transformer: ValueTransformer[Any, Any, Any], again: Persistence) -> None:
        self._transformer = transformer
        self._again = again
        self._watch = Watch()

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        """See `ValueTransformer`."""
        self._transformer.init(WatchedContext(context, self._watch))

    def transform(self, key: Any, value: Any) -> Any:
        """See `ValueTransformer`."""
        return self._watch.run(lambda: self._transformer.transform(key, value), self._again)

    def close(self) -> None:
        """See `ValueTransformer`."""
        self._transformer.close()


class WatchedContext:
    """A context that takes note when a record is sent on."""

    __slots__ = ("_context", "_watch")

    def __init__(self, context: ProcessorContext[Any, Any], watch: Watch) -> None:
        self._context = context
        self._watch = watch

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        """Hand a record on."""
        self._context.forward(record, child)
        self._watch.is_clean = False

    def side_output(self, name: str, record: Record[Any, Any]) -> None:
        """Send a record aside."""
        self._context.side_output(name, record)
        self._watch.is_clean = False

    def store(self, name: str) -> Any:
        """A store that takes note when it is written."""
        return WatchedStore(self._context.store(name), self._watch)

    @property
    def timers(self) -> Any:
        """Timers that take note when one is registered or deleted."""
        return WatchedStore(self._context.timers, self._watch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class WatchedStore:
    """A store that takes note when it is written."""

    __slots__ = ("_store", "_watch")

    def __init__(self, store: Any, watch: Watch) -> None:
        self._store = store
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        found, watch = getattr(self._store, name), self._watch
        if name in READS:
            return found

        def write(*arguments: Any, **named: Any) -> Any:
            watch.is_clean = False
            return found(*arguments, **named)

        return write

    def __setitem__(self, key: Any, value: Any) -> None:
        self._watch.is_clean = False
        self._store[key] = value

    def __delitem__(self, key: Any) -> None:
        self._watch.is_clean = False
        del self._store[key]

    def __getitem__(self, key: Any) -> Any:
        return self._store[key]

    def __contains__(self, key: Any) -> bool:
        return key in self._store

    def __iter__(self) -> Iterator[Any]:
        return iter(self._store)

    def __len__(self) -> int:
        return len(self._store)

    def __bool__(self) -> bool:
        return bool(self._store)
