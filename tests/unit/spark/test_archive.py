"""The archive of classes: where it is, whose it is, when it is used, and how it comes to be there."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping
from io import StringIO
from math import inf
from pathlib import Path
from typing import Any

import pytest

from penstock.spark import archive as module
from penstock.spark import archiving, jvm
from penstock.spark.archive import OPTIONS, found_at, make_later, name_of, place_of, with_option
from penstock.spark.context import arguments_of
from penstock.spark.jvm import gateway_of
from verification.harness.processes import wait_until

SOON_S = 20
CONTENT = b"classes"
SERIAL = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The directory of archives, and a Java and a Spark to make them with."""
    for name in module._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "java_command", lambda: "/opt/java/bin/java")
    monkeypatch.setattr(module, "record_of", lambda command: "17.0.15")
    monkeypatch.setattr(module, "_find_spark_home", lambda: str(tmp_path / "spark"))
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    return tmp_path / "cache" / "penstock" / "spark"


def place(arguments: Mapping[str, str] = SERIAL) -> Path:
    found = place_of(arguments)
    assert found is not None
    return found


class TestPlace:
    def test_it_is_in_a_directory_that_is_only_this_users(self, cache: Path) -> None:
        assert place().parent == cache
        assert stat.S_IMODE(cache.stat().st_mode) == 0o700

    @pytest.mark.parametrize("same", [{"spark.app.name": "b"}, {"spark.sql.shuffle.partitions": "7"}, {"spark.driver.host": "h"}])
    def test_applications_share_it(self, same: dict[str, str]) -> None:
        assert place({**SERIAL, **same}) == place()

    @pytest.mark.parametrize("name", module.JVM_SETTINGS)
    def test_each_command_line_has_its_own(self, name: str) -> None:
        assert place({**SERIAL, name: "other"}) != place()

    @pytest.mark.parametrize("name", ["SPARK_SUBMIT_OPTS", "SPARK_DIST_CLASSPATH", "JAVA_TOOL_OPTIONS"])
    def test_each_environment_has_its_own(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        before = place()
        monkeypatch.setenv(name, "other")
        assert place() != before

    def test_each_java_has_its_own(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = place()
        monkeypatch.setattr(module, "record_of", lambda command: "17.0.16")
        newer = place()
        monkeypatch.setattr(module, "java_command", lambda: "/opt/other/bin/java")
        assert len({before, newer, place()}) == 3

    def test_each_spark_has_its_own(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        before = place()
        (tmp_path / "spark" / "jars" / "another.jar").touch()
        os.utime(tmp_path / "spark" / "jars", (1, 1))
        more = place()
        monkeypatch.setattr("pyspark.__version__", "9.9")
        assert len({before, more, place()}) == 3

    @pytest.mark.parametrize("chosen", ["-XX:SharedArchiveFile=/a.jsa", "-XX:ArchiveClassesAtExit=/a.jsa", "-Xshare:off"])
    def test_what_the_user_chooses_wins(self, monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
        assert place_of({OPTIONS: chosen}) is None
        assert place_of({"spark.driver.extraJavaOptions": f"-Xss4m {chosen}"}) is None
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", chosen)
        assert place_of(SERIAL) is None

    def test_without_java_there_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "java_command", lambda: None)
        assert place_of(SERIAL) is None

    @pytest.mark.parametrize("mode", [0o770, 0o707])
    def test_not_where_others_may_write(self, cache: Path, mode: int) -> None:
        cache.mkdir(parents=True)
        cache.chmod(mode)
        assert place_of(SERIAL) is None

    def test_not_in_what_is_another_users(self, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        cache.mkdir(mode=0o700, parents=True)
        monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
        assert place_of(SERIAL) is None

    def test_not_through_a_link(self, cache: Path, tmp_path: Path) -> None:
        cache.parent.mkdir(parents=True)
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        cache.symlink_to(tmp_path / "elsewhere")
        assert place_of(SERIAL) is None

    @pytest.mark.parametrize("home", ["/dev/null", "relative", "a:b"])
    def test_not_where_none_can_be(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_CACHE_HOME", home if home != "a:b" else str(tmp_path / home))
        assert place_of(SERIAL) is None


def made(at: Path, content: bytes = CONTENT) -> Path:
    path = name_of(at, content)
    path.write_bytes(content)
    path.chmod(0o600)
    return path


class TestUse:
    def test_it_is_found(self) -> None:
        assert found_at(place()) is None
        path = made(place())
        assert found_at(place()) == path

    def test_one_that_is_damaged_is_removed(self) -> None:
        """A JVM would crash with it."""
        path = made(place())
        path.write_bytes(CONTENT[:-1])
        assert found_at(place()) is None
        assert not path.exists()

    def test_one_that_others_may_have_written_is_removed(self) -> None:
        path = made(place())
        path.chmod(0o666)
        assert found_at(place()) is None
        assert not path.exists()

    def test_a_jvm_gets_it_and_is_quiet_about_it(self) -> None:
        found = with_option({OPTIONS: "-Da=b", "c": "d"}, "-XX:SharedArchiveFile=/my files/a.jsa")
        assert found == {OPTIONS: "-Da=b '-XX:SharedArchiveFile=/my files/a.jsa' -Xlog:cds*=off", "c": "d"}


class TestStart:
    @pytest.fixture
    def later(self, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
        """What is to be made later."""
        asked: list[Any] = []
        monkeypatch.setenv("SPARK_LAUNCHER_OPTS", "")
        monkeypatch.setattr(jvm, "launch_gateway", lambda conf, process: dict(conf.getAll()))
        monkeypatch.setattr(jvm, "make_later", lambda *arguments: asked.append(arguments))
        return asked

    def test_it_uses_the_archive(self, later: list[Any]) -> None:
        path = made(place())
        assert f"-XX:SharedArchiveFile={path}" in gateway_of(SERIAL, print)[OPTIONS]
        assert later == []

    def test_or_has_it_made(self, later: list[Any]) -> None:
        assert gateway_of(SERIAL, print) == SERIAL
        assert later == [(place(), SERIAL)]

    def test_or_does_without(self, later: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
        assert gateway_of(SERIAL, print) == SERIAL
        assert later == []


class TestMaking:
    @pytest.fixture
    def told(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
        """What the process that makes an archive is told; it ends when its input does."""
        program = tmp_path / "python"
        program.write_text(f'#!/bin/sh\nread line\necho "$@" > {tmp_path}/told\necho "$line" >> {tmp_path}/told\ncat\n')
        program.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(program))
        return tmp_path / "told"

    def test_it_is_made_by_a_process_that_ends_with_this_one(self, told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        at_exit: list[Any] = []
        monkeypatch.setattr("atexit.register", at_exit.append)
        monkeypatch.setattr("atexit.unregister", at_exit.remove)
        make_later(place(), {**SERIAL, "spark.app.name": "app"}, after_s=0)
        wait_until("it is told", lambda: told.exists() and len(told.read_text().splitlines()) == 2, SOON_S)
        command, line = told.read_text().splitlines()
        assert command == "-m penstock.spark.archiving"
        assert json.loads(line) == [str(place()), SERIAL]
        [end] = at_exit
        end()
        wait_until("it has ended", lambda: not at_exit, SOON_S)

    def test_not_at_once(self, told: Path) -> None:
        before = threading.enumerate()
        make_later(place(), SERIAL)
        [timer] = [each for each in threading.enumerate() if each not in before]
        assert isinstance(timer, threading.Timer)
        assert (timer.interval, timer.daemon) == (module.AFTER_S, True)
        timer.cancel()
        assert not told.exists()

    @pytest.fixture
    def runs(self, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
        """The files that a JVM would have written."""
        written: list[Path] = []

        def run(arguments: Mapping[str, str], path: Path) -> None:
            written.append(path)
            path.write_bytes(CONTENT)
            path.chmod(0o444)

        monkeypatch.setattr(archiving, "run", run)
        return written

    def test_it_is_made_once(self, runs: list[Path], cache: Path) -> None:
        archiving.make(place(), SERIAL)
        assert found_at(place()) == name_of(place(), CONTENT)
        archiving.make(place(), SERIAL)
        assert len(runs) == 1
        assert sorted(path.name for path in cache.iterdir()) == [name_of(place(), CONTENT).name, "making"]

    def test_by_one_process_at_a_time(self, runs: list[Path]) -> None:
        with (place().parent / "making").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            archiving.make(place(), SERIAL)
        assert runs == []

    def test_what_fails_or_was_killed_leaves_nothing(self, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
        def fail(arguments: Mapping[str, str], path: Path) -> None:
            path.write_bytes(CONTENT)
            raise RuntimeError("no memory")

        monkeypatch.setattr(archiving, "run", fail)
        place()
        (cache / "unfinished-1").mkdir()
        with pytest.raises(RuntimeError, match="no memory"):
            archiving.make(place(), SERIAL)
        assert [path.name for path in cache.iterdir()] == ["making"]

    def test_those_of_earlier_versions_go(self, runs: list[Path], cache: Path) -> None:
        for number in range(6):
            os.utime(made(cache / f"old{number}" if number else place({}), b"old"), (number, number))
        archiving.make(place(), SERIAL)
        kept = {path.name.partition("-")[0] for path in cache.glob("*.jsa")}
        assert kept == {place().name, "old3", "old4", "old5"}

    @pytest.mark.parametrize(("limit", "used", "left"), [("max", "7", 2_048), ("1500", "1000", 500), ("9000", "1000", 2_048)])
    def test_it_knows_how_much_memory_is_left(self, tmp_path: Path, limit: str, used: str, left: int) -> None:
        machine, most, now, none = (tmp_path / name for name in ("meminfo", "max", "current", "none"))
        machine.write_text("MemFree:   9 kB\nMemAvailable:     2 kB\nSwapFree: 9 kB\n")
        most.write_text(f"{limit}\n")
        now.write_text(f"{used}\n")
        assert archiving.room([(none, none), (most, now)], machine) == left
        assert archiving.room([(none, none)], none) == inf

    @pytest.mark.parametrize(("left", "is_made"), [(1 << 30, True), ((1 << 30) - 1, False)])
    def test_it_is_not_made_at_the_expense_of_the_application(
        self, runs: list[Path], monkeypatch: pytest.MonkeyPatch, left: int, is_made: bool
    ) -> None:
        monkeypatch.setattr(sys, "stdin", StringIO(json.dumps([str(place()), SERIAL]) + "\n"))
        monkeypatch.setattr(archiving, "room", lambda: left)
        monkeypatch.setattr(archiving, "_end_with_input", lambda: None)
        monkeypatch.setattr(archiving, "give_way", lambda: None)
        archiving.main()
        assert bool(runs) is is_made

    def test_it_gives_way_although_it_has_a_session_of_its_own(self) -> None:
        program = "import os; from penstock.spark.archiving import give_way; give_way(); print(os.nice(0))"
        shown = f"{program}; print(open('/proc/self/autogroup').read())"
        has_groups = Path("/proc/self/autogroup").exists()
        found = subprocess.run(
            [sys.executable, "-c", shown if has_groups else program],
            start_new_session=True,
            capture_output=True,
            text=True,
            check=True,
        )
        priority, _, group = found.stdout.partition("\n")
        assert priority == "19"
        assert not has_groups or group.rstrip().endswith(" nice 19")

    def test_asked_for_nothing_it_makes_that_of_default_settings(self, runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", StringIO())
        archiving.main()
        default = place_of(arguments_of({}, has_frames=False))
        assert default is not None
        assert found_at(default) is not None
