"""What a process remembers of earlier calls: failures in a row, and answers. Results do not depend on it, so it may be lost."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from penstock.calls.call import CircuitBreaker, ResultCache
from penstock.errors import CircuitOpenError

MISSING: Any = object()
"""Stands for an answer that is not in the cache."""


class Circuit:
    """The state of a circuit breaker; times are the loop's, in seconds."""

    __slots__ = ("_breaker", "_failures", "_is_trying", "_open_until")

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._breaker = breaker
        self._failures = 0
        self._open_until: float | None = None
        self._is_trying = False

    def admit(self, now: float) -> None:
        """Allow a call, or raise `CircuitOpenError`."""
        if self._open_until is None:
            return
        if now < self._open_until or self._is_trying:
            raise CircuitOpenError(
                f"Not called: the circuit breaker is open after {self._failures} failed calls in a row. "
                f"A call is tried {self._breaker.pause_ms} ms after the last failure."
            )
        self._is_trying = True

    def succeeded(self) -> None:
        """Note that a call was answered."""
        self._failures = 0
        self._open_until = None
        self._is_trying = False

    def failed(self, now: float) -> None:
        """Note that a call failed."""
        self._failures += 1
        self._is_trying = False
        if self._failures >= self._breaker.failures:
            self._open_until = now + self._breaker.pause_ms / 1000

    def gave_up(self) -> None:
        """Note that a call was cancelled, which says nothing about the other system."""
        self._is_trying = False


class Answers:
    """The content of a result cache; times are the loop's, in seconds."""

    __slots__ = ("_cache", "_kept")

    def __init__(self, cache: ResultCache) -> None:
        self._cache = cache
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, question: Hashable, now: float) -> Any:
        """Return the answer, `MISSING` if it is not in the cache or has expired."""
        kept = self._kept.get(question)
        if kept is None:
            return MISSING
        expires, answer = kept
        if now >= expires:
            del self._kept[question]
            return MISSING
        self._kept.move_to_end(question)
        return answer

    def put(self, question: Hashable, answer: Any, now: float) -> None:
        """Keep an answer; drop the least recently used one if there are too many."""
        self._kept[question] = (now + self._cache.ttl_ms / 1000, answer)
        self._kept.move_to_end(question)
        if len(self._kept) > self._cache.size:
            self._kept.popitem(last=False)
