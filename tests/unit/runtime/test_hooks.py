"""Plug-ins of an application: when each is called, the effect of their failures, and how they are found."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from types import ModuleType
from typing import Any

import pytest

from penstock import Plugin, Topology, extras
from penstock.config import Config
from penstock.errors import BrokerError, ConfigError, PenstockError
from penstock.handlers import ErrorHandlers
from penstock.observation import EpochReport, Problem, RestoreReport
from penstock.runtime import application as application_module
from penstock.runtime import hooks
from penstock.runtime.application import RunningApplication
from penstock.runtime.states import State
from tests.unit.runtime.test_application import PATIENCE_S, Stage


class Diary(Plugin):
    """Records its calls; fails in the given hook."""

    def __init__(self, pages: list[str], name: str = "diary", fails: str = "") -> None:
        self._pages = pages
        self._name = name
        self._fails = fails
        self.problem: str | None = None

    @property
    def name(self) -> str:
        return self._name

    def _write(self, hook: str) -> None:
        self._pages.append(f"{self._name} {hook}")
        if self._fails == hook:
            raise ValueError("no more ink")

    def pre_start(self, running: RunningApplication) -> None:
        self._write("pre_start")

    def post_start(self, running: RunningApplication) -> None:
        assert running.state is State.RUNNING
        self._write("post_start")

    def pre_stop(self, running: RunningApplication) -> None:
        self._write("pre_stop")

    def post_stop(self, running: RunningApplication) -> None:
        self._write("post_stop")

    def on_state(self, new: State, old: State) -> None:
        self._write(new.value)

    def on_restore(self, report: RestoreReport) -> None:
        self._write(f"restored {report.fraction:.0%}")

    def on_epoch(self, report: EpochReport) -> None:
        self._write(f"epoch {report.number}")

    def health(self) -> str | None:
        return self.problem


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage()
    monkeypatch.setattr(application_module, "Start", lambda *arguments: stage)
    return stage


def made(*plugins: Plugin, **settings: Any) -> RunningApplication:
    config = Config(kafka={"bootstrap.servers": "nowhere:1"}, **settings)
    return RunningApplication(
        "app", Topology(), ErrorHandlers(), config, hooks.Hooks([*plugins, *hooks.installed(config.plugins)])
    )


def until_running(running: RunningApplication) -> None:
    assert running.wait_until_running(PATIENCE_S)


def commit(running: RunningApplication, number: int) -> None:
    running.recorder.epoch_begins(number, "before")
    running.recorder.epoch_committed(0, {}, [], [], False)


def test_each_hook_is_called_in_its_place(stage: Stage) -> None:
    running = made(Diary(stage.did)).start()
    until_running(running)
    running.close()
    assert stage.did == [
        "diary pre_start",
        "diary rebalancing",
        "start until None",
        "stream",
        "diary running",
        "diary post_start",
        "tick",
        "diary pending_shutdown",
        "diary pre_stop",
        "stop",
        "close second",
        "close first",
        "diary post_stop",
        "diary not_running",
    ]


def test_plug_ins_stop_in_the_opposite_order(stage: Stage) -> None:
    pages: list[str] = []
    with made(Diary(pages, "a"), Diary(pages, "b")).start() as running:
        until_running(running)
    assert [page for page in pages if "st" in page and "_" in page and "ing" not in page] == [
        "a pre_start",
        "b pre_start",
        "a post_start",
        "b post_start",
        "b pre_stop",
        "a pre_stop",
        "b post_stop",
        "a post_stop",
    ]


def test_reports_are_delivered_before_the_last_hook(stage: Stage) -> None:
    pages: list[str] = []
    running = made(Diary(pages)).start()
    until_running(running)
    running.recorder.restoring({0: 10})
    running.recorder.restoring({0: 5})
    running.recorder.restored()
    commit(running, 8)
    running.close()
    told = [page for page in pages if "restored" in page or "epoch" in page]
    assert told == ["diary restored 0%", "diary restored 50%", "diary restored 100%", "diary epoch 8"]
    assert pages.index("diary epoch 8") < pages.index("diary post_stop")


class TestFailing:
    def test_a_failure_in_pre_start_aborts_the_start(self, stage: Stage) -> None:
        pages: list[str] = []
        running = made(Diary(pages, "a"), Diary(pages, "b", fails="pre_start"), Diary(pages, "c")).start()
        with pytest.raises(PenstockError, match=r"^Plug-in 'b' failed in pre_start: ValueError: no more ink$"):
            running.wait(PATIENCE_S)
        assert running.state is State.ERROR
        assert "start until None" not in stage.did
        assert [page for page in pages if "_st" in page] == ["a pre_start", "b pre_start", "a pre_stop", "a post_stop"]

    @pytest.mark.parametrize("hook", ["post_start", "pre_stop", "post_stop", "running", "epoch 8", "restored 100%"])
    def test_a_later_failure_is_only_logged(self, stage: Stage, hook: str, caplog: pytest.LogCaptureFixture) -> None:
        pages: list[str] = []
        with caplog.at_level(logging.ERROR):
            running = made(Diary(pages, "bad", fails=hook), Diary(pages, "good")).start()
            until_running(running)
            commit(running, 8)
            running.recorder.restored()
            running.close()
        assert running.wait(PATIENCE_S)
        assert {f"bad {hook}", f"good {hook}"} <= set(pages)
        [record] = caplog.records
        assert record.getMessage().startswith("plug-in 'bad' failed in ")
        assert record.exc_info

    def test_an_application_that_fails_stops_its_plug_ins_too(self, stage: Stage) -> None:
        pages: list[str] = []
        stage.start_failure = BrokerError("gone")
        running = made(Diary(pages)).start()
        with pytest.raises(BrokerError):
            running.wait(PATIENCE_S)
        ends = ["diary pre_start", "diary rebalancing", "diary pending_error", "diary pre_stop", "diary post_stop", "diary error"]
        assert pages == ends


class TestSlowness:
    def test_a_slow_plug_in_does_not_delay_epochs(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(hooks, "WAITING", 3)
        may_go_on, is_in = threading.Event(), threading.Event()
        heard: list[int] = []

        class Slow(Plugin):
            def on_epoch(self, report: EpochReport) -> None:
                is_in.set()
                assert may_go_on.wait(PATIENCE_S)
                heard.append(report.number)

        running = made(Slow()).start()
        until_running(running)
        commit(running, 0)
        assert is_in.wait(PATIENCE_S)
        with caplog.at_level(logging.WARNING):
            for number in range(1, 10):
                commit(running, number)
        may_go_on.set()
        running.close()
        assert heard == [0, 1, 2, 3]
        assert caplog.text.count("plug-ins are too slow: 3 reports are waiting") == 1

    def test_a_plug_in_that_hangs_does_not_prevent_the_shutdown(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(hooks, "_PATIENCE_S", 0.05)
        monkeypatch.setattr(hooks, "WAITING", 1)
        may_go_on = threading.Event()

        class Hanging(Plugin):
            def on_epoch(self, report: EpochReport) -> None:
                may_go_on.wait(PATIENCE_S)

        for epochs in (1, 5):  # nothing waits; the queue is full
            running = made(Hanging()).start()
            until_running(running)
            for number in range(epochs):
                commit(running, number)
            running.close()
            assert running.wait(PATIENCE_S)
            assert "plug-ins have not handled the last reports" in caplog.text
            caplog.clear()
        may_go_on.set()


def test_a_plug_in_can_report_a_problem(stage: Stage) -> None:
    diary = Diary([])
    with made(diary).start() as running:
        until_running(running)
        assert running.health.ready() == ()
        diary.problem = "the printer is out of paper"
        assert running.health.ready() == (Problem("diary", "the printer is out of paper"),)
        assert running.health.live() == ()


def test_two_plug_ins_of_one_name_are_refused(stage: Stage) -> None:
    with pytest.raises(ConfigError, match="plugins: duplicate name 'diary'"):
        made(Diary([]), Diary([]))


class TestEntryPoints:
    @pytest.fixture
    def offer(self, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
        """Install objects as entry points."""

        def offer(**offered: Any) -> None:
            module = ModuleType("some_plugins")
            vars(module).update(offered)
            monkeypatch.setitem(sys.modules, "some_plugins", module)
            points = EntryPoints(EntryPoint(name, f"some_plugins:{name}", hooks.GROUP) for name in offered)
            monkeypatch.setattr(extras, "entry_points", lambda group: points if group == hooks.GROUP else ())

        return offer

    def test_only_the_listed_plug_ins_are_loaded(self, stage: Stage, offer: Callable[..., None]) -> None:
        pages: list[str] = []

        class Noted(Plugin):
            def pre_start(self, running: RunningApplication) -> None:
                pages.append(self.name)

        def not_asked_for() -> Plugin:
            raise AssertionError("it was not named")

        offer(noted=Noted, factory=lambda: Diary(pages), other=not_asked_for)
        with made(plugins=("factory", "noted")).start() as running:
            until_running(running)
        assert pages[:2] == ["diary pre_start", "Noted"]

    def test_the_error_says_what_is_installed(self, stage: Stage, offer: Callable[..., None]) -> None:
        offer(zebra=Plugin, audit=Plugin)
        with pytest.raises(ConfigError, match=r"plugins: .* 'audti' of group 'penstock\.plugins'\. Installed: audit, zebra"):
            made(plugins=("audti",))
        offer()
        with pytest.raises(ConfigError, match="Installed: none"):
            made(plugins=("audti",))

    def test_an_entry_point_that_fails_or_is_not_a_plug_in_is_refused_by_name(
        self, stage: Stage, offer: Callable[..., None]
    ) -> None:
        offer(broken=lambda: 1 / 0, other=dict)
        with pytest.raises(ConfigError, match="plugins: cannot create 'broken': ZeroDivisionError"):
            made(plugins=("broken",))
        with pytest.raises(ConfigError, match=r"plugins: 'other' is a dict\. Derive its class from penstock\.Plugin"):
            made(plugins=("other",))
