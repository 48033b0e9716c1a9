"""A call to another system, as values: the function with its limits, the circuit breaker, the cache, one request."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.errors import TopologyError
from penstock.records import Headers
from penstock.timing import Duration, duration_ms


@dataclass(frozen=True, slots=True)
class CircuitBreaker:
    """Stops calling a system that does not answer.

    After `failures` failed calls in a row, no call is made for the length of `pause`: records fail at once with a
    `CircuitOpenError`. Then a single call is tried. If it succeeds, calls are made again; if not, another pause begins.

    Example:
        >>> CircuitBreaker(failures=10, pause="1m").pause_ms
        60000
    """

    failures: int = 5
    pause: Duration = "30s"

    def __post_init__(self) -> None:
        if self.failures < 1 or self.pause_ms < 1:
            raise TopologyError(
                f"Invalid circuit breaker: failures={self.failures!r} must be at least 1, pause={self.pause!r} at least 1 ms."
            )

    @property
    def pause_ms(self) -> int:
        """How long the circuit stays open."""
        return duration_ms(self.pause, "pause")


@dataclass(frozen=True, slots=True)
class ResultCache:
    """Keeps answers for a while, so that the same call is not made twice.

    `by(key, value)` identifies the call: records for which it returns the same share an answer for the length of `ttl`. At most
    `size` answers are kept, those used last. Every process has its own cache, in memory; failures are not kept.

    Example:
        >>> ResultCache("10m", by=lambda key, order: order["customer"]).size
        10000
    """

    ttl: Duration
    by: Callable[[Any, Any], Hashable]
    size: int = 10_000

    def __post_init__(self) -> None:
        if self.size < 1 or self.ttl_ms < 1:
            raise TopologyError(f"Invalid result cache: size={self.size!r} must be at least 1, ttl={self.ttl!r} at least 1 ms.")

    @property
    def ttl_ms(self) -> int:
        """How long an answer is kept."""
        return duration_ms(self.ttl, "ttl")


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@dataclass(frozen=True, slots=True)
class Call:
    """How a node calls another system. Picklable; `function` is the user's, and `adapt` wraps it with what else it needs.

    `waits_ms` are the waits before each retry. With `batch`, the function gets that many requests at once.
    """

    function: Callable[..., Any]
    concurrency: int
    timeout_ms: int | None
    waits_ms: tuple[int, ...]
    ordered: bool
    setup: Callable[[], Any] | None = None
    breaker: CircuitBreaker | None = None
    cache: ResultCache | None = None
    batch: int | None = None
    adapt: Callable[[Callable[..., Any]], Callable[..., Any]] = _as_it_is


class Request(NamedTuple):
    """The call for one record: `arguments` are the function's, `question` is the key in the cache."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    arguments: tuple[Any, ...]
    question: Hashable = None


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling the function returns an awaitable; if not, it blocks until it has its answer."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
