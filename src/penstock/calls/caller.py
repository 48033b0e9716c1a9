"""Makes the calls of nodes, epoch after epoch: limits, retries, the circuit breaker, the cache, batches."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import random
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from penstock.calls.call import Call, Request, is_async
from penstock.calls.clients import Client
from penstock.calls.loop import OF_THIS_PROCESS, STOP_SECONDS, LoopThread
from penstock.calls.memory import MISSING, Answers, Circuit
from penstock.calls.work import Failed, Work
from penstock.errors import FAILURES, Raised, failure_of

_chance = random.Random()  # noqa: S311 - only spreads retries over time


class Caller:
    """Makes the calls of one node in this process. What it remembers between epochs may be lost at any time."""

    def __init__(self, call: Call, thread: LoopThread) -> None:
        self._call = call
        self._function = call.adapt(call.function)
        self._is_blocking = not is_async(call.function)
        self._thread = thread
        self._turn = threading.Lock()  # the limits are per process, so its lanes call one after another
        self._circuit = None if call.breaker is None else Circuit(call.breaker)
        self._cache = None if call.cache is None else Answers(call.cache)
        self._open: _Open | None = None
        self._work: Work | None = None

    def answers(self, requests: Sequence[Request]) -> Generator[Any, None, None]:
        """Yield an answer or a `Failed` for each request, in their order.

        When the iterator is exhausted or closed, no call is pending any more.
        """
        with self._turn, self._thread.waiting():
            opened = self._opened()
            blocking: set[Future[Any]] = set()
            work = self._work = Work(self._call, requests, lambda asked: self._ask(opened, asked, blocking))
            running = self._thread.begin(work.run, work.wake)
            try:
                yield from work.answers(running)
            finally:
                running.cancel()
                concurrent.futures.wait(blocking)  # a thread cannot be cancelled

    def close(self) -> None:
        """Close the client and the threads."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()

    def _opened(self) -> _Open:
        loop = self._thread.loop()
        if self._open is None or self._open.loop is not loop:  # another loop: this process was forked
            self._open = None
            self._open = _Open(self._call, self._thread, loop, self._is_blocking)
        return self._open

    async def _ask(self, opened: _Open, requests: Sequence[Request], blocking: set[Future[Any]]) -> list[Any]:
        """Return answers from the cache, and from one call, with retries, for those that are missing."""
        cache, time = self._cache, opened.loop.time
        if cache is None:
            return await self._answered(opened, requests, blocking)
        answers = [cache.get(request.question, time()) for request in requests]
        missing = [place for place, answer in enumerate(answers) if answer is MISSING]
        if missing:
            found = await self._answered(opened, [requests[place] for place in missing], blocking)
            for place, answer in zip(missing, found, strict=True):
                answers[place] = answer
                if not isinstance(answer, Failed):
                    cache.put(requests[place].question, answer, time())
        return answers

    async def _answered(self, opened: _Open, requests: Sequence[Request], blocking: set[Future[Any]]) -> list[Any]:
        try:
            if self._call.batch is None:
                return [await self._attempted(opened, requests[0].arguments, blocking)]
            pairs = [(request.key, request.value) for request in requests]
            return _results(await self._attempted(opened, (pairs,), blocking), len(requests))
        except FAILURES as error:
            return [Failed(failure_of(error))] * len(requests)

    async def _attempted(self, opened: _Open, arguments: tuple[Any, ...], blocking: set[Future[Any]]) -> Any:
        """Return the function's result, from the first attempt or a retry."""
        circuit, time = self._circuit, opened.loop.time
        latest: Raised | None = None
        for wait_ms in (*self._call.waits_ms, None):
            if circuit is not None:
                try:
                    circuit.admit(time())
                except FAILURES as error:
                    raise error from latest
            try:
                result = await self._once(opened, arguments, blocking)
            except FAILURES as error:
                if circuit is not None:
                    circuit.failed(time())
                if wait_ms is None:
                    raise
                latest = error
            except BaseException:
                if circuit is not None:
                    circuit.gave_up()
                raise
            else:
                if circuit is not None:
                    circuit.succeeded()
                return result
            await asyncio.sleep(wait_ms * _chance.uniform(0.5, 1) / 1000)
        raise AssertionError("the last attempt returns or raises")

    async def _once(self, opened: _Open, arguments: tuple[Any, ...], blocking: set[Future[Any]]) -> Any:
        function, timeout_ms = self._function, self._call.timeout_ms
        if opened.executor is not None:
            return await self._in_thread(opened, opened.executor, arguments, blocking)
        if timeout_ms is None:
            return await function(*arguments, *opened.client)
        deadline = _Deadline(opened.loop, timeout_ms, self._give_up)
        try:
            return await function(*arguments, *opened.client)
        except asyncio.CancelledError as error:
            if not deadline.is_over:
                raise
            raise TimeoutError(f"no answer within {timeout_ms} ms") from error
        finally:
            deadline.lift()

    def _give_up(self, worker: asyncio.Task[Any]) -> None:
        """Answer for a function that goes on although it was cancelled; the task that runs it is left behind."""
        if self._work is not None:
            name = getattr(self._call.function, "__qualname__", repr(self._call.function))
            why = f"no answer within {self._call.timeout_ms} ms, and {name} goes on although it was cancelled"
            self._work.leave_behind(worker, TimeoutError(f"{why}: it must let asyncio.CancelledError pass"))

    async def _in_thread(
        self, opened: _Open, executor: ThreadPoolExecutor, arguments: tuple[Any, ...], blocking: set[Future[Any]]
    ) -> Any:
        under_way = self._thread.blocking
        future = executor.submit(self._function, *arguments, *opened.client)
        blocking.add(future)
        under_way.add(future)
        answer = asyncio.wrap_future(future)
        future.add_done_callback(blocking.discard)
        future.add_done_callback(under_way.discard)
        result = await answer
        if inspect.isawaitable(result):
            if inspect.iscoroutine(result):
                result.close()
            raise TypeError("The function returned an awaitable: define it with async def, so that it runs on the event loop.")
        return result


