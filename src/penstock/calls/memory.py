"""What a process remembers of earlier calls: failures in a row, and answers; never more than a help, so it may be lost."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

from penstock.calls.call import CircuitBreaker, ResultCache
from penstock.errors import CircuitOpenError

MISSING: Any = object()
"""In place of an answer that is not remembered."""


class Circuit:
    """A breaker at work; times are those of the loop, in seconds."""

    __slots__ = ("_breaker", "_failures", "_is_trying", "_open_until")

    def __init__(self, breaker: CircuitBreaker) -> None:
        self._breaker = breaker
        self._failures = 0
        self._open_until: float | None = None
        self._is_trying = False

    def admit(self, now: float) -> None:
        """Let a call be made, or raise."""
        if self._open_until is None:
            return
        if now < self._open_until or self._is_trying:
            raise CircuitOpenError(
                f"not called: {self._failures} calls in a row have failed; one is tried {self._breaker.pause_ms} ms after that"
            )
        self._is_trying = True

    def succeeded(self) -> None:
        """A call has been answered."""
        self._failures = 0
        self._open_until = None
        self._is_trying = False

    def failed(self, now: float) -> None:
        """A call has not."""
        self._failures += 1
        self._is_trying = False
        if self._failures >= self._breaker.failures:
            self._open_until = now + self._breaker.pause_ms / 1000

    def gave_up(self) -> None:
        """A call was cancelled, which says nothing about the other side."""
        self._is_trying = False


class Answers:
    """A cache at work; times are those of the loop, in seconds."""

    __slots__ = ("_cache", "_kept")

    def __init__(self, cache: ResultCache) -> None:
        self._cache = cache
        self._kept: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, question: Hashable, now: float) -> Any:
        """What was answered, `MISSING` if that is not known any more."""
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
        """Remember an answer, and forget the one that was not used for longest if there are too many."""
        self._kept[question] = (now + self._cache.ttl_ms / 1000, answer)
        self._kept.move_to_end(question)
        if len(self._kept) > self._cache.size:
            self._kept.popitem(last=False)
