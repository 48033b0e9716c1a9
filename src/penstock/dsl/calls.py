"""The asynchronous verbs of streams: each adds a node that makes calls, and behind it an exchange that puts answers in order.

Answers arrive when the records of an epoch are done. Behind the exchange each takes the turn of the record that it answers, so
the nodes below see the answers as if they had been immediate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypedDict, TypeVar

from penstock.calls import Call, CircuitBreaker, ResultCache, is_async
from penstock.dsl.annotations import Pair, forwarded_by_call, items_of, key_made, pair_of, returned, value_made
from penstock.dsl.place import Place
from penstock.dsl.repartitions import exchanged
from penstock.dsl.side_outputs import ExchangedSender, Sender
from penstock.errors import TopologyError
from penstock.handlers import waits_ms
from penstock.operators.asynchronous import MapAsync, MapValuesAsync, ProcessAsync, with_context
from penstock.processor import Operator
from penstock.serdes import Serde
from penstock.timing import Duration, duration_ms
from penstock.topology import Line
from penstock.topology.functions import checked, checked_call

A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")

OfOne = Callable[[A], R] | Callable[[A, Any], R]
"""A function of one argument, and of the client if there is `setup=`."""

OfTwo = Callable[[A, B], R] | Callable[[A, B, Any], R]
"""A function of two arguments, and of the client if there is `setup=`."""

DEFAULT_TIMEOUT = timedelta(seconds=30)
"""How long a call on the event loop may take by default: an epoch that waits for ever is worse than one that fails."""


class CallKeywords(TypedDict, total=False):
    """The keyword arguments that all forms of the asynchronous mappers share."""

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


@dataclass(frozen=True, slots=True)
class CallOptions:
    """How a verb makes its calls: its arguments, unchecked."""

    concurrency: int
    timeout: Duration | None
    retries: int
    backoff: Duration
    setup: Callable[[], Any] | None
    ordered: bool
    breaker: CircuitBreaker | None
    cache: ResultCache | None = None
    batch: int | None = None


def map_values(
    here: Place, function: Callable[..., Any], options: CallOptions, with_key: bool, value: Any, name: str | None, line: Line
) -> tuple[Place, Sender]:
    """Replace the value with the answer to a call."""
    if with_key and options.batch is not None:
        raise TopologyError(f"map_values_async takes with_key= or batch=, not both ({line}): a batch always contains the keys.")
    call = _call("map_values_async", function, "key, value" if with_key else "value", options, line)
    name = here.draft.name("KSTREAM-MAPVALUESASYNC-", name)
    kind = returned(function) if options.batch is None else items_of(returned(function))
    made = value_made(here.draft, value, kind, "map_values_async", line)
    return _calling(here, name, MapValuesAsync(call, with_key), call, line, here.key, made)


def map_records(
    here: Place, function: Callable[..., Any], options: CallOptions, key: Any, value: Any, name: str | None, line: Line
) -> tuple[Place, Sender]:
    """Replace key and value with the answer to a call."""
    call = _call("map_async", function, "key, value", options, line)
    name = here.draft.name("KSTREAM-MAPASYNC-", name)
    kind = returned(function) if options.batch is None else items_of(returned(function))
    return _calling(here, name, MapAsync(call), call, line, *_made(here, key, value, pair_of(kind), "map_async", line))


def process(
    here: Place, function: Callable[..., Any], options: CallOptions, key: Any, value: Any, name: str | None, line: Line
) -> tuple[Place, Sender]:
    """Replace a record with those that a call forwards."""
    call = replace(_call("process_async", function, "record, context", options, line), adapt=with_context)
    name = here.draft.name("KSTREAM-PROCESSASYNC-", name)
    serdes = _made(here, key, value, forwarded_by_call(function), "process_async", line)
    return _calling(here, name, ProcessAsync(call), call, line, *serdes)


def _made(here: Place, key: Any, value: Any, kinds: Pair, verb: str, line: Line) -> tuple[Serde[Any] | None, Serde[Any]]:
    return key_made(here.draft, key, kinds[0]), value_made(here.draft, value, kinds[1], verb, line)


def _call(verb: str, function: Callable[..., Any], arguments: str, options: CallOptions, line: Line) -> Call:
    """Return a verb's options as a `Call`, after checking them."""
    setup, cache, batch = options.setup, options.cache, options.batch
    if setup is not None:
        checked_call(setup, "", f"{verb}'s setup=", line)
    arguments = arguments if batch is None else "requests"
    checked_call(function, arguments if setup is None else f"{arguments}, client", verb, line)
    if cache is not None:
        checked(cache.by, "key, value", f"{verb}'s cache by=", line)
    for what, given, least in (("concurrency", options.concurrency, 1), ("retries", options.retries, 0), ("batch", batch, 1)):
        if given is not None and given < least:
            raise TopologyError(f"{verb} needs {what}= of at least {least}, not {given} ({line}).")
    return Call(
        function,
        options.concurrency,
        _timeout_ms(verb, function, options.timeout, line),
        tuple(waits_ms(options.retries, duration_ms(options.backoff, "backoff"))),
        options.ordered,
        setup,
        options.breaker,
        cache,
        batch,
    )


def _timeout_ms(verb: str, function: Callable[..., Any], timeout: Duration | None, line: Line) -> int | None:
    if timeout is None:
        return None
    if is_async(function):
        milliseconds = duration_ms(timeout, "timeout")
        if milliseconds < 1:
            raise TopologyError(f"{verb} needs timeout= of at least 1 ms or None, not {timeout!r} ({line}).")
        return milliseconds
    if timeout is not DEFAULT_TIMEOUT:
        name = getattr(function, "__qualname__", repr(function))
        raise TopologyError(
            f"{verb} cannot apply timeout= to {name}, which is not async: a thread cannot be interrupted ({line}). "
            "Define it with async def, or set a timeout in its client."
        )
    return None


def _calling(
    here: Place, name: str, operator: Operator, call: Call, line: Line, key: Serde[Any] | None, value: Serde[Any] | None
) -> tuple[Place, Sender]:
    """Put the node that calls below a place; return the place of the answers, and the sender of side outputs."""
    if call.ordered and here.rekeyed:  # or several lanes would make the calls of a key
        here = exchanged(here, f"{name}-requests", here.key, here.value, line)
    calling = here.below(name, operator, line)
    return exchanged(calling, f"{name}-answers", key, value, line), ExchangedSender(calling, "answers")
