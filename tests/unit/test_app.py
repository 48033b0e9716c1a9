"""`App`: a topology and its id, and how it runs: settings, signals, exit codes."""

from __future__ import annotations

import inspect
import json
import logging
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock import App, Plugin, Topology, dead_letter, log_and_continue
from penstock.config import Config
from penstock.errors import BrokerError, ConfigError, FencedError, PenstockError, ProcessingError, TopicError, TopologyError
from penstock.handlers import ErrorHandlers
from penstock.runtime import application as application_module
from penstock.runtime.application import RunningApplication
from penstock.runtime.hooks import Hooks

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@pytest.mark.parametrize("name", ["word-count", "a", "Orders_2.v1", "x" * 200])
def test_valid_application_ids(name: str) -> None:
    topology = Topology()
    app = App(name, topology)
    assert (app.application_id, app.topology) == (name, topology)


@pytest.mark.parametrize("name", ["", "word count", "a/b", "é", "x" * 201, "a\n", ".", ".."])
def test_any_other_application_id_is_refused(name: str) -> None:
    with pytest.raises(TopologyError, match=r"Invalid application id .*: use at most 200 letters, digits"):
        App(name, Topology())


def test_an_invalid_error_handler_is_refused_when_it_is_declared() -> None:
    with pytest.raises(ConfigError, match="not 'skip'"):
        App("app", Topology(), processing_errors="skip")  # type: ignore[arg-type]


def test_an_invalid_plug_in_is_refused_when_it_is_declared() -> None:
    with pytest.raises(ConfigError, match=r"derived from penstock\.Plugin"):
        App("app", Topology(), plugins=[Plugin])  # type: ignore[list-item]


class Played:
    """Stands in for `RunningApplication`: records its arguments, and waits as the test says."""

    made: list[Played]
    waits: Callable[[Played], bool]

    def __init__(
        self,
        application_id: str,
        topology: Topology,
        handlers: ErrorHandlers,
        config: Config,
        hooks: Hooks,
        until: Any = None,
        listeners: tuple[Any, ...] = (),
    ) -> None:
        self.given = (application_id, topology, handlers)
        self.config = config
        self.until = until
        self.listeners = listeners
        self.hooks = hooks
        self.did: list[str] = []
        self.made.append(self)

    def start(self) -> Played:
        self.did.append("start")
        return self

    def wait(self, timeout_s: float | None = None) -> bool:
        return type(self).waits(self)

    def stop(self) -> None:
        self.did.append("stop")


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> type[Played]:
    Played.made = []
    Played.waits = staticmethod(lambda running: True)
    monkeypatch.setattr(application_module, "RunningApplication", Played)
    monkeypatch.setenv("PENSTOCK_ADMIN_ADDRESS", "off")
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    return Played


@pytest.fixture
def app() -> App:
    return App("word-count", Topology())


def test_the_stand_in_has_the_signature_of_the_real_one() -> None:
    assert list(inspect.signature(Played).parameters) == list(inspect.signature(RunningApplication).parameters)


class TestStart:
    def test_settings_are_the_configs_names(self, app: App, played: type[Played]) -> None:
        app.start(bootstrap_servers="broker:1", lanes=3, until="latest")
        (running,) = played.made
        assert (running.config.kafka["bootstrap.servers"], running.config.lanes) == ("broker:1", 3)
        assert running.given == ("word-count", app.topology, app.error_handlers)
        assert (running.until, running.listeners, running.did) == ("latest", (), ["start"])

    def test_handlers_are_passed_on(self, played: type[Played]) -> None:
        handlers: dict[str, Any] = {
            "deserialization_errors": log_and_continue(),
            "processing_errors": dead_letter("dead"),
            "production_errors": log_and_continue(),
        }
        App("app", Topology(), **handlers).start(bootstrap_servers="broker:1")
        assert played.made[0].given[2] == ErrorHandlers(
            deserialization=log_and_continue(), processing=dead_letter("dead"), production=log_and_continue()
        )

    def test_a_listener_is_passed_on(self, app: App, played: type[Played]) -> None:
        def listener(new: Any, old: Any) -> None:
            """Nothing."""

        app.start(bootstrap_servers="broker:1", on_state=listener)
        assert played.made[0].listeners == (listener,)

    def test_plug_ins_are_passed_on(self, played: type[Played]) -> None:
        plugins = [Plugin()]
        App("app", Topology(), plugins=plugins).start(bootstrap_servers="broker:1")
        assert played.made[0].hooks.plugins == tuple(plugins)

    def test_an_invalid_setting_is_refused_before_anything_starts(self, app: App, played: type[Played]) -> None:
        with pytest.raises(ConfigError, match="lanes"):
            app.start(bootstrap_servers="broker:1", lane=3)
        assert played.made == []


