"""`SimulatedMachine`: clocks and threads that a seed decides about.

One thread runs at a time. Whenever it waits, or gives way, the seed decides which one is next; if all wait, the clock moves to
what is due first. Threads belong to a `Process`, which can be suspended, and killed: then whatever its threads ask of the machine
raises `KilledError`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Any

_FIRST_S = 1_700_000_000.0
_STACK = 512 * 1024


class KilledError(BaseException):
    """Raised in all threads of a process that was killed, wherever they are."""


class DeadlockError(Exception):
    """All threads wait for each other."""


class Process:
    """Threads that end together."""

    def __init__(self, machine: SimulatedMachine, name: str) -> None:
        self.name: str = name
        self.is_killed: bool = False
        self.is_suspended: bool = False
        """Whether its threads stand still; what they wait for happens all the same."""
        self._machine = machine

    def kill(self) -> None:
        """End all of its threads where they are."""
        self.is_killed, self.is_suspended = True, False
        self._machine.wake_all(self)


class SimulatedThread:
    """A thread of a process, as `threading.Thread`."""

    def __init__(
        self, machine: SimulatedMachine, process: Process, target: Callable[..., object], name: str, args: tuple[Any, ...]
    ) -> None:
        self.process: Process = process
        self.name: str = name
        self.turn: threading.Lock = threading.Lock()
        self.turn.acquire()
        self.ticket: int = 0
        """The number of its last wait; what would end an earlier one does nothing."""
        self.was_woken: bool = False
        self.failure: BaseException | None = None
        self._machine = machine
        self._target = target
        self._args = args
        self._has_begun = False
        self._has_ended = False
        self._waiting: list[tuple[SimulatedThread, int]] = []
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def ident(self) -> int | None:
        """See `machine.Thread.ident`."""
        return self._thread.ident

    def start(self) -> None:
        """See `machine.Thread.start`."""
        self._has_begun = True
        self._thread.start()
        self._machine.begins(self)

    def join(self, timeout: float | None = None) -> None:
        """See `machine.Thread.join`."""
        if self.is_alive():
            self._machine.wait(self._waiting, timeout)

    def is_alive(self) -> bool:
        """See `machine.Thread.is_alive`."""
        return self._has_begun and not self._has_ended

    def _run(self) -> None:
        self.turn.acquire()
        try:
            if not self.process.is_killed:
                self._target(*self._args)
        except KilledError:
            pass
        except BaseException as error:
            self.failure = error
        self._has_ended = True
        self._machine.wake(self._waiting)
        self._machine.ends(self)


class SimulatedEvent:
    """As `threading.Event`."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine
        self._is_set = False
        self._waiting: list[tuple[SimulatedThread, int]] = []

    def is_set(self) -> bool:
        """See `machine.Event.is_set`."""
        return self._is_set

    def set(self) -> None:
        """See `machine.Event.set`."""
        self._is_set = True
        self._machine.wake(self._waiting)

    def clear(self) -> None:
        """See `machine.Event.clear`."""
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        """See `machine.Event.wait`."""
        if self._is_set:
            return True
        self._machine.wait(self._waiting, timeout)
        return self._is_set


