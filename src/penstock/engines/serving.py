"""The loop of a slot: it answers the driver's requests until the driver closes the connection.

Forked processes and Spark's tasks run the same loop. The program is unpickled and prepared by the first request.
"""

from __future__ import annotations

import gc
import os
import resource
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import cloudpickle
import pyarrow as pa

from penstock.advance import advancing
from penstock.engines.exchanging import Exchanging, Listen, SlotSide
from penstock.engines.messages import Kind, described, located, receive, send, send_rows, unpacked
from penstock.engines.requests import Report, RestoreLane
from penstock.engines.stacks import stacks_directory, tell_stacks
from penstock.epochs.program import Program
from penstock.epochs.stays import end_stays
from penstock.errors import FAILURES
from penstock.state.disks import disk_error

COLLECT_EVERY = 100_000
"""New objects between two garbage collections. A lane creates and drops hundreds of thousands per epoch, and none in cycles:
with Python's default of 700, a quarter of its time was spent on collections."""

STATE_DIR = "PENSTOCK_STATE_DIR"
"""The environment variable by which a host of a cluster has its own directory for stores."""

_SPEAK_EVERY_S = 1.0

_programs: dict[bytes, Program] = {}


@dataclass
class Totals:
    """What a slot has done: requests, records from topics, rows and bytes returned, and its peak memory in bytes."""

    requests: int = 0
    records: int = 0
    rows: int = 0
    bytes: int = 0
    memory: int = 0

    def __str__(self) -> str:
        counts = f"{self.requests} requests, {self.records} records, {self.rows} rows, {self.bytes} bytes"
        return f"{counts}, at most {self.memory >> 20} MiB in a slot"


def added(totals: Iterable[Totals]) -> Totals:
    """Return the totals of several slots."""
    found = list(totals)
    names = ("requests", "records", "rows", "bytes")
    sums = {name: sum(getattr(each, name) for each in found) for name in names}
    return Totals(**sums, memory=max((each.memory for each in found), default=0))


class _DriverLeftError(Exception):
    """The connection to the driver has ended. If a connection of the user's code does, that is an answer as other errors are."""


def serve(driver: socket.socket, packed_program: bytes | pa.Buffer) -> Totals:
    """Answer requests until the driver closes the connection."""
    totals, content, slot = Totals(), bytes(packed_program), SlotSide()
    try:
        while True:
            _answer(driver, content, slot, totals)
    except _DriverLeftError:
        totals.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return totals
    finally:
        slot.close()


def loaded(packed_program: bytes) -> Program:
    """Return the program, unpickled and prepared once per process: it comes from our own driver."""
    if packed_program not in _programs:
        _programs.clear()
        end_stays()
        found: tuple[Program, Callable[[], None]] = cloudpickle.loads(packed_program)
        program, prepare = found
        if program.is_spread:
            program = replace(program, directory=os.environ.get(STATE_DIR, program.directory))
        prepare()
        gc.set_threshold(COLLECT_EVERY)
        _programs[packed_program] = program
    return _programs[packed_program]


def _answer(driver: socket.socket, packed_program: bytes, slot: SlotSide, totals: Totals) -> None:
    """Answer one request: an optional table, then what to do with it."""
    with _until_driver_leaves():
        _, table = receive(driver)
        _, content = receive(driver)
    try:
        program = loaded(packed_program)
        tell_stacks(stacks_directory(program.directory, program.application_id))
        request: Any = cloudpickle.loads(content)  # the driver's, as above
        if isinstance(request, RestoreLane):
            with _reporting(driver) as report:
                answer = request.restore(program, report)
            _say(driver, Kind.VALUE, answer)
        elif isinstance(request, Listen):
            _say(driver, Kind.VALUE, request.answer(slot))
        else:
            exchanging = request if isinstance(request, Exchanging) else None
            batches = unpacked(table) if exchanging is None else exchanging.received(slot)
            rows = list(request.run(program, batches))
            rows = rows if exchanging is None else exchanging.sent(slot, program, rows)
            totals.records += sum(batch.num_rows for batch in batches) if request.reads_topics else 0
            del table, batches
            with _until_driver_leaves():
                send_rows(driver, rows)
            totals.rows += sum(batch.num_rows for batch in rows)
            totals.bytes += sum(batch.nbytes for batch in rows)
        totals.requests += 1
    except _DriverLeftError:
        raise
    except (Exception, SystemExit) as error:  # raised in the driver; a user's function may call `sys.exit`
        known = _programs.get(packed_program)
        of_disk = None if known is None else disk_error(error, known.directory)
        _say(driver, Kind.ERROR, described(of_disk or error))

    except FAILURES as error:  # raised in the driver
        _say(driver, Kind.ERROR, described(error))


def _say(driver: socket.socket, kind: Kind, content: bytes) -> None:
    with _until_driver_leaves():
        send(driver, kind, content)


@contextmanager
def _until_driver_leaves() -> Iterator[None]:
    """Mark the end of the connection as the driver's. Other failures of it remain errors: Spark starts the task again."""
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError) as error:
        raise _DriverLeftError from error


@contextmanager
def _reporting(driver: socket.socket) -> Iterator[Report]:
    """Provide what reports the progress of a restore. Besides, the slot says each second where it is, if it has advanced.

    To copy, check or compose a large store takes minutes. If one is stuck, the driver must hear nothing.
    """
    sending, is_done = threading.Lock(), threading.Event()
    known: int | None = None

    def report(left: int) -> None:
        nonlocal known
        known = left
        with sending:
            _say(driver, Kind.PROGRESS, located(followed.where, left))

    def speak() -> None:
        told = 0
        with suppress(OSError):  # the driver has closed the connection: the report or the answer will tell
            while not is_done.wait(_SPEAK_EVERY_S):
                if (done := followed.pieces) != told:
                    told = done
                    with sending:
                        send(driver, Kind.PROGRESS, located(followed.where, known))

    speaking = threading.Thread(target=speak, name="penstock-advance", daemon=True)
    with advancing() as followed:
        speaking.start()
        try:
            yield report
        finally:
            is_done.set()
            speaking.join()