class _Deadline:
    """Cancels the current task after a timeout, without a second task for each call like `asyncio.wait_for`.

    If the task has not ended the call `STOP_SECONDS` later, it has swallowed its cancellation, and is given up.
    """

    __slots__ = ("_give_up", "_handle", "_loop", "_task", "is_over")

    def __init__(self, loop: asyncio.AbstractEventLoop, timeout_ms: int, give_up: Callable[[asyncio.Task[Any]], None]) -> None:
        self.is_over = False
        self._loop = loop
        self._give_up = give_up
        self._task = asyncio.current_task(loop)
        self._handle = loop.call_later(timeout_ms / 1000, self._expire)

    def lift(self) -> None:
        """Let the task continue. Since Python 3.11, tasks count cancellations, and timeouts in the user's code rely on it."""
        self._handle.cancel()
        uncancel = getattr(self._task, "uncancel", None)
        if self.is_over and uncancel is not None:
            uncancel()

    def _expire(self) -> None:
        self.is_over = True
        if self._task is not None:
            self._task.cancel()
            self._handle = self._loop.call_later(STOP_SECONDS, self._give_up, self._task)


def _results(results: Any, count: int) -> list[Any]:
    """Return the results of a batch; a result that is an exception fails only its own record."""
    found = list(results)
    if len(found) != count:
        raise ValueError(f"The function returned {len(found)} results for {count} requests: it must return one for each.")
    return [Failed(result) if isinstance(result, Exception) else result for result in found]


class _Open:
    """What a caller opens in this process: the client, and threads if its function blocks."""

    def __init__(self, call: Call, thread: LoopThread, loop: asyncio.AbstractEventLoop, is_blocking: bool) -> None:
        self.loop = loop
        self._client = None if call.setup is None else Client(thread, call.setup)
        self.client = () if self._client is None else (self._client.value,)
        self.executor = ThreadPoolExecutor(call.concurrency, "penstock-call") if is_blocking else None

    def close(self) -> None:
        """Close both."""
        if self.executor is not None:
            self.executor.shutdown(wait=False)
        if self._client is not None:
            self._client.close()


class Callers:
    """The callers of an application in this process, by node, and the clients of its processors; they outlive its epochs.

    `fakes` replace functions of the topology, by function.
    """

    def __init__(
        self, thread: LoopThread = OF_THIS_PROCESS, fakes: Mapping[Callable[..., Any], Callable[..., Any]] = MappingProxyType({})
    ) -> None:
        self._thread = thread
        self._fakes = fakes
        self._callers: dict[str, Caller] = {}
        self._clients: dict[str, Any] = {}
        self._opened = ExitStack()

    def client(self, node: str, setup: Callable[[], Any]) -> Any:
        """Return the client of a node's processors; call `setup` if there is none. If it is a context manager, enter it."""
        if node not in self._clients:
            open_client: Callable[[], Any] = self._fakes.get(setup, setup)
            client = open_client()
            self._clients[node] = self._opened.enter_context(client) if hasattr(type(client), "__enter__") else client
        return self._clients[node]

    def of(self, node: str, call: Call) -> Caller:
        """Return the caller of a node; create it at the first call."""
        caller = self._callers.get(node)
        if caller is None:
            function = self._fakes.get(call.function, call.function)
            setup = None if call.setup is None else self._fakes.get(call.setup, call.setup)
            caller = self._callers[node] = Caller(replace(call, function=function, setup=setup), self._thread)
        return caller

    def close(self) -> None:
        """Close clients and threads; the next call opens them again."""
        self._clients.clear()
        with self._opened:
            for caller in self._callers.values():
                caller.close()
