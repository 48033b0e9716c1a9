"""An application whose lanes are written by another process, like a Spark worker: a process can open a lane's file only once."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from penstock import Processor, Record, Store, StreamsBuilder, Topology, key_value_store, session, tumbling, versioned_store
from penstock.epochs.program import Program
from penstock.queries import CommittedState
from penstock.state import EngineKind
from tests.unit.epochs.application import Application, Raw

LANES = 3


class Remember(Processor[str, str, str, str]):
    """Keeps each key's last value and versions, and under the extra key "calls" how often each shard was called."""

    def process(self, record: Record[str, str]) -> None:
        last = self.context.store("last")
        last[record.key] = record.value
        last["calls"] = str(int(last.get("calls") or 0) + 1)
        self.context.store("versions").put(record.key, record.value, record.timestamp)


def topology() -> Topology:
    """Every kind of store that can be queried."""
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("last", key=str, value=str))
    builder.add_state_store(versioned_store("versions", key=str, value=str, history="1h"))
    lines = builder.stream("in", value=str)
    lines.flat_map_values(str.split).group_by(_value).count(store="words")
    by_key = lines.group_by_key()
    by_key.windowed_by(tumbling("1s", grace="10s")).count(store=Store("windows", retention="1h"))
    by_key.windowed_by(session("300ms", grace="10s")).count(store=Store("sessions", retention="1h"))
    by_key.reduce(_last, store=Store("brief", ttl="1m"))
    lines.process(Remember, stores=["last", "versions"])
    return builder.build()


def _value(key: str, value: str) -> str:
    return value


def _last(old: str, new: str) -> str:
    return new


class Lanes:
    """An application's lanes, and the epoch they are committed to."""

    def __init__(self, writer: Writer, program: Program) -> None:
        self._writer = writer
        self.program = program
        self.epoch = -1

    def step(self, records: Sequence[Raw]) -> None:
        """Run an epoch and commit it."""
        self.run(records)
        self.commit()

    def run(self, records: Sequence[Raw]) -> None:
        """Let all lanes write an epoch, without committing it."""
        self._writer.ask("run", list(records))

    def send(self, records: Sequence[Raw]) -> None:
        """Let all lanes write an epoch, and leave it in flight."""
        self._writer.ask("send", list(records))

    def take_back(self) -> None:
        """Roll the lanes back to the committed epoch."""
        self._writer.ask("take back")

    def commit(self) -> None:
        """Commit the first epoch in flight, or the last run."""
        self.epoch = self._writer.ask("commit")

    def state(self, **options: Any) -> CommittedState:
        return CommittedState(self.program, lambda: self.epoch, **options)


class Writer:
    """The process that writes the lanes."""

    def __init__(self) -> None:
        self._told, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.get_context("spawn").Process(target=_write, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def lanes(self, directory: Path, engine: EngineKind, lanes: int = LANES) -> Lanes:
        """Start the lanes of a new application."""
        self.ask("start", directory, engine, lanes)
        return Lanes(self, Application(directory, topology, engine).program(lanes, "start-1"))

    def ask(self, *what: Any) -> Any:
        self._told.send(what)
        is_well, answer = self._told.recv()
        assert is_well, answer
        return answer

    def close(self) -> None:
        self._told.close()
        self._process.join(10)


def _write(asked: Connection) -> None:
    app: Any = None
    ran: Any = None
    while True:
        try:
            what, *arguments = asked.recv()
        except EOFError:
            return
        try:
            if what == "start":
                directory, engine, lanes = arguments
                app = Application(directory, topology, engine)
                app.start(lanes)
            elif what == "run":
                ran = (arguments[0], app.run(arguments[0]))
            elif what == "send":
                app.send(arguments[0])
            elif what == "take back":
                app.take_back()
            elif app.in_flight:
                app.commit_oldest()
            else:
                app.commit(*ran)
            asked.send((True, app.epoch))
        except Exception as error:  # noqa: BLE001 - sent to the test
            asked.send((False, repr(error)))
