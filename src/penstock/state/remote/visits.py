"""A visit to a lane server or the driver: the requests of one connection, and the snapshots and copies that it has taken."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import accumulate, islice, takewhile
from pathlib import Path
from tempfile import TemporaryFile

from penstock.errors import PenstockError, StateError
from penstock.state import Engine, EngineFactory, EngineKind, Snapshots
from penstock.state.copies import CopyDirectory, Layout
from penstock.state.files import CHUNK, GrowingCopy, size_of
from penstock.state.remote.protocol import (
    GLOBALS,
    Copy,
    End,
    Get,
    Locate,
    Located,
    Measure,
    Page,
    Part,
    Publish,
    Refused,
    Release,
    Request,
    Take,
)

PAGE_ROWS = 1_000
PAGE_BYTES = 1 << 20
MOST_BYTES_OF_KEYS = 32 << 20
"""Of values in an answer, which has to fit into a frame."""

_MOMENT_S = 1.0
"""How long an answer waits for a copy."""


class LaneFiles:
    """The lanes of a host, opened when they are first read, and again if a lane was rebuilt."""

    def __init__(self, directory: Path, engine: EngineKind) -> None:
        self._directory = directory
        self._engine = engine
        self._open: dict[int, tuple[tuple[int, int], Snapshots]] = {}
        self._lock = threading.Lock()

    @property
    def scratch(self) -> Path:
        """A directory for files on their way, on the disk of the lanes."""
        return self._directory

    def snapshot(self, lane: int) -> Engine:
        """Take a snapshot of a lane."""
        directory = self._directory / f"{lane:04}"
        with self._lock:
            try:
                found = directory.stat()
            except OSError:
                raise StateError(f"Lane {lane} is not on this host.") from None
            identity = (found.st_dev, found.st_ino)
            if lane not in self._open or self._open[lane][0] != identity:
                self._open[lane] = (identity, Snapshots(EngineFactory(self._engine, str(directory))))
            return self._open[lane][1].take()


class Visit:
    """What one connection has taken; `close` releases it. `snapshot` takes a snapshot of a lane."""

    def __init__(self, snapshot: Callable[[int], Engine]) -> None:
        self._snapshot = snapshot
        self._taken: dict[int, Engine] = {}

    def answer(self, request: Request) -> object:
        """Return the answer to a request."""
        try:
            return self._answer(request)
        except (PenstockError, OSError, KeyError, ValueError) as error:
            return Refused(str(error))

    def close(self) -> None:
        """Release everything."""
        for number in list(self._taken):
            self._release(number)

    def _answer(self, request: Request) -> object:
        """Answer what every server answers: reads of snapshots."""
        if isinstance(request, Take):
            number = max(self._taken, default=0) + 1
            self._taken[number] = self._snapshot(request.lane)
            return number
        if isinstance(request, Release):
            self._release(request.snapshot)
            return 1
        if isinstance(request, Get | Page | Measure):
            return _read(self._taken[request.snapshot], request)
        raise StateError(f"{type(request).__name__} is no request to this server.")

    def _release(self, number: int) -> None:
        self._taken.pop(number).close()


class LaneVisit(Visit):
    """A visit to the server of a host, which also copies its lanes. `end` ends that server."""

    def __init__(self, files: LaneFiles, end: Callable[[], None]) -> None:
        super().__init__(files.snapshot)
        self._files = files
        self._end = end
        self._copies: dict[int, tuple[GrowingCopy, ExitStack]] = {}

    def _answer(self, request: Request) -> object:
        if isinstance(request, Publish):
            return self._publish(request)
        if isinstance(request, Copy):
            return self._copy(request.snapshot)
        if isinstance(request, Part):
            copy, _ = self._copies[request.snapshot]
            return os.pread(copy.file.fileno(), CHUNK, request.offset)
        if isinstance(request, End):
            self._end()
            return 1
        return super()._answer(request)

    def _release(self, number: int) -> None:
        if number in self._copies:
            self._copies.pop(number)[1].close()
        super()._release(number)

    def _copy(self, number: int) -> tuple[int, bool]:
        if number not in self._copies:
            with ExitStack() as opened:
                file = opened.enter_context(TemporaryFile(dir=self._files.scratch))
                copy = opened.enter_context(closing(GrowingCopy(self._taken[number], file)))
                self._copies[number] = copy, opened.pop_all()
        copy, _ = self._copies[number]
        is_whole = copy.is_whole(_MOMENT_S)
        return size_of(copy.file), is_whole

    def _publish(self, request: Publish) -> int:
        directory, layout = CopyDirectory(request.uri, request.application_id), Layout(request.shards, request.lanes)
        manifest = directory.publish(layout, request.lane, self._files.snapshot(request.lane), self._files.scratch)
        return -1 if manifest is None else manifest.epoch


class DriverVisit(Visit):
    """A visit to the driver, which knows where the lanes are and has the global tables, but no lanes."""

    def __init__(self, located: Callable[[], Located], globals_: Callable[[], Engine]) -> None:
        super().__init__(self._of_globals)
        self._located = located
        self._globals = globals_

    def _answer(self, request: Request) -> object:
        return self._located() if isinstance(request, Locate) else super()._answer(request)

    def _of_globals(self, lane: int) -> Engine:
        if lane != GLOBALS:
            raise StateError(f"Lane {lane} is not on the driver.")
        return self._globals()


def _first(values: list[bytes | None]) -> list[bytes | None]:
    """Return as many values as fit into an answer, at least one."""
    sizes = accumulate(0 if value is None else len(value) for value in values)
    fit = sum(1 for _ in takewhile(lambda size: size <= MOST_BYTES_OF_KEYS, sizes))
    return values[: max(1, fit)]


def _read(engine: Engine, request: Get | Page | Measure) -> object:
    if isinstance(request, Get):
        return _first(engine.get_many(request.space, request.keys))
    if isinstance(request, Measure):
        return engine.count(request.space), engine.size(request.space)
    rows, size = [], 0
    for row in islice(engine.scan(request.space, request.lower, request.upper, request.is_reverse), PAGE_ROWS):
        rows.append(row)
        size += len(row[0]) + len(row[1])
        if size >= PAGE_BYTES:
            break
    return rows
