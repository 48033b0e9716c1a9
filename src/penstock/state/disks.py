"""Errors of a disk, said so that they can be cured: with the path, what is free there, and what to do."""

from __future__ import annotations

import errno
import shutil
import socket
from contextlib import suppress
from pathlib import Path

from penstock.errors import PenstockError, StateError, text_of

_FULL = ("No space left on device", "Disk quota exceeded")
_FAILED = "Input/output error"
"""What LMDB says of a disk that fails, and of one that is full: it has written less than it wanted to."""

_LITTLE = 16 << 20
"""Bytes. A disk with less counts as full: the write that failed may have been larger."""


def disk_error(error: BaseException, state_dir: str | Path) -> StateError | None:
    """Return the error of a disk that is full, or fails, with path and cure; None if this is another error."""
    text = text_of(error)
    is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    is_full = is_full or any(sign in text for sign in _FULL)
    if isinstance(error, PenstockError) or not (is_full or _FAILED in text):
        return None
    place = Path(getattr(error, "filename", None) or state_dir).absolute()
    free = _free(place)
    where = f"{place} on {socket.gethostname()}"
    if is_full or (free is not None and free < _LITTLE):
        left = "" if free is None else f", where {free} bytes are free"
        return StateError(
            f"Cannot write to {where}{left}: the disk is full, or a quota is used up ({_first_line(text)}). Free some space, or "
            f"set state_dir to a larger disk, and start again. Nothing that is committed is lost."
        )
    return StateError(
        f"Cannot read or write {where} ({_first_line(text)}). Check that disk, or set state_dir to another one, and start again. "
        f"Nothing that is committed is lost."
    )


def _free(place: Path) -> int | None:
    for directory in (place, *place.parents):
        with suppress(OSError):
            return shutil.disk_usage(directory).free
    return None


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]