class TestRun:
    def test_it_returns_when_the_application_has_ended(self, app: App, played: type[Played]) -> None:
        left = iter([False, False, True])
        played.waits = staticmethod(lambda running: next(left))
        app.run(bootstrap_servers="broker:1", until={("in", 0): 5})
        (running,) = played.made
        assert (running.until, running.did) == ({("in", 0): 5}, ["start"])
        assert next(left, None) is None

    @pytest.mark.parametrize("kind", SIGNALS)
    def test_a_signal_stops_the_application(self, app: App, played: type[Played], kind: signal.Signals) -> None:
        def wait(running: Played) -> bool:
            if "stop" in running.did:
                return True
            os.kill(os.getpid(), kind)
            return False

        before = [signal.getsignal(each) for each in SIGNALS]
        played.waits = staticmethod(wait)
        app.run(bootstrap_servers="broker:1")
        assert played.made[0].did == ["start", "stop"]
        assert [signal.getsignal(each) for each in SIGNALS] == before

    def test_signal_handlers_are_restored_after_a_failure(self, app: App, played: type[Played]) -> None:
        def wait(running: Played) -> bool:
            raise BrokerError("no broker")

        before = [signal.getsignal(each) for each in SIGNALS]
        played.waits = staticmethod(wait)
        with pytest.raises(SystemExit):
            app.run(bootstrap_servers="broker:1")
        assert [signal.getsignal(each) for each in SIGNALS] == before

    def test_it_runs_in_any_thread_but_handles_signals_in_the_main_one_only(self, app: App, played: type[Played]) -> None:
        heard: list[Any] = []

        def wait(running: Played) -> bool:
            heard.append(signal.getsignal(signal.SIGTERM))
            return True

        played.waits = staticmethod(wait)
        thread = threading.Thread(target=app.run, kwargs={"bootstrap_servers": "broker:1"})
        thread.start()
        thread.join(20)
        assert heard == [signal.getsignal(signal.SIGTERM)]


class TestExitCodes:
    @pytest.mark.parametrize(
        ("error", "code"),
        [
            (TopicError("x"), 12),
            (ProcessingError("x"), 10),
            (FencedError("x"), 20),
            (BrokerError("x"), 22),
            (PenstockError("x"), 1),
        ],
    )
    def test_a_failure_ends_the_process_with_its_own_code(
        self, app: App, played: type[Played], caplog: pytest.LogCaptureFixture, error: PenstockError, code: int
    ) -> None:
        def wait(running: Played) -> bool:
            raise error

        played.waits = staticmethod(wait)
        with caplog.at_level(logging.ERROR), pytest.raises(SystemExit) as ended:
            app.run(bootstrap_servers="broker:1")
        assert ended.value.code == code
        assert ended.value.__cause__ is error
        assert f"word-count ended ({error.code}, exit code {code}): x" in caplog.text

    def test_an_invalid_setting_has_its_own_exit_code(self, app: App, played: type[Played]) -> None:
        with pytest.raises(SystemExit) as ended:
            app.run(bootstrap_servers="broker:1", lanes=-1)
        assert ended.value.code == 2

    def test_an_unexpected_error_is_logged_with_its_trace(
        self, app: App, played: type[Played], caplog: pytest.LogCaptureFixture
    ) -> None:
        def wait(running: Played) -> bool:
            raise PenstockError("unforeseen") from ZeroDivisionError("deep below")

        played.waits = staticmethod(wait)
        with caplog.at_level(logging.ERROR), pytest.raises(SystemExit):
            app.run(bootstrap_servers="broker:1")
        assert "deep below" in caplog.text


class TestLogging:
    def test_logging_is_set_up_by_default(self, app: App, played: type[Played], monkeypatch: pytest.MonkeyPatch) -> None:
        root = logging.getLogger()
        monkeypatch.setattr(root, "handlers", [])
        monkeypatch.setattr(root, "level", root.level)
        monkeypatch.setattr(logging.getLogger("py4j"), "level", 0)
        app.run(bootstrap_servers="broker:1", log_level="warning")
        logging.captureWarnings(False)
        assert len(root.handlers) == 1
        assert root.level == logging.WARNING

    def test_an_invalid_setting_is_logged_in_the_same_format(
        self, app: App, played: type[Played], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        root = logging.getLogger()
        monkeypatch.setattr(root, "handlers", [])
        monkeypatch.setattr(root, "level", root.level)
        with pytest.raises(SystemExit):
            app.run(bootstrap_servers="broker:1", lanes=-1)
        logging.captureWarnings(False)
        [line] = capsys.readouterr().err.splitlines()
        found = json.loads(line)
        assert (found["application"], found["level"]) == ("word-count", "error")
        assert found["event"].startswith("word-count ended (config, exit code 2): lanes")

    def test_a_start_in_the_background_leaves_logging_to_others(
        self, app: App, played: type[Played], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(logging.getLogger(), "handlers", [])
        app.start(bootstrap_servers="broker:1")
        assert logging.getLogger().handlers == []

    def test_existing_logging_is_left_alone(self, app: App, played: type[Played]) -> None:
        before = list(logging.getLogger().handlers)
        app.run(bootstrap_servers="broker:1")
        assert logging.getLogger().handlers == before
