"""The client that a `setup=` function opens: once per process, entered and exited by the same task."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from penstock.calls.loop import STOP_SECONDS, LoopThread
from penstock.errors import text_of


class Client:
    """What `setup` returned, open until it is closed.

    `setup()` may be a plain or a coroutine function. If it returns a context manager, asynchronous or plain, the client is what
    entering it returns, and `close` exits it.
    """

    def __init__(self, thread: LoopThread, setup: Callable[[], Any]) -> None:
        self._thread = thread
        self._setup = setup
        self._is_open = threading.Event()
        self._loop = thread.loop()
        self._leave: asyncio.Event | None = None
        self.value: Any = None
        self._running = thread.begin(self._keep, self._is_open.set)
        self._is_open.wait()
        if self._running.error is not None:
            error = self._running.error
            name = getattr(setup, "__qualname__", repr(setup))
            raise RuntimeError(f"setup={name} failed: {type(error).__name__}: {text_of(error)}") from error

    def close(self) -> None:
        """Exit the context manager; waits at most `STOP_SECONDS`."""
        if not self._running.ended.is_set() and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._let_go)
            if not self._thread.is_current():
                self._running.ended.wait(STOP_SECONDS)

    def _let_go(self) -> None:
        if self._leave is not None:
            self._leave.set()

    async def _keep(self) -> None:
        self._leave = asyncio.Event()
        async with AsyncExitStack() as stack:
            client = self._setup()
            if inspect.isawaitable(client):
                client = await client
            if hasattr(type(client), "__aenter__"):
                client = await stack.enter_async_context(client)
            elif hasattr(type(client), "__enter__"):
                client = stack.enter_context(client)
            self.value = client
            self._is_open.set()
            await self._leave.wait()
