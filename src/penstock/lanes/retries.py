"""Retries the code of a node that fails, as long as it has had no effect that a retry would repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.errors import ATTRIBUTED, FAILURES, failure_of
from penstock.processor import Operator, Processor, ProcessorContext, Timer, ValueTransformer
from penstock.records import Record, wrapped

RetryFunction = Callable[[Exception, Callable[[], Any], Callable[[], bool]], Any]
"""`retry(error, attempt, is_clean)`: makes further attempts while the last one had no effects; returns the result or raises."""

READS = frozenset(
    {
        *("all", "approximate_num_entries", "entries", "entry", "fetch", "fetch_all", "fetch_entry", "fetch_keys", "fetch_range"),
        *("fetch_session", "find_by_end_range", "find_sessions", "find_sessions_by_keys"),
        *("get", "history", "items", "keys", "name", "newest"),
        *("observed_stream_time", "prefix_scan", "range", "reverse_all", "reverse_range", "values"),
    }
)
"""The methods of stores that only read. All others count as writes."""


def retrying(operator: Operator, retry: RetryFunction) -> Operator:
    """Return the operator with its functions, or its processor, retried by `retry` when they fail.

    A function that is passed to a verb can neither forward nor write to a store, so it can always be retried. A processor can do
    both, so its effects are watched. Functions that get what is stored are retried by the operator, which reads it again.
    """
    if operator.retries_what_it_reads:
        return operator
    return operator.wrapped(
        function=lambda function: wrapped(function, lambda plain: retried(plain, retry)),
        supplier=lambda supplier: lambda *client: _watched(supplier(*client), retry),
    )


def retried(function: Callable[..., Any], retry: RetryFunction) -> Callable[..., Any]:
    """Return a function without effects that is retried by `retry` when it fails."""

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except ATTRIBUTED:
            raise
        except FAILURES as error:
            return retry(failure_of(error), lambda: function(*arguments), lambda: True)

    return call


def _watched(user_object: Any, retry: RetryFunction) -> Any:
    if isinstance(user_object, Processor):
        return WatchedProcessor(user_object, retry)
    if isinstance(user_object, ValueTransformer):
        return WatchedTransformer(user_object, retry)
    return user_object  # the operator refuses it


class Watch:
    """Whether the current attempt has had any effect."""

    __slots__ = ("is_clean",)

    def __init__(self) -> None:
        self.is_clean: bool = True

    def run(self, call: Callable[[], Any], retry: RetryFunction) -> Any:
        """Make the call, and retry it if it fails."""

        def attempt() -> Any:
            self.is_clean = True
            return call()

        try:
            return attempt()
        except ATTRIBUTED:
            raise
        except FAILURES as error:
            return retry(failure_of(error), attempt, lambda: self.is_clean)


class _Watched:
    """A user's object whose calls may be retried."""

    def __init__(self, user_object: Any, retry: RetryFunction) -> None:
        self.user_object: Any = user_object
        self._retry = retry
        self._watch = Watch()

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        """Start it, with a context that records effects."""
        self.user_object.init(WatchedContext(context, self._watch))

    def close(self) -> None:
        """Close it."""
        self.user_object.close()


class WatchedProcessor(_Watched, Processor[Any, Any, Any, Any]):
    """A user's processor."""

    def process(self, record: Record[Any, Any]) -> None:
        """See `Processor`."""
        self._watch.run(lambda: self.user_object.process(record), self._retry)

    def on_timer(self, timer: Timer) -> None:
        """See `Processor`."""
        self._watch.run(lambda: self.user_object.on_timer(timer), self._retry)


class WatchedTransformer(_Watched, ValueTransformer[Any, Any, Any]):
    """A user's transformer."""

    def transform(self, key: Any, value: Any) -> Any:
        """See `ValueTransformer`."""
        return self._watch.run(lambda: self.user_object.transform(key, value), self._retry)


class WatchedContext:
    """A context that records whether a record was forwarded."""

    __slots__ = ("_context", "_watch")

    def __init__(self, context: ProcessorContext[Any, Any], watch: Watch) -> None:
        self._context = context
        self._watch = watch

    def forward(self, record: Record[Any, Any], child: str | None = None) -> None:
        """Forward a record."""
        self._context.forward(record, child)
        self._watch.is_clean = False

    def side_output(self, name: str, record: Record[Any, Any]) -> None:
        """Send a record to a side output."""
        self._context.side_output(name, record)
        self._watch.is_clean = False

    def store(self, name: str) -> Any:
        """Return a store that records whether it was written to."""
        return WatchedStore(self._context.store(name), self._watch)

    @property
    def timers(self) -> Any:
        """Timers that record whether one was registered or deleted."""
        return WatchedStore(self._context.timers, self._watch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)


class WatchedStore:
    """A store that records whether it was written to."""

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
