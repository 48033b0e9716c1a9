"""Where the sockets of this machine are."""

from __future__ import annotations

import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from penstock.engines.connections import listening, socket_directory


@pytest.fixture(params=["short", "long" * 30])
def directory(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory for sockets, where the path of the temporary directory is short, or so long that no socket could be there."""
    usual = tmp_path / request.param
    usual.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(usual))
    made = socket_directory("test")
    yield made
    shutil.rmtree(made)


def test_sockets_are_where_only_this_user_gets_however_long_the_path_of_the_temporary_directory_is(directory: Path) -> None:
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    listener, address = listening(directory / "1234567-12345678")
    with closing(listener):
        assert address == str(directory / "1234567-12345678")
