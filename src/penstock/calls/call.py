"""What a call to another system is, as values: the function with its limits, the breaker, the cache, one request."""

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
    """Leaves a system alone that does not answer.

    After so many failed calls in a row none is made for the length of `pause`: records fail at once, with a `CircuitOpenError`.
    Then a single call is tried. If it succeeds, calls are made again; if not, the pause begins anew.

    Example:
        >>> CircuitBreaker(failures=10, pause="1m").pause_ms
        60000
    """

    failures: int = 5
    pause: Duration = "30s"

    def __post_init__(self) -> None:
        if self.failures < 1 or self.pause_ms < 1:
            raise TopologyError(
                f"a circuit breaker opens after 1 failure or more, for 1 ms or longer: not {self.failures}, {self.pause}"
            )

    @property
    def pause_ms(self) -> int:
        """How long it stays open."""
        return duration_ms(self.pause, "pause")


@dataclass(frozen=True, slots=True)
class ResultCache:
    """Keeps answers for a while, so that the same question is not asked again.

    `by(key, value)` says what the question is: records for which it gives the same share an answer for the length of `ttl`. At
    most `size` answers are kept, those used last. Every process has a cache of its own, in memory; failures are not kept.

    Example:
        >>> ResultCache("10m", by=lambda key, order: order["customer"]).size
        10000
    """

    ttl: Duration
    by: Callable[[Any, Any], Hashable]
    size: int = 10_000

    def __post_init__(self) -> None:
        if self.size < 1 or self.ttl_ms < 1:
            raise TopologyError(f"a result cache keeps 1 answer or more, for 1 ms or longer: not {self.size}, {self.ttl}")

    @property
    def ttl_ms(self) -> int:
        """How long an answer is kept."""
        return duration_ms(self.ttl, "ttl")


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@dataclass(frozen=True, slots=True)
class Call:
    """How a node asks another system. Picklable; `function` is the user's own, and `adapt` gives it what else it needs.

    `waits_ms` are the waits before each further attempt. With `batch`, the function is given that many requests at once.
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
    """A record to ask about: `arguments` are those of the function, `question` is what the cache knows it by."""

    key: Any
    value: Any
    timestamp: int
    headers: Headers
    arguments: tuple[Any, ...]
    question: Hashable = None


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling the function gives something to await; if not, it blocks until it has its answer."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
