"""The format of log lines, the setup of logging, and the output of other processes."""

from __future__ import annotations

import io
import json
import logging
import pickle
import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from structlog.contextvars import bind_contextvars, bound_contextvars, clear_contextvars

from penstock.config import Config
from penstock.engines.output import SEAL
from penstock.observation import Recorder, logs
from penstock.observation.redaction import Redactor


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logging as in a new process; restored afterwards."""
    root, py4j = logging.getLogger(), logging.getLogger("py4j")
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    levels = root.level, py4j.level
    clear_contextvars()
    yield
    root.setLevel(levels[0])
    py4j.setLevel(levels[1])
    logging.captureWarnings(False)
    clear_contextvars()


class Written:
    """The text written to standard error so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._text = ""

    def getvalue(self) -> str:
        self._text += self._capsys.readouterr().err
        return self._text


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Written:
    return Written(capsys)


def alone() -> None:
    """Remove the handlers that pytest adds when a test begins."""
    root = logging.getLogger()
    root.handlers = [handler for handler in root.handlers if not type(handler).__module__.startswith("_pytest")]


def set_up(application_id: str, config: Config | None = None) -> None:
    alone()
    logs.set_up(application_id, config)


def config(**settings: Any) -> Config:
    return Config(kafka={"bootstrap.servers": "nowhere:1", "sasl.password": "hunter2-c4n4ry"}, **settings)


def lines(stream: Written) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


class TestJson:
    def test_a_line_starts_with_time_level_event_and_context(self, stderr: Written) -> None:
        set_up("words", config())
        with bound_contextvars(phase="job", epoch=7, lane=1, topology="f00d", incarnation="1"):
            logging.getLogger("penstock.some").warning("%d records", 3)
        [line] = lines(stderr)
        first = ["timestamp", "level", "logger", "event", "application", "topology", "incarnation", "lane", "epoch", "phase"]
        assert list(line) == first
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line.pop("timestamp"))
        assert list(line.values()) == ["warning", "penstock.some", "3 records", "words", "f00d", "1", 1, 7, "job"]

    def test_an_exception_is_one_line_too(self, stderr: Written) -> None:
        set_up("words", config())
        try:
            raise ValueError("bad\nvalue hunter2-c4n4ry")
        except ValueError:
            logging.getLogger("a").exception("it failed")
        [line] = lines(stderr)
        assert "ValueError: bad\nvalue [hidden]" in line["exception"]
        assert line["event"] == "it failed"

    def test_fields_that_users_add_are_logged_without_secrets(self, stderr: Written) -> None:
        set_up("words", config())
        extra = {"customer": 7, "api_token": "x", "place": ("in", "\x1b[2K"), "note": "hunter2-c4n4ry", "none": None}
        logging.getLogger("a").info("event", extra=extra)
        [line] = lines(stderr)
        assert {name: line[name] for name in extra} == {
            "customer": 7,
            "api_token": "[hidden]",
            "place": "('in', '\\x1b[2K')",
            "note": "[hidden]",
            "none": None,
        }

    def test_any_text_becomes_one_line_of_json(self, stderr: Written) -> None:
        set_up("words", config())
        logging.getLogger("a").info("%s", 'x\n{"level":"error"}\u2028\u202e\x1b[31m \ud800')
        [line] = lines(stderr)
        assert line["event"] == 'x\n{"level":"error"}\\u2028\\u202e\\x1b[31m \\ud800'

    def test_warnings_of_python_are_logged(self, stderr: Written) -> None:
        set_up("words", config())
        logging.getLogger("py.warnings").warning("old")  # what `captureWarnings` turns a warning into
        assert lines(stderr)[0]["logger"] == "py.warnings"

    def test_events_of_structlog_have_the_same_format(self, stderr: Written) -> None:
        set_up("words", config())
        wrapped = structlog.stdlib.ProcessorFormatter.wrap_for_formatter
        own = structlog.wrap_logger(logging.getLogger("own"), processors=[wrapped])
        own.info("placed", order=3)
        [line] = lines(stderr)
        assert (line["event"], line["order"], line["logger"], line["application"]) == ("placed", 3, "own", "words")


