"""The asynchronous verbs of streams: each adds a node that asks, and behind it an exchange that brings answers into order.

Answers come when the records of an epoch are done. Behind an exchange they take the places of the records they follow from, so
what is below sees them as if they had been there at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, overload

from penstock.calls import Call, CircuitBreaker, ResultCache, is_async
from penstock.dsl.handles import StreamHandle
from penstock.dsl.place import Place, given_serde
from penstock.dsl.repartitions import exchanged
from penstock.dsl.side_outputs import ExchangedSender, Sender
from penstock.errors import TopologyError
from penstock.handlers import waits_ms
from penstock.operators.asynchronous import CallContext, MapAsync, MapValuesAsync, ProcessAsync, with_context
from penstock.processor import Operator
from penstock.records import Record, SideOutput
from penstock.serdes import Serde
from penstock.timing import Duration, duration_ms
from penstock.topology import Line, user_line
from penstock.topology.functions import checked

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock.dsl.streams import KStream

K = TypeVar("K", covariant=True)
V = TypeVar("V", covariant=True)
K2 = TypeVar("K2")
V2 = TypeVar("V2")
A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")

OfOne = Callable[[A], R] | Callable[[A, Any], R]
"""A function of one argument, and of the client if there is a `setup=`."""

OfTwo = Callable[[A, B], R] | Callable[[A, B, Any], R]
"""A function of two arguments, and of the client if there is a `setup=`."""

DEFAULT_TIMEOUT = timedelta(seconds=30)
"""How long a call on the event loop may take if nothing is said: an epoch that waits for ever is worse than one that fails."""


class CallOptions(TypedDict, total=False):
    """What the asynchronous mappers take in all their forms."""

    concurrency: int
    timeout: Duration | None
    retries: int
    backoff: Duration
    setup: Callable[[], Any] | None
    ordered: bool
    breaker: CircuitBreaker | None
    cache: ResultCache | None
    value: Any
    name: str | None


class AsyncVerbs(StreamHandle, Generic[K, V]):
    """The verbs of a stream that call other systems."""

    __slots__ = ()

    @overload
    def map_values_async(
        self,
        function: OfOne[V, Awaitable[V2 | SideOutput]],
        *,
        with_key: Literal[False] = ...,
        batch: None = ...,
        **more: Unpack[CallOptions],
    ) -> KStream[K, V2]: ...

    @overload
    def map_values_async(
        self,
        function: OfTwo[K, V, Awaitable[V2 | SideOutput]],
        *,
        with_key: Literal[True],
        batch: None = ...,
        **more: Unpack[CallOptions],
    ) -> KStream[K, V2]: ...

    @overload
    def map_values_async(
        self, function: OfOne[list[tuple[K, V]], Awaitable[Sequence[V2 | SideOutput]]], *, batch: int, **more: Unpack[CallOptions]
    ) -> KStream[K, V2]: ...

    @overload
    def map_values_async(
        self,
        function: OfOne[V, V2 | SideOutput],
        *,
        with_key: Literal[False] = ...,
        batch: None = ...,
        **more: Unpack[CallOptions],
    ) -> KStream[K, V2]: ...

    @overload
    def map_values_async(
        self, function: OfTwo[K, V, V2 | SideOutput], *, with_key: Literal[True], batch: None = ..., **more: Unpack[CallOptions]
    ) -> KStream[K, V2]: ...

    @overload
    def map_values_async(
        self, function: OfOne[list[tuple[K, V]], Sequence[V2 | SideOutput]], *, batch: int, **more: Unpack[CallOptions]
    ) -> KStream[K, V2]: ...

    def map_values_async(
        self,
        function: Callable[..., Any],
        *,
        with_key: bool = False,
        concurrency: int = 64,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        retries: int = 0,
        backoff: Duration = "100ms",
        setup: Callable[[], Any] | None = None,
        ordered: bool = True,
        breaker: CircuitBreaker | None = None,
        cache: ResultCache | None = None,
        batch: int | None = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream[K, Any]:
        """Replace the value with what `await function(value)` gives, with many calls under way at once.

        A function that is not `async def` is run in threads. `with_key=True` calls `function(key, value)`, `batch=100` calls
        `function([(key, value), ...])` with up to as many and expects a list of results. What `setup()` gives, once per process,
        is its last argument. A result of `SideOutput(name, value)` goes to that side output.

        At most `concurrency` calls are under way in a process, each for at most `timeout`. One that fails is made again up to
        `retries` times, after waits from `backoff` on that double; then the record goes to the handler of processing errors.
        Results come in the order of the records, whatever the order of answers; `ordered=True` also makes the calls of a key one
        after another. Nothing is under way when an epoch is committed; but an epoch that is run again calls again. `value=` says
        the type of the result. See `docs/async.md`.

        Example:
            >>> import asyncio
            >>> from penstock import StreamsBuilder
            >>> from penstock.testing import TopologyTestDriver
            >>> async def greet(name):
            ...     await asyncio.sleep(0.01)
            ...     return f"hello {name}"
            >>> builder = StreamsBuilder()
            >>> builder.stream("names", value=str).map_values_async(greet, timeout="2s", retries=3, value=str).to("greetings")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     driver.input("names").pipe("ann")
            ...     driver.output("greetings").values()
            ['hello ann']
        """
        line = user_line()
        if with_key and batch is not None:
            raise TopologyError(f"map_values_async takes with_key= or batch=, not both: a batch brings the keys along ({line})")
        call = call_of(
            "map_values_async",
            function,
            "key, value" if with_key else "value",
            line,
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            setup=setup,
            ordered=ordered,
            breaker=breaker,
            cache=cache,
            batch=batch,
        )
        name = self._place.draft.name("KSTREAM-MAPVALUESASYNC-", name)
        operator = MapValuesAsync(call, with_key)
        return self._place.draft.handles.stream(
            *asked(self._place, name, operator, call, line, self._place.key, given_serde(value))
        )

    @overload
    def map_async(
        self,
        function: OfTwo[K, V, Awaitable[tuple[K2, V2] | SideOutput]],
        *,
        batch: None = ...,
        key: Any = ...,
        **more: Unpack[CallOptions],
    ) -> KStream[K2, V2]: ...

    @overload
    def map_async(
        self,
        function: OfOne[list[tuple[K, V]], Awaitable[Sequence[tuple[K2, V2] | SideOutput]]],
        *,
        batch: int,
        key: Any = ...,
        **more: Unpack[CallOptions],
    ) -> KStream[K2, V2]: ...

    @overload
    def map_async(
        self, function: OfTwo[K, V, tuple[K2, V2] | SideOutput], *, batch: None = ..., key: Any = ..., **more: Unpack[CallOptions]
    ) -> KStream[K2, V2]: ...

    @overload
    def map_async(
        self,
        function: OfOne[list[tuple[K, V]], Sequence[tuple[K2, V2] | SideOutput]],
        *,
        batch: int,
        key: Any = ...,
        **more: Unpack[CallOptions],
    ) -> KStream[K2, V2]: ...

    def map_async(
        self,
        function: Callable[..., Any],
        *,
        concurrency: int = 64,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        retries: int = 0,
        backoff: Duration = "100ms",
        setup: Callable[[], Any] | None = None,
        ordered: bool = True,
        breaker: CircuitBreaker | None = None,
        cache: ResultCache | None = None,
        batch: int | None = None,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """As `map_values_async`, but `await function(key, value)` gives a pair of the new key and the new value."""
        line = user_line()
        call = call_of(
            "map_async",
            function,
            "key, value",
            line,
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            setup=setup,
            ordered=ordered,
            breaker=breaker,
            cache=cache,
            batch=batch,
        )
        name = self._place.draft.name("KSTREAM-MAPASYNC-", name)
        return self._place.draft.handles.stream(
            *asked(self._place, name, MapAsync(call), call, line, given_serde(key), given_serde(value))
        )

    def process_async(
        self,
        function: OfTwo[Record[K, V], CallContext[K2, V2], object],
        *,
        concurrency: int = 64,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        retries: int = 0,
        backoff: Duration = "100ms",
        setup: Callable[[], Any] | None = None,
        ordered: bool = True,
        breaker: CircuitBreaker | None = None,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """As `map_async`, for any number of results: `await function(record, context)` calls `context.forward(record)`.

        `context.side_output(name, record)` sends a record aside, and `context.record_metadata` tells where the record came from.
        What an attempt that fails has sent does not go on. There are no stores: put a `process` before or behind.

        Example:
            >>> from penstock import StreamsBuilder
            >>> async def look_up(record, context):
            ...     if record.value:
            ...         context.forward(record.with_value(record.value.upper()))
            ...     else:
            ...         context.side_output("empty", record)
            >>> found = StreamsBuilder().stream("names", value=str).process_async(look_up, value=str)
            >>> found.side_output("empty", value=str).to("empty")
        """
        line = user_line()
        call = call_of(
            "process_async",
            function,
            "record, context",
            line,
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            setup=setup,
            ordered=ordered,
            breaker=breaker,
            adapt=with_context,
        )
        name = self._place.draft.name("KSTREAM-PROCESSASYNC-", name)
        return self._place.draft.handles.stream(
            *asked(self._place, name, ProcessAsync(call), call, line, given_serde(key), given_serde(value))
        )


def call_of(
    verb: str,
    function: Callable[..., Any],
    arguments: str,
    line: Line,
    *,
    concurrency: int,
    timeout: Duration | None,
    retries: int,
    backoff: Duration,
    setup: Callable[[], Any] | None,
    breaker: CircuitBreaker | None,
    ordered: bool = True,
    cache: ResultCache | None = None,
    batch: int | None = None,
    **options: Any,
) -> Call:
    """What a verb was given, checked."""
    if setup is not None:
        checked(setup, "", f"{verb}'s setup=", line)
    arguments = arguments if batch is None else "requests"
    checked(function, arguments if setup is None else f"{arguments}, client", verb, line)
    if cache is not None:
        checked(cache.by, "key, value", f"{verb}'s cache by=", line)
    for what, given, least in (("concurrency", concurrency, 1), ("retries", retries, 0), ("batch", batch, 1)):
        if given is not None and given < least:
            raise TopologyError(f"{verb} needs {what}= of {least} or more, not {given} ({line})")
    return Call(
        function,
        concurrency,
        _timeout_ms(verb, function, timeout, line),
        tuple(waits_ms(retries, duration_ms(backoff, "backoff"))),
        ordered,
        setup,
        breaker,
        cache,
        batch,
        **options,
    )


def _timeout_ms(verb: str, function: Callable[..., Any], timeout: Duration | None, line: Line) -> int | None:
    if timeout is None:
        return None
    if is_async(function):
        milliseconds = duration_ms(timeout, "timeout")
        if milliseconds < 1:
            raise TopologyError(f"{verb} needs a timeout= of 1 ms or more, or None ({line})")
        return milliseconds
    if timeout is not DEFAULT_TIMEOUT:
        name = getattr(function, "__qualname__", repr(function))
        raise TopologyError(
            f"{verb} cannot give {name} a timeout=: it blocks, and a thread cannot be interrupted ({line}); "
            "write it with async def, or give its client a timeout of its own"
        )
    return None


def asked(
    here: Place, name: str, operator: Operator, call: Call, line: Line, key: Serde[Any] | None, value: Serde[Any] | None
) -> tuple[Place, Sender]:
    """Where the answers are, and the node that may also send something aside."""
    if call.ordered and here.rekeyed:  # or calls of one key would be made in several places
        here = exchanged(here, f"{name}-requests", here.key, here.value, line)
    asking = here.below(name, operator, line)
    return exchanged(asking, f"{name}-answers", key, value, line), ExchangedSender(asking, "answers")