class SimulatedLock:
    """As `threading.Lock`."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine
        self._is_held = False
        self._waiting: list[tuple[SimulatedThread, int]] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """See `machine.Lock.acquire`."""
        while self._is_held:
            if not blocking or not self._machine.wait(self._waiting, None if timeout < 0 else timeout):
                return False
        self._is_held = True
        return True

    def release(self) -> None:
        """See `machine.Lock.release`."""
        self._is_held = False
        self._machine.wake(self._waiting)

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class SimulatedMachine:
    """Runs threads one at a time."""

    def __init__(self, seed: int) -> None:
        self.random: Random = Random(seed)
        self.now: float = _FIRST_S
        self.steps: int = 0
        """How often a thread has given way."""
        self.failures: list[tuple[str, BaseException]] = []
        self._ready: list[SimulatedThread] = []
        self._sleeping: list[tuple[float, int, SimulatedThread, int]] = []
        self._waits = 0
        self._set_by = 0.0
        self._all: set[SimulatedThread] = set()
        self._world = Process(self, "world")
        self._main = SimulatedThread(self, self._world, lambda: None, "world", ())
        self._current = self._main

    # ---- what `penstock.machine` asks for -------------------------------------------------------------------------------

    def time(self) -> float:
        """See `Machine.time`."""
        return self.now + self._set_by

    def monotonic(self) -> float:
        """See `Machine.monotonic`."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """See `Machine.sleep`."""
        self.wait([], max(seconds, 0.0))

    def event(self) -> SimulatedEvent:
        """See `Machine.event`."""
        return SimulatedEvent(self)

    def lock(self) -> SimulatedLock:
        """See `Machine.lock`."""
        return SimulatedLock(self)

    def thread(self, target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> SimulatedThread:
        """See `Machine.thread`: it belongs to the process of the thread that makes it."""
        return SimulatedThread(self, self._current.process, target, name, args)

    # ---- processes ------------------------------------------------------------------------------------------------------

    @property
    def current(self) -> Process:
        """The process whose thread runs."""
        return self._current.process

    def process(self, name: str, target: Callable[[], object]) -> Process:
        """Begin a process with one thread."""
        process = Process(self, name)
        SimulatedThread(self, process, target, name, ()).start()
        return process

    def jump(self, seconds: float) -> None:
        """Set the clock that can be set."""
        self._set_by += seconds

    def end(self) -> None:
        """Kill all processes, and let their threads end."""
        for thread in list(self._all):
            thread.process.kill()
        while self._all:
            self.give_way()

    def give_way(self) -> None:
        """Let another thread run, if the seed says so."""
        self._refuse_the_dead()
        self._ready.append(self._current)
        self._switch()

    # ---- waiting --------------------------------------------------------------------------------------------------------

    def begins(self, thread: SimulatedThread) -> None:
        """Let a new thread run at some time."""
        self._all.add(thread)
        self._ready.append(thread)

    def ends(self, thread: SimulatedThread) -> None:
        """Go on with another thread, after this one."""
        self._all.discard(thread)
        if thread.failure is not None:
            self.failures.append((thread.name, thread.failure))
        self._current = self._next()
        self._current.turn.release()

    def wait(self, waiting: list[tuple[SimulatedThread, int]], timeout_s: float | None) -> bool:
        """Wait until somebody wakes those that are `waiting`, or for a time; return whether somebody has."""
        thread = self._current
        self._refuse_the_dead()
        thread.ticket += 1
        thread.was_woken = False
        waiting.append((thread, thread.ticket))
        if timeout_s is not None:
            self._waits += 1
            heappush(self._sleeping, (self.now + max(timeout_s, 0.0), self._waits, thread, thread.ticket))
        self._switch()
        return thread.was_woken

    def wake(self, waiting: list[tuple[SimulatedThread, int]]) -> None:
        """Wake all that wait here."""
        for thread, ticket in waiting:
            if thread.ticket == ticket:
                thread.ticket += 1
                thread.was_woken = True
                self._ready.append(thread)
        waiting.clear()

    def wake_all(self, process: Process) -> None:
        """Wake all threads of a process."""
        for thread in self._all:
            if thread.process is process and thread is not self._current and thread not in self._ready:
                thread.ticket += 1
                self._ready.append(thread)

    def _refuse_the_dead(self) -> None:
        if self._current.process.is_killed:
            raise KilledError

    def _switch(self) -> None:
        """Go on with another thread until it is the turn of this one again."""
        self.steps += 1
        thread, self._current = self._current, self._next()
        if self._current is not thread:
            self._current.turn.release()
            thread.turn.acquire()
        self._refuse_the_dead()
        if thread is self._main and self._is_stuck:
            raise DeadlockError(", ".join(sorted(each.name for each in self._all)))

    _is_stuck = False

    def _next(self) -> SimulatedThread:
        while not (able := [thread for thread in self._ready if not thread.process.is_suspended]):
            if not self._sleeping:
                self._is_stuck = True
                return self._main
            due, _, thread, ticket = heappop(self._sleeping)
            if thread.ticket == ticket:
                self.now = max(self.now, due)
                thread.ticket += 1
                self._ready.append(thread)
        chosen = self.random.choice(able)
        self._ready.remove(chosen)
        return chosen
