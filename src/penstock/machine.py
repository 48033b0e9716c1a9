"""What a process gets from its machine: clocks, and threads that wait for each other. A simulation puts its own in their place.

Whatever decides about epochs, or waits, takes it from here. Measurements and log lines need not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Protocol


class Event(Protocol):
    """As `threading.Event`."""

    def is_set(self) -> bool:
        """Whether it has happened."""

    def set(self) -> None:
        """Let it happen, and end all waits."""

    def clear(self) -> None:
        """Begin anew."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it happens; return whether it has."""


class Lock(Protocol):
    """As `threading.Lock`."""

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; return whether it was taken."""

    def release(self) -> None:
        """Give it back."""

    def __enter__(self) -> bool: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /) -> None: ...


class Thread(Protocol):
    """As `threading.Thread`."""

    @property
    def ident(self) -> int | None:
        """Its number; None before it has begun."""

    def start(self) -> None:
        """Begin."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end."""

    def is_alive(self) -> bool:
        """Whether it has begun, and not ended."""


class Machine(Protocol):
    """Clocks and threads."""

    def time(self) -> float:
        """Return the seconds since 1970."""

    def monotonic(self) -> float:
        """Return the seconds of a clock that is never set."""

    def sleep(self, seconds: float) -> None:
        """Wait."""

    def event(self) -> Event:
        """Return an event that has not happened."""

    def lock(self) -> Lock:
        """Return a lock that nobody has."""

    def thread(self, target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> Thread:
        """Return a thread that does not keep the process alive."""


class ThisMachine:
    """The clocks of the kernel, and threads of Python."""

    def time(self) -> float:
        """See `Machine.time`."""
        return time.time()

    def monotonic(self) -> float:
        """See `Machine.monotonic`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See `Machine.sleep`."""
        time.sleep(seconds)

    def event(self) -> threading.Event:
        """See `Machine.event`."""
        return threading.Event()

    def lock(self) -> threading.Lock:
        """See `Machine.lock`."""
        return threading.Lock()

    def thread(self, target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> threading.Thread:
        """See `Machine.thread`."""
        return threading.Thread(target=target, name=name, args=args, daemon=True)


class _Current:
    """The machine of this process: there is one, as there is one module `time`."""

    machine: Machine = ThisMachine()


@contextmanager
def replaced(by: Machine) -> Iterator[None]:
    """Take clocks and threads from another machine in this block; one at a time."""
    before, _Current.machine = _Current.machine, by
    try:
        yield
    finally:
        _Current.machine = before


def now_ms() -> int:
    """Return the milliseconds since 1970."""
    return int(_Current.machine.time() * 1000)


def monotonic() -> float:
    """Return the seconds of a clock that is never set."""
    return _Current.machine.monotonic()


def sleep(seconds: float) -> None:
    """Wait."""
    _Current.machine.sleep(seconds)


def event() -> Event:
    """Return an event that has not happened."""
    return _Current.machine.event()


def lock() -> Lock:
    """Return a lock that nobody has."""
    return _Current.machine.lock()


def thread(target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> Thread:
    """Return a thread that does not keep the process alive."""
    return _Current.machine.thread(target, name, args)
