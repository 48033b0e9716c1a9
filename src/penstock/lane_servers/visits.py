"""A visit to a lane server: the requests of one connection, and the snapshots and copies that it has taken."""

from __future__ import annotations

import os
import threading
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import IO

from penstock.errors import PenstockError, StateError
from penstock.lane_servers.protocol import Copy, Get, Measure, Page, Part, Publish, Refused, Release, Request, Take
from penstock.state import Engine, EngineFactory, EngineKind, Snapshots
from penstock.state.copies import CopyDirectory, Layout
from penstock.state.files import CHUNK, compact_copy, size_of

PAGE_ROWS = 1_000
PAGE_BYTES = 1 << 20


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
    """What one connection has taken; `close` releases it."""

    def __init__(self, files: LaneFiles) -> None:
        self._files = files
        self._taken: dict[int, Engine] = {}
        self._copies: dict[int, tuple[IO[bytes], ExitStack]] = {}

    def answer(self, request: Request) -> object:
        """Return the answer to a request."""
        try:
            if isinstance(request, Take):
                number = max(self._taken, default=0) + 1
                self._taken[number] = self._files.snapshot(request.lane)
                return number
            if isinstance(request, Release):
                self._release(request.snapshot)
                return 1
            if isinstance(request, Publish):
                return self._publish(request)
            if isinstance(request, Copy):
                return self._copy(request.snapshot)
            if isinstance(request, Part):
                file, _ = self._copies[request.snapshot]
                return os.pread(file.fileno(), CHUNK, request.offset)
            return _read(self._taken[request.snapshot], request)
        except (PenstockError, OSError, KeyError, ValueError) as error:
            return Refused(str(error))

    def close(self) -> None:
        """Release everything."""
        for number in list(self._taken):
            self._release(number)

    def _release(self, number: int) -> None:
        self._taken.pop(number).close()
        if number in self._copies:
            self._copies.pop(number)[1].close()

    def _copy(self, number: int) -> int:
        if number not in self._copies:
            with ExitStack() as opened:
                file = opened.enter_context(compact_copy(self._taken[number], self._files.scratch))
                self._copies[number] = file, opened.pop_all()
        return size_of(self._copies[number][0])

    def _publish(self, request: Publish) -> int:
        directory, layout = CopyDirectory(request.uri, request.application_id), Layout(request.shards, request.lanes)
        manifest = directory.publish(layout, request.lane, self._files.snapshot(request.lane), self._files.scratch)
        return -1 if manifest is None else manifest.epoch


def _read(engine: Engine, request: Get | Page | Measure) -> object:
    if isinstance(request, Get):
        return engine.get_many(request.space, request.keys)
    if isinstance(request, Measure):
        return engine.count(request.space), engine.size(request.space)
    rows, size = [], 0
    for row in islice(engine.scan(request.space, request.lower, request.upper, request.is_reverse), PAGE_ROWS):
        rows.append(row)
        size += len(row[0]) + len(row[1])
        if size >= PAGE_BYTES:
            break
    return rows
