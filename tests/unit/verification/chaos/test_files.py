"""Accidents with files do what they say: a campaign whose accidents do nothing would prove nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from penstock.errors import StateError
from penstock.state import EngineFactory, EngineKind, LaneState
from verification.chaos.payments import Topics
from verification.chaos.stores import Files
from verification.chaos.topology import build, nothing_yet, with_payment

APPLICATION = "chaos"
TOTAL = with_payment("k1", {"amount": 5, "number": 3}, nothing_yet())


def write(state_dir: Path, lanes: int = 2) -> None:
    """What an application leaves behind: every lane has a sum, a group and a window."""
    specs = build(Topics(APPLICATION)).stores
    for lane in range(lanes):
        directory = state_dir / APPLICATION / f"lanes-{lanes}" / f"{lane:04}"
        directory.mkdir(parents=True)
        state = LaneState(EngineFactory(EngineKind.LMDB, str(directory)).open())
        state.store(specs["sums"]).put(f"k{lane}", TOTAL, 9)
        state.store(specs["groups"]).put(f"g{lane}", TOTAL, 9)
        state.store(specs["windows"]).put(f"k{lane}", lane + 1, 2_000, 2_500)
        state.store(specs["ledger"]).put(f"g{lane}", lane)
        state.commit(1)
        state.close()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    write(tmp_path / "state")
    return Files(tmp_path / "state", APPLICATION)


def verified(files: Files) -> None:
    """Verify the lanes as a start does."""
    for directory in files.lanes:
        state = LaneState(EngineFactory(EngineKind.LMDB, str(directory)).open())
        try:
            state.verify()
        finally:
            state.close()


def test_tables_are_read_over_all_lanes(files: Files) -> None:
    assert files.tables() == {
        "sums": {"k0": TOTAL, "k1": TOTAL},
        "groups": {"g0": TOTAL, "g1": TOTAL},
        "windows": {"k0@2000": 1, "k1@2000": 2},
        "ledger": {"g0": 0, "g1": 1},
    }
    verified(files)


def test_sums_are_changed_in_pages_that_stay_readable(files: Files) -> None:
    assert files.change_sums() >= 4
    assert files.tables()["sums"]["k1"] == {**TOTAL, "sum": 6}
    with pytest.raises(StateError, match="damaged"):
        verified(files)


def test_everything_is_deleted_or_one_lane(files: Files) -> None:
    files.delete_a_lane()
    assert list(files.tables()["sums"]) == ["k1"]
    files.delete()
    assert not files.state_dir.exists()


def test_a_backup_comes_back(files: Files, tmp_path: Path) -> None:
    before = files.tables()
    files.copy_to(tmp_path / "backup")
    files.change_sums()
    files.replace_by(tmp_path / "backup")
    assert files.tables() == before


def test_truncation_removes_half_of_the_data(files: Files) -> None:
    sizes = [(lane / "data.mdb").stat().st_size for lane in files.lanes]
    files.truncate()
    assert [(lane / "data.mdb").stat().st_size for lane in files.lanes] == [size // 2 // 4096 * 4096 for size in sizes]


def test_scribbling_changes_bytes_by_seed(files: Files, tmp_path: Path) -> None:
    before = [(lane / "data.mdb").read_bytes() for lane in files.lanes]
    files.scribble(random.Random(1))
    after = [(lane / "data.mdb").read_bytes() for lane in files.lanes]
    assert all(map(bytes.__ne__, before, after))
    assert list(map(len, before)) == list(map(len, after))
