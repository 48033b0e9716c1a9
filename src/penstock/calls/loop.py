"""The event loop of a process: on its own thread, started when it is first needed, and again after a fork."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from penstock.errors import failure_of

STOP_SECONDS = 5
"""How long a loop may take to stop, a client to close, or a call to end after its cancellation."""

_log = logging.getLogger(__name__)

_left_behind: list[asyncio.AbstractEventLoop] = []
"""Loops of the parent process that this one was forked from. They run there, so this process must not close them."""


class LoopThread:
    """An event loop on a thread, to which other threads submit work.

    `make` makes the loop. It gets this object, because a test's loop lets time pass only while a thread waits for it.
    """

    def __init__(self, make: Callable[[LoopThread], asyncio.AbstractEventLoop] | None = None) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._waiting = 0
        self.blocking: set[Future[Any]] = set()
        """Pending calls of blocking functions."""

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop; start it if necessary."""
        if self._process != os.getpid():
            self._forget()
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop() if self._make is None else self._make(self)
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="penstock-calls", daemon=True)
                self._thread.start()
            return self._loop

    @property
    def is_waited_for(self) -> bool:
        """Whether a thread waits for the loop."""
        return self._waiting > 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark this thread as waiting for the loop."""
        with self._lock:
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def begin(self, main: Callable[[], Coroutine[Any, Any, None]], on_end: Callable[[], object] | None = None) -> LoopTask:
        """Run `main()` on the loop; `on_end` is called there when it has ended."""
        return LoopTask(self.loop(), main, on_end)

    def is_current(self) -> bool:
        """Whether this is the loop's own thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def stop(self) -> None:
        """Stop the loop, if there is one in this process; the next `loop()` starts another."""
        loop, thread = self._loop, self._thread
        if loop is None or thread is None or self._process != os.getpid():
            return
        self._loop = self._thread = None
        loop.call_soon_threadsafe(loop.stop)
        thread.join(STOP_SECONDS)

    def _forget(self) -> None:
        """Forget the loop after a fork: the child has its memory, but not its thread."""
        if self._loop is not None:
            _left_behind.append(self._loop)
        self._lock = threading.Lock()
        self._loop = self._thread = None
        self._waiting = 0
        self.blocking = set()
        self._process = os.getpid()


class LoopTask:
    """A coroutine that runs on a loop, as another thread sees it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, main: Callable[[], Coroutine[Any, Any, None]], on_end: Callable[[], object] | None
    ) -> None:
        self.ended: threading.Event = threading.Event()
        self.error: BaseException | None = None
        self._loop = loop
        self._on_end = on_end
        self._task: asyncio.Task[None] | None = None
        loop.call_soon_threadsafe(self._start, main)

    def cancel(self) -> None:
        """Cancel it unless it has ended, and wait for its end."""
        if not self.ended.is_set():
            self._loop.call_soon_threadsafe(self._cancel)
            self.ended.wait()

    def _start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = self._loop.create_task(_contained(main))
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        assert self._task is not None  # a loop runs what a thread submits in order, so `_start` has run
        self._task.cancel()

    def _end(self, task: asyncio.Task[None]) -> None:
        self.error = None if task.cancelled() else task.exception()
        self.ended.set()
        if self._on_end is not None:
            self._on_end()


async def _contained(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `main`; if it calls `sys.exit`, it has failed, and the loop goes on."""
    try:
        await main()
    except SystemExit as error:
        raise failure_of(error) from error


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        while _was_left(loop):
            _log.warning("a task of a function's own has called sys.exit, which ends nothing here")
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=STOP_SECONDS))
    finally:
        loop.close()


def _was_left(loop: asyncio.AbstractEventLoop) -> bool:
    """Run the loop until it is stopped; return whether a task has left it before."""
    try:
        loop.run_forever()
    except SystemExit:
        return True
    return False


OF_THIS_PROCESS = LoopThread()
"""One loop for all applications of a process."""
