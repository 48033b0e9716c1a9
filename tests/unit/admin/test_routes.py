"""Each route of the admin server, requested over a socket."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import pytest

from penstock.admin import health as health_module
from penstock.admin import protocol, reports
from penstock.admin.routes import routes
from penstock.engines.port import Whereabouts
from penstock.epochs.wire import LaneReport
from penstock.errors import BrokerError
from penstock.observation import PartitionReport, Worker
from penstock.observation.metrics import Metrics
from tests.unit.admin.clients import Application
from tests.unit.admin.conftest import PATIENCE_S, Serve, Stage


def commit(application: Application, number: int) -> None:
    recorder = application.running.recorder
    recorder.epoch_begins(number, "job")
    recorder.phase_begins("produce")
    lane = LaneReport(0, 0, 5, 0.25, worker=4711, memory=1_000_000, stores={"counts": (3, 420)})
    recorder.epoch_committed(5, {"out": 4}, [("count", "late", 1)], [lane], is_sampled=True)


class TestHealth:
    def test_a_running_application_is_live_and_ready(self, application: Application) -> None:
        for path in ("/health/live", "/health/ready"):
            answer = application.get(path)
            assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
            assert answer.json == {"status": "ok", "state": "running", "paused": False, "problems": [], "restore": None}

    def test_a_restoring_application_is_live_and_reports_its_progress(self, serve: Serve) -> None:
        application = serve(is_up=False)
        application.running.recorder.restoring({0: 100, 1: 300})
        application.running.recorder.restoring({0: 0, 1: 100})
        assert application.get("/health/live").status == 200
        answer = application.get("/health/ready")
        assert answer.status == 503
        [problem] = answer.json["problems"]
        assert (answer.json["status"], problem["what"]) == ("failing", "restoring")
        assert "300 of 400 records (75%)" in problem["why"]
        lanes = [{"lane": 0, "left": 0, "total": 100}, {"lane": 1, "left": 100, "total": 300}]
        restore = answer.json["restore"]
        assert (restore["done"], restore["fraction"], restore["lanes"]) == (False, 0.75, lanes)

    def test_a_failing_user_check_makes_it_not_ready(self, application: Application) -> None:
        application.running.health.indicators["database"] = lambda: "cannot be reached"
        answer = application.get("/health/ready")
        assert (answer.status, answer.json["problems"]) == (503, [{"what": "database", "why": "cannot be reached"}])
        assert application.get("/health/live").status == 200

    def test_a_check_that_hangs_is_a_problem_and_delays_no_other_request(
        self, application: Application, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(health_module, "_CHECKS_S", 0.2)
        may_end = threading.Event()
        asked: list[int] = []

        def hangs() -> str | None:
            asked.append(threading.get_ident())
            may_end.wait(PATIENCE_S)
            return None

        application.running.health.indicators["slow"] = hangs
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.extend(application.get("/health/ready") for _ in range(3)))
        thread.start()
        assert application.get("/health/live").status == 200
        thread.join(PATIENCE_S)
        assert [answer.status for answer in answers] == [503] * 3
        assert answers[0].json["problems"][0]["what"] == "slow check"
        assert len(asked) == 1  # a check that hangs is not called again
        may_end.set()


def test_metrics_are_in_prometheus_form(application: Application) -> None:
    commit(application, 8)
    answer = application.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert b"# TYPE penstock_" in answer.body


def test_slow_metrics_delay_no_other_request(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    monkeypatch.setattr(reports, "_METRICS_S", 0.2)
    monkeypatch.setattr(Metrics, "exposition", lambda metrics: may_end.wait(PATIENCE_S) and (b"", ""))
    application = serve()
    assert application.get("/metrics").status == 503
    assert application.get("/state").status == 200
    may_end.set()


def test_metrics_that_fail_are_an_internal_error(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(metrics: Metrics) -> tuple[bytes, str]:
        raise ZeroDivisionError("deep below")

    monkeypatch.setattr(Metrics, "exposition", fails)
    answer = serve().get("/metrics")
    assert answer.status == 500
    assert answer.json["id"] in caplog.text
    assert "ZeroDivisionError: 'deep below'" in caplog.text


class TestTopology:
    def test_json(self, application: Application) -> None:
        graph = application.get("/topology").json
        assert [node["kind"] for node in graph["nodes"]] == ["source", "processor", "processor", "sink"]
        source, count, _, sink = graph["nodes"]
        assert (source["topics"], source["pattern"], source["parents"]) == (["lines"], None, [])
        assert (count["operator"], count["stores"], count["parents"]) == ("StreamAggregate", ["counts"], [source["name"]])
        assert (sink["topic"], sink["sub_topology"]) == ("out", 0)
        assert "conftest.py" in sink["line"]
        assert graph["stores"] == [{"name": "counts", "kind": "timestamped", "global": False, "logged": True}]

    def test_text_and_mermaid(self, application: Application) -> None:
        topology = application.running.topology
        for form, text in (("text", topology.describe()), ("mermaid", topology.mermaid())):
            answer = application.get(f"/topology?format={form}")
            assert answer.headers["content-type"] == "text/plain; charset=utf-8"
            assert answer.body.decode() == text

    def test_an_unknown_format_is_refused(self, application: Application) -> None:
        answer = application.get("/topology?format=pdf")
        assert answer.status == 400
        assert answer.json["error"].startswith("Invalid format 'pdf': expected json, text")


def test_state(application: Application) -> None:
    before = application.get("/state").json
    assert before["stores"] == [{"name": "counts", "kind": "timestamped", "global": False, "entries": None, "bytes": None}]
    commit(application, 8)
    application.running.recorder.restored()
    report = application.get("/state").json
    assert (report["application_id"], report["state"], report["epoch"]) == ("word-count", "running", 7)
    assert (report["stores"][0]["entries"], report["stores"][0]["bytes"]) == (3, 420)
    assert report["restore"] == {"done": True, "fraction": 1.0, "seconds": 0.0, "lanes": []}
    assert report["memory"] == {"workers": [{"process": 4711, "bytes": 1_000_000}]}
    assert report["hosts"] == {}


def test_the_engine_is_named_with_its_slots_as_soon_as_there_are_some(application: Application) -> None:
    for path, name in (("/state", "engine"), ("/config", "running_on")):
        assert application.get(path).json[name] == {"name": application.running.config.engine}
    where = Whereabouts("local", {"this host": 2}, "forked processes")
    application.running.recorder.whereabouts = lambda: where
    assert application.running.whereabouts is where
    for path, name in (("/state", "engine"), ("/config", "running_on")):
        assert application.get(path).json[name] == {
            "name": "local",
            "kind": "forked processes",
            "slots": 2,
            "hosts": {"this host": 2},
        }


def test_state_names_the_hosts_of_a_cluster(application: Application) -> None:
    recorder = application.running.recorder
    recorder.memory, recorder.hosts = {Worker("a.example", 4711): 7}, {0: "a.example"}
    report = application.get("/state").json
    assert report["memory"] == {"workers": [{"host": "a.example", "process": 4711, "bytes": 7}]}
    assert report["hosts"] == {"0": "a.example"}


class TestPause:
    def test_a_pause_is_shown_everywhere_and_the_application_stays_ready(self, application: Application, stage: Stage) -> None:
        report = {"application_id": "word-count", "state": "running", "paused": True, "at_rest": False}
        stage.is_idle = False
        for _ in range(2):
            answer = application.post("/pause", {})
            assert (answer.status, answer.json) == (200, report)
        stage.is_idle = True
        assert application.get("/pause").json == {**report, "at_rest": True}
        assert stage.is_paused
        assert application.get("/state").json["paused"] is True
        for path in ("/health/live", "/health/ready"):
            answer = application.get(path)
            assert (answer.status, answer.json["status"], answer.json["paused"]) == (200, "ok", True)
        assert b"\npenstock_paused 1.0" in application.get("/metrics").body
        for _ in range(2):
            assert application.post("/resume", {}).json == {**report, "paused": False}
        assert not stage.is_paused
        assert b"\npenstock_paused 0.0" in application.get("/metrics").body

    @pytest.mark.security(10)
    def test_who_changes_something_is_logged_but_not_who_asks(
        self, application: Application, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        application.get("/pause")
        application.post("/pause", {})
        application.post("/resume", {})
        found = [record.getMessage() for record in caplog.records if record.name == "penstock.admin.guard"]
        assert [re.sub(r":\d+$", "", text) for text in found] == [
            f"POST '/{path}', asked for by 127.0.0.1" for path in ("pause", "resume")
        ]

    def test_an_application_that_starts_can_be_paused(self, serve: Serve, stage: Stage) -> None:
        application = serve(is_up=False)
        assert application.post("/pause", {}).json["state"] == "rebalancing"
        stage.may_start.set()
        assert application.running.wait_until_running(PATIENCE_S)
        assert stage.is_paused

    @pytest.mark.parametrize("path", ["/pause", "/resume"])
    @pytest.mark.parametrize("body", [{"force": True}, [], None])
    def test_a_body_that_says_more_is_refused(self, application: Application, path: str, body: object) -> None:
        answer = application.post(path, body)
        assert (answer.status, answer.json["error"]) == (400, "Invalid body: expected a JSON object with nothing.")
        assert application.running.is_paused is False


class TestLanes:
    REPORT: ClassVar[dict[str, object]] = {"application_id": "word-count", "state": "running", "lanes": 2, "shards": 8}

    def test_they_are_counted_and_changed(self, application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        given: list[int] = []
        monkeypatch.setattr(application.running, "change_lanes", given.append)
        assert application.get("/lanes").json == self.REPORT
        assert application.post("/lanes", {"lanes": 4}).json == self.REPORT
        assert given == [4]

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ({"lanes": 9}, "lanes: 9 is not possible. Set 1 or more, and at most as many as its 8 shards."),
            ({"lanes": "4"}, "Invalid lanes: expected a whole number."),
            ({"lanes": True}, "Invalid lanes: expected a whole number."),
            ({}, "Invalid body: expected a JSON object with 'lanes'."),
        ],
    )
    def test_what_is_not_possible_is_refused(self, application: Application, body: object, why: str) -> None:
        answer = application.post("/lanes", body)
        assert (answer.status, answer.json["error"]) == (400, why)


def test_watermarks(application: Application) -> None:
    assert application.get("/watermarks").json == {"watermark": None, "partitions": []}
    recorder = application.running.recorder
    recorder.saw_ends({("lines", 0): 50})
    recorder.moved(
        {
            ("lines", 1): PartitionReport("lines", 1, 7, -1, -1, -1, is_idle=True),
            ("lines", 0): PartitionReport("lines", 0, 40, -1, 1_000, 900),
        },
        900,
    )
    unknown = {"end": None, "lag": None, "high_time": None, "watermark": None}
    assert application.get("/watermarks").json == {
        "watermark": 900,
        "partitions": [
            {"topic": "lines", "partition": 0, "offset": 40, "end": 50, "lag": 10}
            | {"high_time": 1_000, "watermark": 900, "idle": False},
            {"topic": "lines", "partition": 1, "offset": 7, "idle": True} | unknown,
        ],
    }


class TestBarriers:
    def test_the_last_epochs_and_the_current_one_are_reported(self, application: Application) -> None:
        assert application.get("/debug/barriers").json == {"current": None, "recent": []}
        for number in range(8, 38):
            commit(application, number)
        application.running.recorder.epoch_begins(38, "job")
        application.running.recorder.phase_begins("commit")
        report = application.get("/debug/barriers").json
        assert (report["current"]["epoch"], report["current"]["phase"]) == (38, "commit")
        assert 0 <= report["current"]["phase_seconds"] <= report["current"]["seconds"] < PATIENCE_S
        assert [epoch["epoch"] for epoch in report["recent"]] == list(range(37, 17, -1))
        last = report["recent"][0]
        assert list(last["phases"]) == ["job", "produce"]
        assert (last["records"], last["sent"]) == (5, {"out": 4})
        assert last["dropped"] == [{"node": "count", "reason": "late", "records": 1}]
        assert last["lanes"] == [{"lane": 0, "stage": 0, "records": 5, "seconds": 0.25}]

    def test_the_number_of_epochs_can_be_chosen(self, application: Application) -> None:
        for number in range(8, 12):
            commit(application, number)
        assert [epoch["epoch"] for epoch in application.get("/debug/barriers?last=2").json["recent"]] == [11, 10]

    @pytest.mark.parametrize("last", ["0", "-1", "201", "1e3", "NaN", "abc", "", "١", "9" * 5000])
    def test_an_invalid_number_of_epochs_is_refused(self, application: Application, last: str) -> None:
        answer = application.get(f"/debug/barriers?last={quote(last)}")
        why = f"Invalid last {last[:50]!r}: expected a whole number from 1 to 200."
        assert (answer.status, answer.json) == (400, {"error": why})


def test_slots_tell_where_they_are_in_user_code(application: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [
        '  File "/app/app.py", line 3 in price',
        f'  File "{Path(reports.__file__).parents[1]}/lanes/lane.py", line 9 in run',
    ]
    told = "\n".join(["Thread 0x1 (most recent call first):", *frames, ""])
    asked: list[Path] = []

    def stacks(directory: Path) -> dict[int, str]:
        asked.append(directory)
        return {4711: told, 4712: ""}

    monkeypatch.setattr(reports, "stacks", stacks)
    commit(application, 1)
    text = application.get("/debug/threads").body.decode()
    running = application.running
    assert asked == [running.config.state_dir.absolute() / running.application_id / "stacks"]
    assert f'slot 4711, which had the lanes 0\n  in your code: File "/app/app.py", line 3 in price\n\n{told}' in text
    assert "slot 4712\n  it does not answer\n" in text
    assert text.index("slot 4712") < text.index("\nthe driver\n")


def test_threads_are_shown_without_their_data(application: Application) -> None:
    may_end = threading.Event()

    def waits(secret: str) -> None:
        may_end.wait(PATIENCE_S)

    thread = threading.Thread(target=waits, args=("c4n4ry",), name="waiter")
    thread.start()
    answer = application.get("/debug/threads")
    may_end.set()
    thread.join()
    text = answer.body.decode()
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert "waiter\n" in text
    assert "penstock-word-count-admin (daemon)\n" in text
    assert "in waits" in text
    assert "c4n4ry" not in text


class TestConfig:
    @pytest.mark.security(13)
    def test_only_listed_settings_are_shown(self, serve: Serve) -> None:
        application = serve(
            lanes=2,
            admin_token="c4n4ry-1-c4n4ry-1",
            admin_read_token="c4n4ry-2-c4n4ry-2",
            kafka={
                "security.protocol": "PLAINTEXT",
                "producer.linger.ms": "5",
                "sasl.password": "c4n4ry",
                "sasl.username": "c4n4ry",
                "some.plugin.setting": "c4n4ry",
                "producer.ssl.key.pem": "c4n4ry",
            },
            spark={"master": "local[2]", "spark.hadoop.fs.s3a.endpoint": "c4n4ry", "spark.app.name": "http://a:c4n4ry@b"},
        )
        answer = application.get("/config", authorization="Bearer c4n4ry-2-c4n4ry-2")
        report = answer.json
        assert b"c4n4ry" not in answer.body
        assert (report["lanes"], report["guarantee"], report["admin_certificate"]) == (2, "exactly_once", None)
        assert (report["admin_token"], report["admin_read_token"]) == ("[hidden]", "[hidden]")
        assert report["kafka"] == {
            "bootstrap.servers": "nowhere:1",
            "security.protocol": "PLAINTEXT",
            "producer.linger.ms": "5",
            "sasl.password": "[hidden]",
            "sasl.username": "[hidden]",
            "some.plugin.setting": "[hidden]",
            "producer.ssl.key.pem": "[hidden]",
        }
        hidden = {"spark.hadoop.fs.s3a.endpoint": "[hidden]", "spark.app.name": "[hidden]"}
        assert report["spark"] == {"master": "local[2]"} | hidden

    def test_every_default_setting_is_shown(self, application: Application) -> None:
        report = application.get("/config").json
        assert [name for name, value in report.items() if value == "[hidden]"] == []
        assert report["state_dir"] == "state"


class TestLevels:
    @pytest.fixture(autouse=True)
    def logger(self) -> Any:
        logger = logging.getLogger("tests.levels")
        yield logger
        logger.setLevel(logging.NOTSET)

    def test_a_level_is_changed_and_reset(self, application: Application, logger: logging.Logger) -> None:
        assert "tests.levels" not in application.get("/logs/level").json["levels"]
        for _ in range(2):  # a repetition changes nothing
            answer = application.post("/logs/level", {"logger": "tests.levels", "level": "DEBUG"})
            assert (answer.status, answer.json["levels"]["tests.levels"]) == (200, "DEBUG")
            assert logger.level == logging.DEBUG
        answer = application.post("/logs/level", {"logger": "tests.levels", "level": None})
        assert "tests.levels" not in answer.json["levels"]
        assert logger.level == logging.NOTSET

    def test_the_root_level_is_changed(self, application: Application) -> None:
        root = logging.getLogger()
        before = root.level
        try:
            assert application.post("/logs/level", {"logger": "root", "level": "ERROR"}).json["levels"]["root"] == "ERROR"
            assert root.level == logging.ERROR
        finally:
            root.setLevel(before)

    @pytest.mark.parametrize(
        "body",
        [
            {"logger": "made.up.by.a.request", "level": "INFO"},
            {"logger": 5, "level": "INFO"},
            {"logger": "root", "level": None},
            {"logger": "tests.levels", "level": "LOUD"},
            {"logger": "tests.levels", "level": ["INFO"]},
            {"logger": "tests.levels"},
            {"logger": "tests.levels", "level": "INFO", "more": 1},
        ],
    )
    def test_an_invalid_change_is_refused(self, application: Application, body: object) -> None:
        assert application.post("/logs/level", body).status == 400
        assert "made.up.by.a.request" not in logging.root.manager.loggerDict


def test_a_failed_application_is_not_live(serve: Serve, stage: Stage) -> None:
    application = serve()
    may_end = threading.Event()
    stage.closers.append(lambda: may_end.wait(PATIENCE_S))
    stage.failure = BrokerError("no broker")
    while application.get("/health/live").status == 200:
        pass
    answer = application.get("/health/ready")
    assert answer.json["problems"] == [{"what": "pending_error", "why": "BrokerError: see the log"}]
    may_end.set()


def test_the_documentation_names_every_path_and_limit(application: Application) -> None:
    page = (Path(__file__).parents[3] / "docs" / "admin.md").read_text(encoding="utf-8")
    for route in routes(application.running):
        if route.path.startswith("/dashboard/"):
            continue  # the dashboard's files share one line
        assert f"| `{route.path}` |" in page
    for limit in (
        f"| {protocol.TARGET_BYTES // 1024} KiB | 414 |",
        f"| {protocol.HEADERS}, together {protocol.HEAD_BYTES // 1024} KiB | 431 |",
        f"| {protocol.BODY_BYTES // 1024} KiB | 413 |",
        f"| {protocol.REQUEST_S:g} s | 408 |",
        f"| {protocol.WRITE_S:g} s | closed |",
        f"| {protocol.CONNECTIONS}; ",
    ):
        assert limit in page


def test_unknown_paths_and_methods_are_refused(application: Application) -> None:
    assert application.get("/nowhere").status == 404
    assert application.get("/state/").status == 404
    assert application.post("/state", {}).status == 405