class TestText:
    def test_on_a_terminal_lines_are_for_people(self, monkeypatch: pytest.MonkeyPatch) -> None:
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        set_up("words", config())
        logging.getLogger("a").info("all is well")
        assert "\x1b[" in stream.getvalue()
        assert "all is well" in stream.getvalue()

    def test_no_value_can_look_like_a_separate_line(self, stderr: Written) -> None:
        set_up("words", config(log_format="text"))
        forged = "x\n2026-01-01T00:00:00+00:00 [error] all is lost\x1b[2K"
        try:
            raise ValueError(forged)
        except ValueError:
            logging.getLogger("a").exception("%s", forged)
        assert "\x1b" not in stderr.getvalue()
        first, *others = stderr.getvalue().splitlines()
        assert first.startswith("20")
        assert all(line.startswith(("    ", "Traceback")) for line in others if line), others

    @pytest.mark.parametrize(("form", "is_json"), [("json", True), ("text", False), ("auto", True)])
    def test_the_format_can_be_chosen(self, stderr: Written, form: str, is_json: bool) -> None:
        set_up("words", config(log_format=form))
        logging.getLogger("a").info("hello")
        assert stderr.getvalue().startswith("{") == is_json


class TestSettingUp:
    def test_the_level_is_taken_from_the_settings(self, stderr: Written) -> None:
        set_up("words", config(log_level="WARNING"))
        logging.getLogger("a").info("quiet")
        logging.getLogger("a").warning("loud")
        assert [line["event"] for line in lines(stderr)] == ["loud"]

    def test_logging_that_is_already_set_up_is_not_changed(self, stderr: Written) -> None:
        alone()
        own = logging.StreamHandler(io.StringIO())
        logging.getLogger().addHandler(own)
        set_up("words", config(log_level="DEBUG"))
        logs.worker_set_up(config(), {})()
        assert logging.getLogger().handlers == [own]
        assert stderr.getvalue() == ""

    def test_a_second_application_has_its_own_name_on_its_lines(self, stderr: Written) -> None:
        for name in ("first", "second"):
            set_up(name)
            set_up(name, config())
            logging.getLogger("a").info("hello")
        assert [line["application"] for line in lines(stderr)] == ["first", "second"]

    def test_a_worker_is_set_up_without_secrets(self, stderr: Written) -> None:
        packed = pickle.dumps(logs.worker_set_up(config(log_level="INFO"), {"application": "words", "incarnation": "1"}))
        assert b"c4n4ry" not in packed
        alone()
        pickle.loads(packed)()
        with bound_contextvars(lane=1, epoch=3):
            logging.getLogger("a").info("hello")
        [line] = lines(stderr)
        assert (line["application"], line["incarnation"], line["lane"], line["epoch"]) == ("words", "1", 1, 3)

    def test_a_worker_seals_its_lines_if_it_knows_how(self, stderr: Written, monkeypatch: pytest.MonkeyPatch) -> None:
        for seal in ("", "5ea1"):
            alone()
            logging.getLogger().handlers = []
            if seal:
                monkeypatch.setenv(SEAL, seal)
            else:
                monkeypatch.delenv(SEAL, raising=False)
            logs.worker_set_up(config(), {})()
            logging.getLogger("a").info("hello")
        assert [line.get("seal") for line in lines(stderr)] == [None, "5ea1"]

    def test_what_a_worker_prints_goes_to_standard_error(self, stderr: Written, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdout", sys.stdout)
        logs.worker_set_up(config(), {})()
        sys.stdout.write("printed\n")
        assert stderr.getvalue() == "printed\n"


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class TestPassingOn:
    @pytest.fixture(autouse=True)
    def _started(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(SEAL, "5ea1")

    def pass_on(self, line: dict[str, Any]) -> None:
        """Pass on a line of another process."""
        logs.pass_on(json.dumps({**line, "seal": "5ea1"}))

    def test_a_workers_line_is_unchanged_except_for_secrets_and_the_seal(self, stderr: Written) -> None:
        labels = {"application": "words", "incarnation": "1", "seal": "5ea1"}
        worker = logs.Formatter(is_json=True, labels=labels, redact=Redactor())
        record = logging.LogRecord("penstock.lanes", logging.WARNING, "", 0, "%s failed: %s", ("node", "hunter2-c4n4ry"), None)
        record.customer = 7
        with bound_contextvars(lane=1, epoch=3):
            written = worker.format(record)
        set_up("words", config())
        logs.pass_on(written)
        expected = json.loads(written)
        expected["event"] = "node failed: [hidden]"
        del expected["seal"]
        assert lines(stderr) == [expected]

    def test_the_jvms_lines_are_logged(self, stderr: Written) -> None:
        set_up("words", config())
        jvm = {"timestamp": "2026-01-02T03:04:05.678Z", "level": "WARN", "logger": "org.apache.spark.X", "event": "slow"}
        self.pass_on({**jvm, "exception": "java.lang.X\n\tat y"})
        [line] = lines(stderr)
        assert line == {
            "timestamp": "2026-01-02T03:04:05.678+00:00",
            "level": "warning",
            "logger": "org.apache.spark.X",
            "event": "slow",
            "application": "words",
            "exception": "java.lang.X\n\tat y",
        }

    @pytest.mark.parametrize(
        "line", ["printed", "{not json", '{"a": 1}', "[1]", '{"timestamp":1,"level":"","logger":"","event":""}']
    )
    def test_other_output_becomes_the_event_of_a_line(self, stderr: Written, line: str) -> None:
        set_up("words", config())
        logs.pass_on(line)
        [found] = lines(stderr)
        assert (found["event"], found["logger"], found["level"]) == (line, "penstock.output", "info")

    @pytest.mark.parametrize("seal", [None, "", "guessed", 5])
    def test_a_record_that_a_function_prints_is_no_log_line_whatever_its_producer_wrote(
        self, stderr: Written, monkeypatch: pytest.MonkeyPatch, seal: object
    ) -> None:
        set_up("words", config())
        forged = {
            "timestamp": "2020-01-01T00:00:00+00:00",
            "level": "critical",
            "logger": "penstock.runtime",
            "application": "pay",
        }
        value = json.dumps({**forged, "event": "another instance has taken over", **({} if seal is None else {"seal": seal})})
        logs.pass_on(value)
        monkeypatch.delenv(SEAL)
        logs.pass_on(value)
        for found in lines(stderr):
            assert (found["level"], found["logger"], found["application"]) == ("info", "penstock.output", "words")
            assert found["event"] == value
            assert not found["timestamp"].startswith("2020")

    def test_handlers_that_are_already_set_up_get_the_records(self, stderr: Written) -> None:
        alone()
        kept = Kept()
        logging.getLogger().addHandler(kept)
        logging.getLogger().setLevel(logging.WARNING)
        line = {"timestamp": "2026-01-02T03:04:05+00:00", "level": "error", "logger": "some.worker", "event": "100 %", "lane": 2}
        self.pass_on({**line, "exception": "Traceback", "msg": "forged", "args": [1]})
        self.pass_on({**line, "level": "info"})
        [record] = kept.records
        assert (record.getMessage(), record.levelno, record.name) == ("100 %", logging.ERROR, "some.worker")
        assert (vars(record)["lane"], record.exc_text) == (2, "Traceback")
        assert "some.worker" not in logging.root.manager.loggerDict

    def test_without_any_handler_output_is_printed(self, stderr: Written) -> None:
        alone()
        logs.pass_on("printed by a function")
        assert stderr.getvalue() == "printed by a function\n"

    def test_the_level_of_a_logger_is_respected(self, stderr: Written) -> None:
        set_up("words", config())
        name = "tests.telemetry.quiet"
        logging.getLogger(name).setLevel(logging.ERROR)
        self.pass_on({"timestamp": "never", "level": "warning", "logger": name, "event": "x"})
        self.pass_on({"timestamp": "never", "level": "strange", "logger": "other", "event": "y"})
        assert [line["event"] for line in lines(stderr)] == ["y"]


def test_the_thread_that_runs_an_epoch_logs_its_number_and_phase(stderr: Written) -> None:
    set_up("words", config())
    log, recorder = logging.getLogger("a"), Recorder()
    bind_contextvars(incarnation="1")

    recorder.epoch_begins(4, "before")
    log.info("first")
    recorder.phase_begins("job")
    log.info("second")
    elsewhere = threading.Thread(target=log.info, args=("elsewhere",))
    elsewhere.start()
    elsewhere.join()
    recorder.epoch_committed(1, {}, [], [], False)
    log.info("third")
    about = [(line["event"], line.get("epoch"), line.get("phase"), line.get("incarnation")) for line in lines(stderr)]
    assert about == [
        ("first", 4, "before", "1"),
        ("second", 4, "job", "1"),
        ("elsewhere", None, None, None),
        ("third", None, None, "1"),
    ]
