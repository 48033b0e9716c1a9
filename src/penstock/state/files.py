"""Files that are written as a whole: private to the user, and on the disk when they are complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from penstock.errors import StateError
from penstock.state.engines.engine import Engine
from penstock.state.engines.lmdb import LmdbSnapshot

CHUNK = 1 << 20
"""How many bytes are read or written at a time."""


@contextmanager
def created(path: Path) -> Iterator[IO[bytes]]:
    """Create a file for the block; afterwards it is on the disk."""
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def compact_copy(snapshot: Engine, directory: Path) -> Iterator[IO[bytes]]:
    """Provide a copy of a store as one file, without free pages. It has no name in `directory`, and is gone after the block."""
    with TemporaryFile(dir=directory) as file:
        GrowingCopy(snapshot, file).is_whole()
        file.seek(0)
        yield file


class GrowingCopy:
    """A copy as that of `compact_copy`, while it is written to a file: that is one call, which may take minutes."""

    def __init__(self, snapshot: Engine, file: IO[bytes]) -> None:
        if not isinstance(snapshot, LmdbSnapshot):
            raise StateError("Only stores of LMDB can be copied as a file. Set store_engine to lmdb.")
        self.file = file
        thread = ThreadPoolExecutor(1, "penstock-copy")
        self._copying = thread.submit(snapshot.copy_to, file.fileno())
        thread.shutdown(wait=False)

    def is_whole(self, within_s: float | None = None) -> bool:
        """Whether it is complete within a time, or whenever it is; raises if it has failed."""
        if not wait([self._copying], within_s).done:
            return False
        self._copying.result()
        return True

    def close(self) -> None:
        """Wait until nothing writes to the file, or reads the snapshot."""
        wait([self._copying])


def size_of(file: IO[bytes]) -> int:
    """Return the size of an open file."""
    return os.fstat(file.fileno()).st_size


def refuse_if_too_large(size: int, directory: Path) -> None:
    """Refuse a copy for which the disk has no room: it would take it from other stores."""
    free = shutil.disk_usage(directory).free
    if size >= free:
        raise StateError(f"A copy of {size} bytes does not fit: {directory} has {free} bytes left. Free some disk space.")
