"""The calls of an epoch, under way: so many at once, one after another where order matters, answered in the order of requests."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import Any

from penstock.calls.call import Call, Request
from penstock.calls.loop import Running

PENDING: Any = object()
"""In place of an answer that is not there yet."""


class Failed:
    """In place of an answer that there will not be."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


Ask = Callable[[Sequence[Request]], Awaitable[list[Any]]]
"""`await ask(requests)`: an answer or a `Failed` for each; never raises but when it is cancelled."""


class Work:
    """Requests, in units that are asked together, and how far they have come.

    Workers take units that are ready; there are never more of them than calls may be under way. A unit is ready when those
    before it are done that concern the same key (if the call is ordered) or the same question (if it has a cache, which then
    answers).
    """

    def __init__(self, call: Call, requests: Sequence[Request], ask: Ask) -> None:
        size = call.batch or 1
        self._units = [requests[start : start + size] for start in range(0, len(requests), size)]
        self._size = size
        self._ask = ask
        self._concurrency = call.concurrency
        self._answers: list[Any] = [PENDING] * len(requests)
        self._left = len(self._units)
        self._followers: dict[int, list[int]] = {}
        self._blocked: dict[int, int] = {}
        self._chain(call)
        self._ready = deque(number for number in range(len(self._units)) if number not in self._blocked)
        self._workers: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._has_failures = False
        self._progress = threading.Event()
        self._done: asyncio.Future[None]

    # ---- for the thread that waits --------------------------------------------------------------------------------

    def answers(self, running: Running) -> Iterator[Any]:
        """The answers, in the order of the requests.

        All of them come at the end, so that two threads do not share a core for nothing; but from the first failure on as
        soon as they are there, because it may be the last that anybody wants to know.
        """
        position, answers = 0, self._answers
        while position < len(answers):
            self._progress.wait()
            self._progress.clear()
            has_ended = running.ended.is_set()
            while position < len(answers) and answers[position] is not PENDING:
                yield answers[position]
                position += 1
            if has_ended and position < len(answers):
                raise RuntimeError("the calls of an epoch ended before all were answered") from running.error

    def wake(self) -> None:
        """Let the thread that waits have a look."""
        self._progress.set()

    # ---- on the loop ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Make all calls; nothing is under way any more when this is over, however it ends."""
        self._done = asyncio.get_running_loop().create_future()
        self._employ()
        try:
            await self._done
        finally:
            self._is_over = True
            for worker in self._workers:
                worker.cancel()
            await asyncio.gather(*self._workers, return_exceptions=True)

    def _employ(self) -> None:
        """As many workers as there is work for, within the limit."""
        for _ in range(min(self._concurrency - len(self._workers), len(self._ready))):
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._leave)

    async def _work(self) -> None:
        while self._ready and not self._is_over:  # a function may have kept being cancelled to itself
            number = self._ready.popleft()
            unit = self._units[number]
            try:
                answers = await self._ask(unit)
            except asyncio.CancelledError:
                if self._is_over:
                    return
                answers = [Failed(RuntimeError("the function let itself be cancelled"))] * len(unit)
            self._settle(number, answers)

    def _leave(self, worker: asyncio.Task[None]) -> None:
        self._workers.discard(worker)
        if not worker.cancelled() and worker.exception() is not None and not self._done.done():
            self._done.set_exception(worker.exception() or RuntimeError())

    def _settle(self, number: int, answers: list[Any]) -> None:
        start = number * self._size
        self._answers[start : start + len(answers)] = answers
        self._has_failures = self._has_failures or any(isinstance(answer, Failed) for answer in answers)
        self._left -= 1
        for follower in self._followers.get(number, ()):
            self._blocked[follower] -= 1
            if not self._blocked[follower]:
                self._ready.append(follower)
        if len(self._ready) > 1:
            self._employ()
        if self._has_failures:
            self.wake()
        if not self._left:
            self._done.set_result(None)

    # ---- order ----------------------------------------------------------------------------------------------------

    def _chain(self, call: Call) -> None:
        """Which units have to wait for which: each for the last before it that is about the same."""
        if not call.ordered and call.cache is None:
            return
        last: dict[Hashable, int] = {}
        for number, unit in enumerate(self._units):
            for subject in _subjects(call, unit):
                before = last.get(subject)
                if before is not None:
                    self._followers.setdefault(before, []).append(number)
                    self._blocked[number] = self._blocked.get(number, 0) + 1
                last[subject] = number


def _subjects(call: Call, unit: Sequence[Request]) -> set[Hashable]:
    subjects: set[Hashable] = set()
    for request in unit:
        if call.ordered and request.key is not None:
            subjects.add(("key", _hashable(request.key)))
        if call.cache is not None:
            subjects.add(("question", request.question))
    return subjects


def _hashable(key: object) -> Hashable:
    """A key to compare by; that of an unhashable one is its text, which is the same where its bytes are."""
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key
