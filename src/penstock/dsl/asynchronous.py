"""What the asynchronous verbs put into a draft: a node that asks, and behind it an exchange that brings answers into order.

Answers come when the records of an epoch are done. Behind an exchange they take the places of the records they follow from, so
what is below sees them as if they had been there at once.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from penstock.calls import Call, CircuitBreaker, ResultCache, is_async
from penstock.dsl.place import Place
from penstock.dsl.repartitions import exchanged
from penstock.dsl.side_outputs import ExchangedSender, Sender
from penstock.errors import TopologyError
from penstock.handlers import waits_ms
from penstock.processor import Operator
from penstock.serdes import Serde
from penstock.timing import Duration, duration_ms
from penstock.topology import Line
from penstock.topology.functions import checked

DEFAULT_TIMEOUT = timedelta(seconds=30)
"""How long a call on the event loop may take if nothing is said: an epoch that waits for ever is worse than one that fails."""


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
