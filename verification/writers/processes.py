"""Writers as processes, which a test kills and suspends."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.kafka.writers.publisher import Writing
from penstock.kafka.writers.transactions import Shared
from penstock.records import Partition
from verification.harness.processes import HarnessError

if TYPE_CHECKING:
    from typing_extensions import Self

_processes = multiprocessing.get_context("spawn")
_ANSWER_S = 60


class Answer(NamedTuple):
    """What a writer has done: the rows of each partition, or the error."""

    written: Mapping[Partition, int]
    error: str = ""


class WriterProcess:
    """A process that writes what it is given."""

    def __init__(self, writing: Writing) -> None:
        self._mine, theirs = _processes.Pipe()
        self._process = _processes.Process(target=_serve, args=(theirs, writing), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def write(self, shared: Shared, rows: Mapping[Partition, pa.Table]) -> None:
        """Begin to write; `answer` waits for the end."""
        self.receive(rows)
        self.begin(shared)

    def receive(self, rows: Mapping[Partition, pa.Table]) -> None:
        """Give the process the rows that it writes next."""
        self._mine.send({place: _encoded(own) for place, own in rows.items()})

    def begin(self, shared: Shared) -> None:
        """Begin to write these rows."""
        self._mine.send(shared)

    def answer(self) -> Answer | None:
        """Return what was done; None if the process has died."""
        try:
            if not self._mine.poll(_ANSWER_S):
                raise HarnessError("a writer does not answer")
            found: Answer = self._mine.recv()
        except (EOFError, ConnectionError):
            return None
        return found

    def pause(self) -> None:
        """Suspend the process."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.join()
        self._mine.close()

    def _signal(self, number: signal.Signals) -> None:
        pid = self._process.pid
        assert pid is not None
        os.kill(pid, number)


def _encoded(rows: pa.Table) -> bytes:
    """Return a table as bytes: a pickled slice would have all rows of what it is a part of."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _serve(connection: Connection, writing: Writing) -> None:
    brokers, writer = writing.writer()
    while True:
        try:
            rows = {place: pa.ipc.open_stream(own).read_all() for place, own in connection.recv().items()}
            shared: Shared = connection.recv()
        except EOFError:
            brokers.close()
            return
        try:
            writer.write(shared.identity, rows, shared.opened)
        except PenstockError as error:
            connection.send(Answer({}, f"{type(error).__name__}: {error}"))
        else:
            connection.send(Answer({place: own.num_rows for place, own in rows.items()}))
