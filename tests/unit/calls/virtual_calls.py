"""Calls without a lane, on an event loop with virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from penstock.calls import Call, Caller, Failed, LoopThread, Request
from penstock.handlers import waits_ms
from penstock.testing.virtual_time import VirtualTimeLoop


class VirtualThread(LoopThread):
    """A loop whose time the test advances, as does whatever waits on it."""

    def __init__(self) -> None:
        self.now_ms = 0
        super().__init__(lambda thread: VirtualTimeLoop(lambda: self.now_ms, thread))


@contextlib.contextmanager
def virtual() -> Iterator[VirtualThread]:
    thread = VirtualThread()
    try:
        yield thread
    finally:
        thread.stop()


def call_to(function: Callable[..., Any], **options: Any) -> Call:
    """Return a call with the DSL's default limits, but unordered."""
    retries, backoff = options.pop("retries", 0), options.pop("backoff_ms", 100)
    defaults = {"concurrency": 64, "timeout_ms": 30_000, "waits_ms": tuple(waits_ms(retries, backoff)), "ordered": False}
    return Call(function, **{**defaults, **options})


def requests(*pairs: tuple[Any, Any], question: Callable[[Any, Any], Any] | None = None) -> list[Request]:
    return [Request(key, value, 0, (), (value,), question(key, value) if question else None) for key, value in pairs]


def answered(caller: Caller, asked: Iterable[Request]) -> list[Any]:
    """Return the answers, with the error in place of each that failed."""
    return [answer.error if isinstance(answer, Failed) else answer for answer in caller.answers(list(asked))]


def tasks_of(thread: LoopThread) -> set[asyncio.Task[Any]]:
    """Return the pending tasks of a loop."""
    return {task for task in asyncio.all_tasks(thread.loop()) if not task.done()}
