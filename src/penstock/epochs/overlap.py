"""The shards of a stage are walked one after the other, or at the same time if the user's code waits, which is measured.

A shard that is walked in a thread has the same one in every epoch: a connection may belong to the thread that has opened it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_LEAST_S = 0.02
"""How long shards are walked one after the other before it is known whether their code waits."""

_WAITS = 0.5
"""From this part of the time on, code that waits is worth threads."""

_STILL_WAITS = 0.25
"""Down to this part, it remains so."""

_BUSY = 0.5
"""If threads have used a processor for this part of the time, it is measured again: perhaps their code no longer waits."""

_DELAYS = Path("/proc/thread-self/schedstat")

_threads: list[ThreadPoolExecutor] = []


def in_thread(thread: int, call: Callable[[], R]) -> Future[R]:
    """Make a call in one of this process's threads for shards, with the context of the current one."""
    while len(_threads) <= thread:
        _threads.append(ThreadPoolExecutor(1, f"penstock-shard-{len(_threads)}"))
    return _threads[thread].submit(copy_context().run, call)


class Walks(Protocol[R_co]):
    """The shards of a stage, ready to be walked."""

    def walk(self, shard: int) -> Iterable[R_co]:
        """Walk a shard, here: in the current thread, after those before it."""

    def walk_apart(self, shard: int) -> Iterable[R_co]:
        """Walk a shard in its thread."""

    def settle(self, shard: int, thread: int | None) -> None:
        """Prepare a shard to be walked in a thread, or here."""

    def share(self) -> None:
        """Prepare for threads that walk shards at the same time."""


class Pace:
    """How the stages of a lane are walked in this process, with at most so many threads; a stage is known by its number."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: set[int] = set()
        self._doubtful: set[int] = set()
        self._measured: set[int] = set()
        self._trials: dict[int, _Trial] = {}

    def computes(self, stage: int) -> bool:
        """Whether a stage is not known to wait, though it was measured; or no threads are allowed."""
        return self._most == 1 or (stage in self._measured and stage not in self._waiting)

    def walked(self, stage: int, shards: Sequence[int], walks: Walks[R]) -> Iterator[R]:
        """Yield what the walks of these shards give, in the order of the shards.

        If some fail, the first one's failure is raised, when those that have begun are done.
        """
        if self._most == 1:
            for shard in shards:
                yield from walks.walk(shard)
            return
        left = list(shards)
        if stage not in self._waiting or stage in self._doubtful:
            yield from self._one_by_one(stage, left, walks)
        if left:
            yield from self._at_once(stage, left, walks)

    def _one_by_one(self, stage: int, left: list[int], walks: Walks[R]) -> Iterator[R]:
        """Walk shards until none is left, or their code is known to wait."""
        part = _STILL_WAITS if stage in self._waiting else _WAITS
        trial = self._trials.setdefault(stage, _Trial())
        with nullcontext() if self._waiting else trial.going_on():
            while left:
                shard = left.pop(0)
                # If any stage waits, then in threads: its processors may share a connection with those of this one.
                thread = shard % self._most if self._waiting else None
                walks.settle(shard, thread)
                if thread is None:
                    yield from walks.walk(shard)
                else:
                    yield from in_thread(thread, partial(_tried, trial, walks, shard)).result()
                if trial.shows_waiting(part):
                    break
        self._learn(stage, trial, part)

    def _learn(self, stage: int, trial: _Trial, part: float) -> None:
        self._measured.add(stage)
        if trial.is_long:
            if trial.shows_waiting(part):
                self._waiting.add(stage)
            else:
                self._waiting.discard(stage)
            self._doubtful.discard(stage)
            del self._trials[stage]

    def _at_once(self, stage: int, left: list[int], walks: Walks[R]) -> Iterator[R]:
        walks.share()
        began = time.monotonic(), time.process_time()
        running: list[Future[list[R]]] = []
        try:
            for shard in left:
                thread = shard % self._most
                walks.settle(shard, thread)
                running.append(in_thread(thread, partial(_walked, walks, shard)))
            for future in running:
                yield from future.result()
        finally:
            for future in running:
                future.cancel()
            wait(running)
        if time.process_time() - began[1] >= _BUSY * (time.monotonic() - began[0]):
            self._doubtful.add(stage)


class _Trial:
    """The time that shards have taken, one after the other, and how much of it their code has waited."""

    def __init__(self) -> None:
        self._wall_s = self._idle_s = 0.0
        self._since: tuple[float, float, float] | None = None

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """Measure the block, in its thread."""
        self._since = time.monotonic(), time.process_time(), _delay_s()
        try:
            yield
        finally:
            self._wall_s, self._idle_s = self._spent()
            self._since = None

    @property
    def is_long(self) -> bool:
        """Whether it says enough."""
        return self._wall_s >= _LEAST_S

    def shows_waiting(self, part: float) -> bool:
        """Whether, for long enough, code has waited for at least this part of the time."""
        wall_s, idle_s = self._spent()
        return wall_s >= _LEAST_S and idle_s >= part * wall_s

    def _spent(self) -> tuple[float, float]:
        """Return the time until now, but for that in which code was ready without a processor, and how much of it code waited."""
        if self._since is None:
            return self._wall_s, self._idle_s
        wall_s, idle_s = time.monotonic() - self._since[0], 0.0
        off_s = wall_s - (time.process_time() - self._since[1])
        if off_s >= _STILL_WAITS * wall_s:
            delay_s = min(off_s, _delay_s() - self._since[2])  # a busy machine changes nothing
            wall_s, idle_s = wall_s - delay_s, off_s - delay_s
        return self._wall_s + wall_s, self._idle_s + idle_s


def _walked(walks: Walks[R], shard: int) -> list[R]:
    return list(walks.walk_apart(shard))


def _tried(trial: _Trial, walks: Walks[R], shard: int) -> list[R]:
    with trial.going_on():
        return _walked(walks, shard)


def _delay_s() -> float:
    """Return for how long the current thread was ready to run and had no processor; 0 if the system does not say."""
    try:
        return int(_DELAYS.read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
