"""Files that are written as a whole: private to the user, and on the disk when they are complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
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
    if not isinstance(snapshot, LmdbSnapshot):
        raise StateError("Only stores of LMDB can be copied as a file. Set store_engine to lmdb.")
    with TemporaryFile(dir=directory) as file:
        snapshot.copy_to(file.fileno())
        file.seek(0)
        yield file


def size_of(file: IO[bytes]) -> int:
    """Return the size of an open file."""
    return os.fstat(file.fileno()).st_size


def refuse_if_too_large(size: int, directory: Path) -> None:
    """Refuse a copy for which the disk has no room: it would take it from other stores."""
    free = shutil.disk_usage(directory).free
    if size >= free:
        raise StateError(f"A copy of {size} bytes does not fit: {directory} has {free} bytes left. Free some disk space.")
