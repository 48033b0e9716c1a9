"""`Aside`: runs what may block (users' checks, calls to the JVM) without blocking the server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Aside(Generic[Answer]):
    """A function that runs in a thread of its own, one call at a time; concurrent callers share one result."""

    def __init__(self, question: Callable[[], Answer], name: str) -> None:
        self._question = question
        self._name = name
        self._asked: asyncio.Future[Answer] | None = None

    async def answer(self, timeout_s: float) -> Answer:
        """Return the result; raise `TimeoutError` if it takes longer than `timeout_s`."""
        if self._asked is None or self._asked.done():
            self._asked = self._ask()
        await asyncio.wait([self._asked], timeout=timeout_s)
        if not self._asked.done():
            raise TimeoutError
        return self._asked.result()

    def _ask(self) -> asyncio.Future[Answer]:
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[Answer] = loop.create_future()

        def ask() -> None:
            try:
                answer = self._question()
            except Exception as error:  # noqa: BLE001 - raised in the caller
                tell(asked.set_exception, error)
            else:
                tell(asked.set_result, answer)

        def tell(how: Callable[..., None], what: object) -> None:
            with suppress(RuntimeError):  # the server has already ended
                loop.call_soon_threadsafe(how, what)

        # Not asyncio's own threads: at its end, the process would wait for one that hangs.
        threading.Thread(target=ask, name=f"penstock-{self._name}", daemon=True).start()
        return asked
