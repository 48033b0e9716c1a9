"""Copies of lanes in a directory: complete or not there, the newest two, and whatever else is there is not taken for one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from pyarrow import CompressedOutputStream

from penstock.errors import StateError
from penstock.state import MARK_LIFE_MS, EngineFactory, EngineKind, LaneState, Mark, Snapshots, memory_engine
from penstock.state.copies import CopyDirectory, Layout, Manifest
from penstock.state.engines.lmdb import DATA_FILE
from tests.unit.state.homes import raw

pytestmark = pytest.mark.security(26)

LAYOUT = Layout(8, 2)
ROWS = {b"k%03d" % number: bytes(500) for number in range(200)}


class Lane:
    """A lane of one application, and the directory of its copies."""

    def __init__(self, directory: Path) -> None:
        self.scratch = directory
        self.place = directory / "copies"
        self.copies = CopyDirectory(str(self.place), "app")
        self.now_ms = 1_000_000_000
        self._store = directory / "lane"

    def write(self, epoch: int) -> None:
        state = LaneState(EngineFactory(EngineKind.LMDB, str(self._store)).open())
        for key, value in ROWS.items():
            state.store(raw()).put(key, value + b"%d" % epoch)
        state.commit(epoch, mark=Mark(epoch, self.now_ms, {"log/0": epoch}, {}))
        state.close()

    def publish(self, lane: int = 0, layout: Layout = LAYOUT) -> Manifest | None:
        snapshots = Snapshots(EngineFactory(EngineKind.LMDB, str(self._store)))
        try:
            return self.copies.publish(layout, lane, snapshots.take(), self.scratch)
        finally:
            snapshots.close()

    def published(self, epoch: int) -> Manifest:
        self.write(epoch)
        manifest = self.publish()
        assert manifest is not None
        return manifest

    def fetched(self, manifest: Manifest, name: str = "fetched") -> LaneState:
        directory = self.scratch / name
        directory.mkdir()
        self.copies.fetch(manifest, directory / DATA_FILE)
        return LaneState(EngineFactory(EngineKind.LMDB, str(directory)).open())

    def file(self, manifest: Manifest, ending: str) -> Path:
        return self.place / "app" / manifest.layout.name / f"{manifest.name}{ending}"

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in (self.place / "app" / LAYOUT.name).iterdir())


@pytest.fixture
def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lane:
    made = Lane(tmp_path)
    monkeypatch.setattr("penstock.state.copies.time.time", lambda: made.now_ms / 1_000)
    return made


def test_a_copy_is_the_lane_with_its_epochs_in_flight(lane: Lane) -> None:
    lane.write(0)
    manifest = lane.published(1)
    assert (manifest.epoch, manifest.mark.offsets, manifest.layout) == (1, {"log/0": 1}, LAYOUT)
    state = lane.fetched(manifest)
    state.verify()
    assert {key: state.store(raw()).get(key) for key in ROWS} == {key: value + b"1" for key, value in ROWS.items()}
    state.roll_back()
    assert state.store(raw()).get(b"k000") == ROWS[b"k000"] + b"0"
    state.close()


def test_it_is_compressed_and_only_the_user_may_read_it(lane: Lane) -> None:
    manifest = lane.published(0)
    assert lane.file(manifest, ".lmdb.zst").stat().st_size < manifest.size / 4
    assert (lane.place / "app").stat().st_mode & 0o077 == 0


def test_the_newest_two_are_kept_and_the_newest_comes_first(lane: Lane) -> None:
    for epoch in range(4):
        lane.now_ms += 1
        lane.published(epoch)
    assert [manifest.epoch for manifest in lane.copies.newest(LAYOUT, 0)] == [3, 2]
    assert lane.names == ["0000-2.json", "0000-2.lmdb.zst", "0000-3.json", "0000-3.lmdb.zst"]
    assert lane.copies.newest(LAYOUT, 1) == []


def test_the_last_one_is_kept_even_if_the_clock_went_back(lane: Lane) -> None:
    for epoch in range(3):
        lane.now_ms -= 1
        lane.published(epoch)
    assert {manifest.epoch for manifest in lane.copies.newest(LAYOUT, 0)} == {0, 2}


def test_after_a_reset_copies_of_lower_epochs_are_the_newest(lane: Lane) -> None:
    lane.write(8)
    assert lane.publish() is not None
    lane.now_ms += 1
    before = lane.published(9)
    lane.now_ms += 1
    lane._store = lane.scratch / "after the reset"
    after = lane.published(0)
    assert [manifest.epoch for manifest in lane.copies.newest(LAYOUT, 0)] == [0, 9]
    lane.now_ms += 1
    again = lane.published(9)
    assert before.checksum != again.checksum
    assert lane.copies.newest(LAYOUT, 0) == [again, after]
    lane.fetched(again).close()


def test_a_lane_without_epochs_is_not_copied(lane: Lane) -> None:
    EngineFactory(EngineKind.LMDB, str(lane._store)).open().close()
    assert lane.publish() is None
    assert not lane.place.exists()


def test_only_files_can_be_copied(lane: Lane) -> None:
    state = LaneState(memory_engine())
    state.store(raw()).put(b"k", b"v")
    state.commit(0, mark=Mark(0, 0, {}, {}))
    with pytest.raises(StateError, match="Only stores of LMDB"):
        lane.copies.publish(LAYOUT, 0, state._engine, lane.scratch)


def test_other_layouts_are_listed_until_they_are_too_old(lane: Lane) -> None:
    lane.write(0)
    assert lane.publish(layout=Layout(8, 4)) is not None
    lane.published(1)
    assert lane.copies.layouts() == [Layout(8, 2), Layout(8, 4)]
    lane.now_ms += MARK_LIFE_MS
    lane.published(2)
    assert lane.copies.layouts() == [LAYOUT]


def test_an_upload_that_fails_leaves_no_copy_and_the_next_one_removes_its_remains(
    lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane.write(0)
    with monkeypatch.context() as patch:
        patch.setattr("penstock.state.copies.msgspec.json.encode", _broken)
        with pytest.raises(OSError, match="no space"):
            lane.publish()
    assert lane.names == ["0000-0.json.new", "0000-0.lmdb.zst"]
    assert lane.copies.newest(LAYOUT, 0) == []
    lane.published(1)
    assert lane.names == ["0000-1.json", "0000-1.lmdb.zst"]


def _broken(_: object) -> bytes:
    raise OSError("no space")


Damage = Callable[[bytes], bytes]


class TestDamage:
    """What others have written is not a copy."""

    @pytest.mark.parametrize(
        "damaged",
        [lambda data: data[:-20], lambda data: data + data, lambda data: b"", lambda data: data[:100] + b"?" + data[101:]],
        ids=["cut", "longer", "empty", "changed"],
    )
    def test_data_that_was_changed_is_refused(self, lane: Lane, damaged: Damage) -> None:
        manifest = lane.published(0)
        file = lane.file(manifest, ".lmdb.zst")
        file.write_bytes(damaged(file.read_bytes()))
        with pytest.raises((StateError, OSError)):
            lane.fetched(manifest)

    def test_no_more_is_written_than_the_manifest_says(self, lane: Lane) -> None:
        manifest = lane.published(0)
        with CompressedOutputStream(str(lane.file(manifest, ".lmdb.zst")), "zstd") as out:
            for _ in range(64):
                out.write(bytes(1 << 20))
        with pytest.raises(StateError, match="is damaged"):
            lane.fetched(manifest)
        assert (lane.scratch / "fetched" / DATA_FILE).stat().st_size <= manifest.size + 1

    def test_one_that_does_not_fit_is_not_fetched(self, lane: Lane) -> None:
        manifest = msgspec.structs.replace(lane.published(0), size=1 << 60)
        with pytest.raises(StateError, match="does not fit"):
            lane.fetched(manifest)
        assert not (lane.scratch / "fetched" / DATA_FILE).exists()

    @pytest.mark.parametrize(
        "text", [b"", b"[" * 10_000, b"{}", b'{"format": "penstock-lane"}', b"\xff", b'{"format": "other"}'], ids=range(6)
    )
    def test_a_manifest_that_is_none_is_ignored(self, lane: Lane, text: bytes, caplog: pytest.LogCaptureFixture) -> None:
        manifest = lane.published(0)
        lane.file(manifest, ".json").write_bytes(text)
        with caplog.at_level(logging.WARNING):
            assert lane.copies.newest(LAYOUT, 0) == []
        assert "cannot be read" in caplog.text

    @pytest.mark.parametrize(
        "change", [{"lane": 1}, {"lanes": 4}, {"shards": 4}, {"epoch": 7}, {"application_id": "other"}], ids=str
    )
    def test_a_manifest_of_another_copy_is_ignored(
        self, lane: Lane, change: dict[str, object], caplog: pytest.LogCaptureFixture
    ) -> None:
        manifest = lane.published(0)
        other = msgspec.structs.replace(manifest, **change)
        lane.file(manifest, ".json").write_bytes(msgspec.json.encode(other))
        with caplog.at_level(logging.WARNING):
            assert lane.copies.newest(LAYOUT, 0) == []
        assert "describes another one" in caplog.text
