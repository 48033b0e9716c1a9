"""The event loop of a process: on a thread of its own, started when it is first needed, and anew in a process that was forked."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

STOP_SECONDS = 5
"""How long a loop, or a client that is closed, may take to come to its end."""

_left_behind: list[asyncio.AbstractEventLoop] = []
"""Loops of the process that this one was forked from. They run there; nothing here may close them."""


class LoopThread:
    """An event loop that other threads have work done on.

    `make` makes the loop; it is told of this thread, because a loop under test lets time pass only while somebody waits for it.
    """

    def __init__(self, make: Callable[[LoopThread], asyncio.AbstractEventLoop] | None = None) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._waiting = 0
        self.blocking: set[Future[Any]] = set()
        """Calls of blocking functions that are under way."""

    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, running."""
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
        """Whether a thread waits for what the loop does."""
        return self._waiting > 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While this thread waits."""
        with self._lock:
            self._waiting += 1
        try:
            yield
        finally:
            with self._lock:
                self._waiting -= 1

    def begin(self, main: Callable[[], Coroutine[Any, Any, None]], on_end: Callable[[], object] | None = None) -> Running:
        """Have `main()` run on the loop; `on_end` is called there when it is over."""
        return Running(self.loop(), main, on_end)

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
        """A forked process has the loop's memory, but not its thread."""
        if self._loop is not None:
            _left_behind.append(self._loop)
        self._lock = threading.Lock()
        self._loop = self._thread = None
        self._waiting = 0
        self.blocking = set()
        self._process = os.getpid()


class Running:
    """Something that runs on a loop, as another thread sees it."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, main: Callable[[], Coroutine[Any, Any, None]], on_end: Callable[[], object] | None
    ) -> None:
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self._loop = loop
        self._on_end = on_end
        self._task: asyncio.Task[None] | None = None
        loop.call_soon_threadsafe(self._start, main)

    def cancel(self) -> None:
        """Cancel it unless it is over, and wait for its end."""
        if not self.ended.is_set():
            self._loop.call_soon_threadsafe(self._cancel)
            self.ended.wait()

    def _start(self, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._task = self._loop.create_task(main())
        self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        assert self._task is not None  # what a thread asks a loop for is done in that order
        self._task.cancel()

    def _end(self, task: asyncio.Task[None]) -> None:
        self.error = None if task.cancelled() else task.exception()
        self.ended.set()
        if self._on_end is not None:
            self._on_end()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
    finally:
        loop.close()


OF_THIS_PROCESS = LoopThread()
"""One loop for all applications of a process."""
