"""The directory of an application: one owner at a time, and stores are trusted only if they were written to disk."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from penstock import StreamsBuilder
from penstock.epochs import state_directory as home_module
from penstock.epochs.state_directory import StateDirectory, open_globals, open_lane
from penstock.errors import FencedError, StateError
from penstock.state import EngineFactory, EngineKind, LaneState
from tests.unit.epochs.application import Application, Raw

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def home(tmp_path: Path) -> StateDirectory:
    return StateDirectory(str(tmp_path), "app")


@pytest.fixture
def store(home: StateDirectory) -> Path:
    """A store that a start must not remove without need."""
    home.take_over("first")
    store = home.lane_directory(0, 2) / "data.mdb"
    store.parent.mkdir(parents=True)
    store.write_text("content")
    home.global_directory.mkdir()
    return store


@pytest.fixture
def reboot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The machine's boot id: write to it to simulate a reboot."""
    boot = tmp_path / "boot_id"
    boot.write_text("boot-1\n")
    monkeypatch.setattr(home_module, "_BOOT", boot)
    return boot


class TestOwner:
    def test_the_owner_is_the_last_one_to_take_over(self, home: StateDirectory) -> None:
        home.take_over("first")
        with home.held_by("first"):
            pass
        home.take_over("second")
        with home.held_by("second"):
            pass
        with pytest.raises(FencedError, match="Another instance of 'app' has taken over"), home.held_by("first"):
            raise AssertionError("a store was open")

    def test_only_it_may_open_a_lane(self, tmp_path: Path) -> None:
        app = Application(tmp_path)
        zombie = app.take_over(1)
        app.take_over(1)
        with pytest.raises(FencedError), open_lane(zombie, 0):
            raise AssertionError("a store was open")
        assert not app.lane_directory(0).exists()

    def test_of_one_start_only_the_last_attempt_may_open_a_lane(self, tmp_path: Path) -> None:
        """Tasks of a failed job must not write to a store that the next job uses."""
        app = Application(tmp_path)
        program = app.take_over(1)
        with open_lane(program, 0):
            pass
        home = StateDirectory(str(tmp_path), app.running.application_id)
        home.fence(program.incarnation, 1)
        with open_lane(program, 0, attempt=1):
            pass
        for attempt in (0, 2):
            with pytest.raises(FencedError), open_lane(program, 0, attempt):
                raise AssertionError("a store was open")
        zombie, program = program, app.take_over(1)
        with pytest.raises(FencedError):
            home.fence(zombie.incarnation, 2)
        with open_lane(program, 0):
            pass

    def test_a_fence_waits_for_open_stores(self, home: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(home_module, "LOCK_TIMEOUT_S", 0.05)
        home.take_over("first")
        with home.held_by("first"), pytest.raises(StateError, match="A task of an earlier start is stuck"):
            home.fence("first", 1)

    def test_a_start_with_failed_jobs_can_let_go(self, home: StateDirectory, reboot: Path, store: Path) -> None:
        home.fence("first", 3)
        home.let_go("first")
        reboot.write_text("boot-2\n")
        home.take_over("second")
        assert store.exists()

    def test_other_users_cannot_read_the_directory(self, home: StateDirectory) -> None:
        home.take_over("first")
        assert home.root.stat().st_mode & 0o777 == 0o700

    def test_a_lane_is_not_kept_in_memory(self, tmp_path: Path) -> None:
        app = Application(tmp_path)
        program = replace(app.take_over(1), engine=EngineKind.MEMORY)
        with pytest.raises(StateError, match="the memory engine is only for tests"), open_lane(program, 0):
            pass

    def test_a_lane_is_closed_whatever_happens_in_it(self, tmp_path: Path) -> None:
        program = Application(tmp_path).take_over(1)
        for _ in range(2):  # twice in one process would be refused by the engine
            with pytest.raises(KeyError), open_lane(program, 0):
                raise KeyError


class TestBoot:
    def test_stores_stay_while_the_machine_runs(self, home: StateDirectory, reboot: Path, store: Path) -> None:
        home.take_over("second")
        assert store.exists()

    def test_stores_are_forgotten_after_a_crash_of_the_machine(self, home: StateDirectory, reboot: Path, store: Path) -> None:
        reboot.write_text("boot-2\n")
        home.take_over("second")
        assert not store.exists()
        assert not home.global_directory.exists()

    def test_they_are_forgotten_once(self, home: StateDirectory, reboot: Path, store: Path) -> None:
        reboot.write_text("boot-2\n")
        home.take_over("second")
        store.parent.mkdir(parents=True)
        store.write_text("rebuilt")
        home.take_over("third")
        assert store.exists()

    def test_synced_stores_survive_a_reboot(self, home: StateDirectory, reboot: Path, store: Path) -> None:
        home.let_go("first")
        reboot.write_text("boot-2\n")
        home.take_over("second")
        assert store.exists()

    def test_the_sync_counts_until_the_next_owner_takes_over(self, home: StateDirectory, reboot: Path, store: Path) -> None:
        home.let_go("first")
        home.take_over("second")
        reboot.write_text("boot-2\n")
        home.take_over("third")
        assert not store.exists()

    def test_only_the_owner_can_let_go(self, home: StateDirectory, reboot: Path, store: Path) -> None:
        home.take_over("second")
        home.let_go("first")
        reboot.write_text("boot-2\n")
        home.take_over("third")
        assert not store.exists()

    def test_letting_go_syncs_all_files_before_it_notes_that(
        self, home: StateDirectory, store: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced = []
        sync = os.fsync

        def noted(file: int) -> None:
            synced.append((Path(f"/proc/self/fd/{file}").readlink(), (home.root / "clean").exists()))
            sync(file)

        monkeypatch.setattr(os, "fsync", noted)
        home.let_go("first")
        assert (store, False) in synced
        assert (home.root / "clean").exists()


def test_stores_of_other_numbers_of_lanes_are_forgotten(home: StateDirectory) -> None:
    home.take_over("first")
    for lanes in (1, 2, 22):
        home.lane_directory(0, lanes).mkdir(parents=True)
    home.forget_others(2)
    assert [lanes for lanes in (1, 2, 22) if home.lane_directory(0, lanes).exists()] == [2]


def test_they_are_forgotten_even_if_the_clock_was_set_back(home: StateDirectory) -> None:
    home.take_over("first")
    home.lane_directory(0, 1).mkdir(parents=True)
    os.utime(home.lane_directory(0, 1), (time.time() + 1_000, time.time() + 1_000))
    home.forget_others(2)
    assert home.layouts == []


def test_stores_of_other_numbers_of_lanes_are_kept_while_they_may_be_of_use(home: StateDirectory) -> None:
    home.take_over("first")
    for lanes, file_age_s, directory_age_s in ((1, 100, 100), (3, 10, 100), (4, 100, 10), (2, 100, 100)):
        file = home.lane_directory(0, lanes) / "data.mdb"
        file.parent.mkdir(parents=True)
        file.touch()
        for path, age_s in ((file, file_age_s), (file.parent, directory_age_s), (file.parent.parent, directory_age_s)):
            os.utime(path, (time.time() - age_s, time.time() - age_s))
    home.forget_others(2, unused_for_s=50)
    assert sorted(home.layouts) == [2, 3, 4]


class TestLocks:
    def test_a_start_waits_for_lanes_that_are_open_in_other_processes(self, home: StateDirectory, tmp_path: Path) -> None:
        home.take_over("first")
        child = SPAWN.Process(target=hold_open, args=(str(tmp_path), 0.5))
        child.start()
        wait_for(tmp_path / "open")
        home.take_over("second")
        assert (tmp_path / "closed").exists()
        child.join()
        assert child.exitcode == 0

    def test_lanes_are_open_side_by_side(self, home: StateDirectory) -> None:
        home.take_over("first")
        with home.held_by("first"), home.held_by("first"):
            pass

    def test_a_lane_that_never_closes_is_named(self, home: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(home_module, "LOCK_TIMEOUT_S", 0.05)
        home.take_over("first")
        with home.held_by("first"), pytest.raises(StateError, match="A task of an earlier start is stuck"):
            home.take_over("second")
        with home.held_by("first"):  # and nothing has changed
            pass

    def test_no_lane_opens_during_a_takeover(self, home: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(home_module, "LOCK_TIMEOUT_S", 0.05)
        home.take_over("first")
        with (home.root / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with pytest.raises(StateError, match="was locked"), home.held_by("first"):
                pass


def hold_open(directory: str, seconds: float) -> None:
    """Act as a zombie: keep a lane open for a while."""
    with StateDirectory(directory, "app").held_by("first"):
        Path(directory, "open").touch()
        time.sleep(seconds)
        Path(directory, "closed").touch()


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)


class TestGlobals:
    def test_without_global_stores_there_is_nothing_to_open(self, tmp_path: Path) -> None:
        with open_globals(Application(tmp_path).take_over(1)) as state:
            assert state is None

    def test_they_are_read_as_of_their_last_write(self, tmp_path: Path) -> None:
        builder = StreamsBuilder()
        table = builder.global_table("in", value=str, store="names")
        builder.stream("other", value=str).join(table, lambda left, right: right, on=lambda key, value: value).to("out")
        app = Application(tmp_path, builder.build)
        program = app.take_over(1)
        directory = str(StateDirectory(str(tmp_path), "app").global_directory)
        owner = LaneState(EngineFactory(EngineKind.LMDB, directory).open())
        owner.store(program.specs["names"]).put("a", "1", 0)
        owner.commit(0)
        owner.close()
        with open_globals(program) as state:
            assert state is not None
            assert state.store(program.specs["names"]).get("a") == "1"
            with pytest.raises(StateError):
                state.commit(1)


def test_a_record_reaches_a_lane_that_was_opened_by_name(tmp_path: Path) -> None:
    app = Application(tmp_path)
    app.start(1)
    app.step([Raw(b"a", b"x", 0)])
    assert app.lane_directory(0) == tmp_path / "app" / "lanes-1" / "0000"
    assert (app.lane_directory(0) / "data.mdb").exists()


class TestOccupied:
    def test_a_process_that_runs_keeps_it_from_being_removed(self, tmp_path: Path) -> None:
        home = StateDirectory(str(tmp_path), "app")
        home.take_over("one")
        leave, leave_too = home.occupy(), home.occupy()  # an instance that is taken over from, and the one that does
        with pytest.raises(StateError, match="'app' is running on this machine"), home.vacant():
            pass
        leave()
        leave_too()
        with home.vacant():
            home.remove()
        assert not home.root.exists()

    def test_no_start_while_the_directory_is_being_removed(self, tmp_path: Path) -> None:
        home = StateDirectory(str(tmp_path), "app")
        home.take_over("one")
        with home.vacant(), pytest.raises(StateError, match="is being removed by a reset"):
            home.occupy()
        home.occupy()()

    def test_a_missing_directory_is_vacant(self, tmp_path: Path) -> None:
        with StateDirectory(str(tmp_path), "app").vacant():
            assert not (tmp_path / "app").exists()
