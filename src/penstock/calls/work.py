"""The pending calls of an epoch: a limited number at once, in order where order matters, answered in the order of requests."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import Any

from penstock.calls.call import Call, Request
from penstock.calls.loop import STOP_SECONDS, LoopTask

_log = logging.getLogger(__name__)

PENDING: Any = object()
"""Stands for an answer that has not arrived yet."""


class Failed:
    """Stands for the answer of a call that failed."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error: Exception = error


Ask = Callable[[Sequence[Request]], Awaitable[list[Any]]]
"""`await ask(requests)` returns an answer or a `Failed` for each; it raises only when it is cancelled."""


class Work:
    """The requests of an epoch, in units of one call each, and their progress.

    Workers take units that are ready; there are at most as many workers as calls are allowed at once. A unit is ready when the
    earlier units with the same key (if the call is ordered) or the same question (if it has a cache, which then answers) are
    done.
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
        self._under_way: dict[asyncio.Task[None] | None, int] = {}
        self._name = getattr(call.function, "__qualname__", repr(call.function))
        self._is_over = False
        self._has_failures = False
        self._progress = threading.Event()
        self._done: asyncio.Future[None]

    # ---- for the thread that waits --------------------------------------------------------------------------------

    def answers(self, running: LoopTask) -> Iterator[Any]:
        """Yield the answers, in the order of the requests.

        The thread normally wakes up once, at the end, so that it does not compete with the loop for a core. After the first
        failure it wakes up for each answer, because a failure may end the epoch.
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
                raise RuntimeError(f"Calls ended with {position} of {len(answers)} requests answered.") from running.error

    def wake(self) -> None:
        """Wake up the waiting thread."""
        self._progress.set()

    # ---- on the loop ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Make all calls. However this ends, no call is pending afterwards."""
        self._done = asyncio.get_running_loop().create_future()
        self._employ()
        try:
            await self._done
        finally:
            self._is_over = True
            for worker in self._workers:
                worker.cancel()
            if self._workers:
                _, left = await asyncio.wait(self._workers, timeout=STOP_SECONDS)
                if left:
                    what = "%d calls of %s go on although they were cancelled: it must let asyncio.CancelledError pass"
                    _log.warning(what, len(left), self._name)

    def _employ(self) -> None:
        """Start workers for the ready units, up to the limit."""
        for _ in range(min(self._concurrency - len(self._workers), len(self._ready))):
            worker = asyncio.get_running_loop().create_task(self._work())
            self._workers.add(worker)
            worker.add_done_callback(self._leave)

    async def _work(self) -> None:
        this = asyncio.current_task()
        while self._ready and not self._is_over and this in self._workers:  # the function may have swallowed the cancellation
            number = self._ready.popleft()
            unit = self._units[number]
            self._under_way[this] = number
            try:
                answers = await self._ask(unit)
            except asyncio.CancelledError:
                if self._is_over:
                    return
                answers = [Failed(RuntimeError("The function raised CancelledError."))] * len(unit)
            if this in self._workers:
                self._settle(number, answers)

    def leave_behind(self, worker: asyncio.Task[None], error: Exception) -> None:
        """Answer the unit of a worker with an error, and go on without that worker."""
        if worker in self._workers and not self._is_over:
            number = self._under_way[worker]
            self._workers.discard(worker)
            self._settle(number, [Failed(error)] * len(self._units[number]))
            self._employ()

    def _leave(self, worker: asyncio.Task[None]) -> None:
        if worker not in self._workers:
            return
        self._workers.discard(worker)
        self._under_way.pop(worker, None)
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
        """Make each unit wait for the last one before it with the same key or question."""
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
    """Return a hashable form of a key: an unhashable key's text, which is equal if its bytes are."""
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key
