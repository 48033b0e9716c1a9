"""The application's files on this machine: the tables in them, and accidents that damage them."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from penstock.state import EngineFactory, EngineKind, LaneState
from verification.chaos import topology
from verification.chaos.payments import STORES, Topics

PAGE = 4096
SHARDS = 8
FAR_FUTURE = 2**62


class Files:
    """The state directory of an application that is not running."""

    def __init__(self, state_dir: Path, application_id: str, engine: str = "lmdb") -> None:
        self.state_dir = state_dir
        self._application_id = application_id
        self._engine = EngineKind(engine)

    @property
    def lanes(self) -> list[Path]:
        """The directories of the lanes."""
        return sorted((self.state_dir / self._application_id).glob("lanes-*/[0-9][0-9][0-9][0-9]"))

    def tables(self) -> dict[str, dict[str, Any]]:
        """The content of the stores of all lanes, in the form of the checker's tables."""
        found: dict[str, dict[str, Any]] = {store: {} for store in STORES}
        specs = topology.build(Topics(self._application_id)).stores
        for directory in self.lanes:
            with closing(LaneState(EngineFactory(self._engine, str(directory)).open(read_only=True))) as lane:
                for shard in map(lane.shard, range(SHARDS)):
                    for store in ("sums", "groups", "ledger"):
                        found[store].update(shard.store(specs[store]).items())
                    windows = shard.store(specs["windows"]).fetch_all(0, FAR_FUTURE)
                    found["windows"].update({f"{windowed.key}@{windowed.start}": count for windowed, count in windows})
        return found

    def delete(self) -> None:
        """Delete all files."""
        shutil.rmtree(self.state_dir, ignore_errors=True)

    def delete_a_lane(self) -> None:
        """Delete the files of one lane."""
        shutil.rmtree(self.lanes[0])

    def copy_to(self, backup: Path) -> None:
        """Make a backup."""
        shutil.copytree(self.state_dir, backup)

    def replace_by(self, backup: Path) -> None:
        """Restore lanes from a backup, among newer files."""
        for directory in self.lanes:
            shutil.rmtree(directory)
            shutil.copytree(backup / directory.relative_to(self.state_dir), directory)

    def truncate(self) -> None:
        """Cut off the second half of every lane's data."""
        for path in self._data():
            with path.open("rb+") as file:
                file.truncate(path.stat().st_size // 2 // PAGE * PAGE)

    def scribble(self, chooser: random.Random) -> None:
        """Change random bytes of every lane's data: some pages become unreadable."""
        for path in self._data():
            data = bytearray(path.read_bytes())
            for _ in range(max(16, len(data) // PAGE)):
                data[chooser.randrange(len(data))] ^= 0xFF
            path.write_bytes(data)

    def change_sums(self) -> int:
        """Change the first digit of every sum in the lanes' data: pages stay readable, but are wrong. Return how many."""
        changed = 0
        for path in self._data():
            data, count = re.subn(rb'("sum":)(\d)', lambda m: m[1] + (b"%d" % (int(m[2]) % 9 + 1)), path.read_bytes())
            path.write_bytes(data)
            changed += count
        return changed

    def _data(self) -> Iterator[Path]:
        for directory in self.lanes:
            yield directory / "data.mdb"
