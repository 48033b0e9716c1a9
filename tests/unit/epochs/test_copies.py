"""A lane is restored from the nearest store: its own, one of the host that has had it, or one of a directory of copies."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock import faults
from penstock.epochs import copies as module
from penstock.epochs.program import Program
from penstock.epochs.restore import Restored, restore_lane
from penstock.epochs.standing import Committed
from penstock.epochs.state_directory import open_lane
from penstock.errors import LaneMovedError
from penstock.state import MARK_LIFE_MS, EngineFactory, EngineKind, LaneState, Mark, Snapshots, SpaceBatch
from penstock.state.copies import CopyDirectory, Layout
from penstock.state.remote.client import RemoteEngine, clients_of
from tests.unit.epochs.application import ID, SHARDS, Application, by_key, driven, far_future, some_records
from tests.unit.epochs.spread import KEY, SpreadApplication

RECORDS = some_records(seed=5, count=300)


@pytest.fixture(autouse=True)
def whatever_it_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FEW_OFFSETS", 0)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[SpreadApplication]:
    """Two hosts that have run some epochs, and a directory of copies."""
    made = SpreadApplication(tmp_path)
    made.has_servers, made.copies = True, tmp_path / "copies"
    made.hosts = {"one", "two"}
    made.begin()
    made.step(RECORDS[:40])
    made.note_mark()
    made.step(RECORDS[40:80])
    yield made
    made.close()


def found(restored: list[Restored]) -> list[str]:
    return [lane.found for lane in restored]


def rows_of(restored: list[Restored]) -> int:
    return sum(lane.rows for lane in restored)


def is_fine(app: SpreadApplication) -> None:
    """The lanes are as committed, and so is what comes next."""
    app.check()
    app.step(RECORDS[app.position : app.position + 30])
    app.check()
    app.step(far_future())
    assert by_key(app.sent) == by_key(driven(app))


def move(app: SpreadApplication, hosts: set[str]) -> list[Restored]:
    app.hosts = hosts
    app.attempt += 1
    return app.place_anew()


def remains(app: SpreadApplication) -> list[Path]:
    return [path for path in app.directory.rglob("*") if ".copy-" in path.name]


class TestPeers:
    """Lanes that move are copied by the host that has had them."""

    def test_a_new_host_copies_its_lanes_and_reads_nothing(self, app: SpreadApplication) -> None:
        restored = move(app, {"one", "two", "three"})
        assert sorted(found(restored)) == ["copied", "up to date", "up to date", "up to date"]
        assert rows_of(restored) == 0
        assert not remains(app)
        is_fine(app)

    def test_epochs_that_are_not_committed_are_rolled_back(self, app: SpreadApplication) -> None:
        app.send(RECORDS[80:120])
        app.send(RECORDS[120:160])
        app.commit_oldest()
        app.in_flight.clear()
        del app.heads[1:]
        restored = move(app, {"one", "two", "three"})
        assert (min(found(restored)), rows_of(restored)) == ("copied", 0)
        is_fine(app)

    def test_without_the_roll_back_it_would_do_harm(self, app: SpreadApplication, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "is_usable", lambda *_, **__: True)
        app.send(RECORDS[80:120])
        app.in_flight.clear()
        del app.heads[1:]
        move(app, {"one", "two", "three"})
        with pytest.raises(AssertionError):
            app.check()

    def test_a_store_that_is_too_far_behind_is_replaced(self, app: SpreadApplication) -> None:
        move(app, {"one", "two", "three"})
        app.step(RECORDS[80:120])
        move(app, {"one", "two"})
        app.step(RECORDS[120:160])
        restored = move(app, {"one", "two", "three"})
        assert sorted(found(restored)) == ["copied", "up to date", "up to date", "up to date"]
        assert rows_of(restored) == 0
        is_fine(app)

    def test_a_store_with_little_to_read_catches_up(self, app: SpreadApplication, monkeypatch: pytest.MonkeyPatch) -> None:
        move(app, {"one", "two", "three"})
        move(app, {"one", "two"})
        app.step(RECORDS[80:120])
        monkeypatch.setattr(module, "FEW_OFFSETS", 100_000)
        assert min(found(move(app, {"one", "two", "three"}))) == "behind"
        is_fine(app)

    def test_a_host_that_does_not_answer_is_done_without(self, app: SpreadApplication) -> None:
        clients_of(KEY).close()
        app.forked.close()
        assert "rebuilt" in found(move(app, {"one", "two", "three"}))
        is_fine(app)

    @pytest.mark.parametrize("parts", [0, 1])
    def test_a_copy_that_breaks_off_is_never_opened(
        self, app: SpreadApplication, monkeypatch: pytest.MonkeyPatch, parts: int
    ) -> None:
        opened: list[Path] = []

        def broken(self: RemoteEngine) -> tuple[int, Iterator[bytes]]:
            def content() -> Iterator[bytes]:
                yield from [b"x" * 4_096] * parts
                raise LaneMovedError("The connection was closed.")

            return 10_000, content()

        def judge(program: Program, lane: int, committed: Committed, directory: Path, is_copy: bool) -> bool:
            opened.append(directory)
            return True

        monkeypatch.setattr(RemoteEngine, "copied", broken)
        monkeypatch.setattr(module, "is_usable", judge)
        assert "rebuilt" in found(move(app, {"one", "two", "three"}))
        assert not opened
        assert not remains(app)
        is_fine(app)

    def test_what_a_killed_task_has_left_is_removed(self, app: SpreadApplication, monkeypatch: pytest.MonkeyPatch) -> None:
        class KilledError(BaseException):
            """The process is killed, and cleans up nothing."""

        def point(name: str) -> None:
            if name == "restore.copied":
                raise KilledError

        with monkeypatch.context() as patch:
            patch.setattr(faults, "point", point)
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)
            with pytest.raises(KilledError):
                move(app, {"one", "two", "three"})
        assert remains(app)
        assert "copied" in found(app.place_anew())
        assert not remains(app)
        is_fine(app)

    def test_a_damaged_one_is_not_used(
        self, app: SpreadApplication, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        receive = module._receive

        def rotten(engine: RemoteEngine, directory: Path) -> None:
            receive(engine, directory)
            damage(directory)

        monkeypatch.setattr(module, "_receive", rotten)
        with caplog.at_level(logging.WARNING):
            assert "rebuilt" in found(move(app, {"one", "two", "three"}))
        assert "is damaged" in caplog.text
        is_fine(app)


def damage(directory: Path) -> None:
    """Change an entry without its digest."""
    engine = EngineFactory(EngineKind.LMDB, str(directory)).open()
    space, key = next((name, key) for name in ("words", "windows") for key, _ in engine.scan(name, None, None))
    engine.write([SpaceBatch(space, [key], [b"rotten"])])
    engine.close()


class TestDirectory:
    """What hosts have lost comes from the directory of copies."""

    @pytest.fixture
    def lost(self, app: SpreadApplication) -> Callable[..., list[Restored]]:
        """Start again on hosts without anything."""

        def start(lanes: int = 4) -> list[Restored]:
            for host in app.hosts:
                app.lose_disk(host)
            app.in_flight.clear()
            return app.begin(lanes)

        return start

    def rebuilt_rows(self, app: SpreadApplication) -> int:
        """How many rows a rebuild reads."""
        changelogs = app.changelogs()
        return sum(len(list(filter(None, log))) for (topic, _), log in app.topics.logs.items() if topic in changelogs)

    def test_a_lane_reads_only_what_came_after_its_copy(
        self, app: SpreadApplication, lost: Callable[..., list[Restored]]
    ) -> None:
        app.publish()
        app.step(RECORDS[80:120])
        restored = lost()
        assert found(restored) == ["copied"] * 4
        assert 0 < rows_of(restored) < self.rebuilt_rows(app)
        is_fine(app)

    @pytest.mark.parametrize("committed", [0, 1, 2])
    def test_epochs_in_flight_in_a_copy_are_rolled_back(
        self, app: SpreadApplication, lost: Callable[..., list[Restored]], committed: int
    ) -> None:
        app.send(RECORDS[80:100])
        app.send(RECORDS[100:120])
        app.publish()
        for _ in range(committed):
            app.commit_oldest()
        assert found(lost()) == ["copied"] * 4
        is_fine(app)

    def test_without_the_roll_back_it_would_do_harm(
        self, app: SpreadApplication, lost: Callable[..., list[Restored]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        app.send(RECORDS[80:100])
        app.publish()
        monkeypatch.setattr(LaneState, "roll_back", lambda *_: None)
        lost()
        with pytest.raises(AssertionError):
            app.check()

    def test_a_nearer_store_of_the_host_is_kept(self, app: SpreadApplication) -> None:
        app.publish()
        app.note_mark()
        app.step(RECORDS[80:120])
        assert found(app.begin()) == ["behind"] * 4
        is_fine(app)

    def test_one_that_is_too_old_is_not_used(self, app: SpreadApplication, lost: Callable[..., list[Restored]]) -> None:
        app.publish()
        app.now_ms += MARK_LIFE_MS + 1
        assert found(lost()) == ["rebuilt"] * 4
        is_fine(app)

    def test_one_from_before_a_reset_is_not_used(self, app: SpreadApplication, lost: Callable[..., list[Restored]]) -> None:
        app.publish()
        app.topics.ids.clear()
        assert found(lost()) == ["rebuilt"] * 4
        is_fine(app)

    @pytest.mark.security(26)
    @pytest.mark.parametrize("content", [None, b"", b"noise" * 1_000])
    def test_a_bad_one_is_ignored_with_a_warning_and_the_one_before_is_used(
        self,
        app: SpreadApplication,
        lost: Callable[..., list[Restored]],
        content: bytes | None,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        app.publish()
        app.step(RECORDS[80:100])
        app.publish()
        assert app.copies is not None
        for path in app.copies.rglob(f"0001-{app.epoch}.lmdb.zst"):
            path.unlink() if content is None else path.write_bytes(content)
        with caplog.at_level(logging.WARNING):
            assert found(lost()) == ["copied"] * 4
        assert f"The copy of lane 1 as of epoch {app.epoch}" in caplog.text
        is_fine(app)

    @pytest.mark.security(26)
    def test_a_mark_that_nobody_can_have_does_not_keep_the_application_from_starting(
        self, app: SpreadApplication, lost: Callable[..., list[Restored]]
    ) -> None:
        with open_lane(app.on(app.placement[0]), 0) as state:
            mark = state.head.mark
            assert mark is not None
            offsets = {place: offset + 1_000 for place, offset in mark.offsets.items()}
            state.restore([], mark=Mark(mark.epoch, mark.time_ms, offsets, mark.topic_ids))
        app.publish()
        assert found(lost()) == ["rebuilt", "copied", "copied", "copied"]
        is_fine(app)

    def test_a_directory_that_cannot_be_reached_is_done_without(
        self, app: SpreadApplication, lost: Callable[..., list[Restored]], caplog: pytest.LogCaptureFixture
    ) -> None:
        app.copies = Path("nowhere://there")
        with caplog.at_level(logging.WARNING):
            assert found(lost()) == ["rebuilt"] * 4
        assert "The directory of copies" in caplog.text
        is_fine(app)

    def test_other_numbers_of_lanes_are_composed_of_copies(
        self, app: SpreadApplication, lost: Callable[..., list[Restored]]
    ) -> None:
        app.publish()
        app.step(RECORDS[80:120])
        restored = lost(lanes=3)
        assert found(restored) == ["composed"] * 3
        assert 0 < rows_of(restored) < self.rebuilt_rows(app)
        assert not remains(app)
        is_fine(app)


class TestOneMachine:
    """Without a cluster, the files of a machine that was lost come from the directory of copies, too."""

    @pytest.fixture
    def single(self, tmp_path: Path) -> Single:
        made = Single(tmp_path / "state")
        made.copies = tmp_path / "copies"
        made.start(3)
        made.step(RECORDS[:40])
        made.note_mark()
        made.step(RECORDS[40:80])
        return made

    @pytest.mark.parametrize("lanes", [3, 2])
    def test_an_epoch_that_ran_again_is_not_taken_from_a_copy(self, single: Single, lanes: int) -> None:
        single.run(RECORDS[80:120])
        single.publish()
        single.take_back()
        single.step(RECORDS[80:100])
        shutil.rmtree(single.directory)
        restored = single.start(lanes)
        assert found(restored) == ["copied" if lanes == 3 else "composed"] * lanes
        single.check()
        single.step(far_future())
        assert by_key(single.sent) == by_key(driven(single))

    def test_a_copy_of_the_committed_epoch_is_all_that_is_needed(self, single: Single) -> None:
        single.publish()
        shutil.rmtree(single.directory)
        restored = single.start(3)
        assert found(restored) == ["copied"] * 3
        single.check()


class Single(Application):
    """An application on one machine, with a directory of copies."""

    copies: Path

    def program(self, lanes: int, incarnation: str) -> Program:
        return replace(super().program(lanes, incarnation), copies=str(self.copies))

    def publish(self) -> None:
        for lane in range(self.lanes):
            snapshots = Snapshots(EngineFactory(EngineKind.LMDB, str(self.lane_directory(lane))))
            CopyDirectory(str(self.copies), ID).publish(Layout(SHARDS, self.lanes), lane, snapshots.take(), self.copies.parent)
            snapshots.close()


def test_a_retry_uses_no_store(app: SpreadApplication) -> None:
    app.publish()
    committed = replace(app.committed(), heads=app.heads[0], attempt=app.attempt)
    program = app.on(app.placement[0])
    assert restore_lane(program, 0, committed, app.topics.read, lambda left: None, is_retry=True).found == "rebuilt"
