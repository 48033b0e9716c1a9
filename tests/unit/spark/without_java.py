"""A Spark without Java: a context whose jobs run in processes of this machine; a task that dies is started again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import SimpleNamespace
from typing import Any

import cloudpickle
from pyspark import TaskContext

from penstock.epochs.program import Program
from tests.unit.epochs.forked import PROCESSES


class Context:
    """Runs each task in a process of its own, which may be lost so often."""

    def __init__(self, most_failures: int) -> None:
        self.jobs = 0
        """Those with tasks."""
        self.cancelled: list[str] = []
        self.properties: dict[str, str] = {}
        self._most_failures = most_failures
        self._numbers = count()

    @property
    def _jsc(self) -> Any:
        """The context in the JVM, which nobody stops."""
        return SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))

    def setJobGroup(self, group: str, about: str, interruptOnCancel: bool) -> None:
        """Nobody looks at the names of jobs here."""

    def setLocalProperty(self, name: str, value: str) -> None:
        self.properties[name] = value

    def cancelJobGroup(self, group: str) -> None:
        self.cancelled.append(group)

    def parallelize(self, items: Sequence[int], tasks: int) -> Any:
        assert len(items) == tasks
        self.jobs += 1
        return SimpleNamespace(mapPartitions=lambda task: SimpleNamespace(collect=lambda: self._run(task, items)))

    def emptyRDD(self) -> Any:
        return SimpleNamespace(collect=list)

    def _run(self, task: Callable[[Iterable[int]], Iterator[Any]], items: Sequence[int]) -> list[Any]:
        return Job(cloudpickle.dumps(task), self._numbers, self._most_failures).results(items)


class Job:
    """A job, whose tasks are tried several times. It fails if one of them has failed too often."""

    def __init__(self, task: bytes, numbers: Iterator[int], most_failures: int) -> None:
        self._task = task
        self._numbers = numbers
        self._most_failures = most_failures
        self._running: dict[int, tuple[BaseProcess, Connection, int]] = {}

    def results(self, items: Sequence[int]) -> list[Any]:
        found: dict[int, list[Any]] = {}
        failures = dict.fromkeys(items, 0)
        for item in items:
            self._start(item)
        while self._running:
            ready = wait([connection for _, connection, _ in self._running.values()])
            for process, connection, item in [each for each in self._running.values() if each[1] in ready]:
                del self._running[id(connection)]
                try:
                    found[item] = connection.recv()
                except EOFError:
                    failures[item] += 1
                    self._again(item, failures[item])
                connection.close()
                process.join()
        return [result for item in items for result in found[item]]

    def _again(self, item: int, failures: int) -> None:
        if failures < self._most_failures:
            return self._start(item)
        for process, _, _ in self._running.values():
            process.kill()
        raise RuntimeError(f"Job aborted: task {item} has failed {failures} times")

    def _start(self, item: int) -> None:
        here, there = PROCESSES.Pipe()
        process = PROCESSES.Process(target=_serve, args=(self._task, item, next(self._numbers), there), daemon=True)
        process.start()
        there.close()
        self._running[id(here)] = process, here, item


def _serve(task: bytes, item: int, number: int, results: Connection) -> None:
    """A task, in its process."""
    TaskContext.get = lambda: SimpleNamespace(taskAttemptId=lambda: number)  # type: ignore[assignment,method-assign,return-value]
    results.send(list(cloudpickle.loads(task)(iter([item]))))


def broadcast_of(program: Program, prepare: Callable[[], None] = lambda: None) -> Any:
    """What the driver broadcasts to Python workers."""
    return SimpleNamespace(value=cloudpickle.dumps((program, prepare)))


class Spark:
    """The Spark of an application whose context is there already, or as soon as a test says so."""

    def __init__(self, context: Any, most_slots: int = 2, is_open: bool = True) -> None:
        self.context = context
        self.opened = 0
        self._most_slots = most_slots
        self._future: Future[Any] = Future()
        if is_open:
            self._future.set_result(context)

    def open(self) -> Future[Any]:
        self.opened += 1
        return self._future

    def slots(self, lanes: int) -> int:
        return min(lanes, self._most_slots)

    def come(self, failure: Exception | None = None) -> None:
        """Let the context be open, or fail."""
        if failure is None:
            self._future.set_result(self.context)
        else:
            self._future.set_exception(failure)

    @property
    def is_open(self) -> bool:
        return self._future.done()
