"""A disk that is full, or fails, is told as one: with the path, what is free there, and the cure."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from types import SimpleNamespace

import lmdb
import pytest

from penstock.errors import ProcessingError, StateError
from penstock.state.disks import disk_error

CURE = "Free some space, or set state_dir to a larger disk, and start again. Nothing that is committed is lost."


def only(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=free))


def test_a_full_disk_is_named_with_the_path_and_what_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(4_096, monkeypatch)
    with pytest.raises(OSError, match="No space left") as full:
        Path("/dev/full").write_text("x", encoding="utf-8")
    found = disk_error(full.value, tmp_path / "not" / "there")
    assert isinstance(found, StateError)
    assert str(found).startswith(f"Cannot write to {tmp_path / 'not' / 'there'} on ")
    assert ", where 4096 bytes are free: the disk is full" in str(found)
    assert str(found).endswith(CURE)


@pytest.mark.parametrize(
    ("error", "free", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/var/other/file"), 0, "Cannot write to /var/other/file on "),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 1 << 40, "a quota is used up"),
        (lmdb.Error("mdb_txn_commit: Input/output error"), 0, "the disk is full"),  # LMDB could write only a part
        (lmdb.Error("mdb_txn_commit: Input/output error"), 1 << 40, "Check that disk, or set state_dir to another one"),
        (lmdb.DiskError("mdb_put: No space left on device"), 0, "the disk is full"),
        (Exception("IO error: No space left on device: While appending to file"), 0, "the disk is full"),  # RocksDB
    ],
)
def test_every_store_says_it_in_its_own_way(
    error: Exception, free: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(free, monkeypatch)
    assert said in str(disk_error(error, tmp_path))


def test_a_disk_that_does_not_tell_what_is_free_is_named_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(place: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(shutil, "disk_usage", fails)
    assert str(tmp_path) in str(disk_error(OSError(errno.ENOSPC, "full"), tmp_path))


@pytest.mark.parametrize(
    "error", [ValueError("x"), OSError(errno.ENOENT, "nothing there"), ProcessingError("user code: No space left on device")]
)
def test_other_errors_are_not(error: Exception, tmp_path: Path) -> None:
    assert disk_error(error, tmp_path) is None
