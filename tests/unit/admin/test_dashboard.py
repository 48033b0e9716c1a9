"""The dashboard's files, and the data it gets about an application."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest

from penstock import Topology
from penstock.admin.dashboard import PUBLIC
from penstock.admin.dashboard.snapshot import Span
from penstock.engines.port import Whereabouts
from penstock.epochs.wire import LaneReport
from penstock.observation import EpochReport, PartitionReport
from penstock.runtime.loop.journal import AT_THE_BARRIER, BEFORE, CHECK, JOB, WAIT
from penstock.runtime.states import State
from tests.unit.admin.fake_application import FakeApplication, request, snapshot, under_load


def epoch(number: int, began_ms: int, seconds: float, records: int) -> EpochReport:
    return EpochReport(number, began_ms, seconds, records, {"job": seconds}, {"out": records})


class TestFiles:
    @pytest.mark.parametrize("path", sorted(PUBLIC))
    def test_the_page_and_what_it_needs_are_served(self, path: str) -> None:
        status, headers, body = request(FakeApplication(), path)
        assert status == 200
        kind = {"/": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}[path.rpartition(".")[2]]
        assert headers["content-type"].startswith(kind)
        assert body

    def test_nothing_comes_from_other_sites_and_nothing_is_inline(self) -> None:
        """The admin server's policy allows only its own files."""
        page = request(FakeApplication(), "/")[2].decode()
        linked = {f"/{path}" for path in re.findall(r'(?:src|href)="([^"]+)"', page)}
        assert linked == PUBLIC - {"/"}
        assert not re.search(r"<style|<script(?! src)|\bon\w+=| style=", page)
        for path in PUBLIC:
            assert not re.search(
                r"https?://(?!www\.w3\.org/2000/svg)|@import|url\(", request(FakeApplication(), path)[2].decode()
            ), path

    def test_the_script_does_not_turn_text_into_markup(self) -> None:
        script = request(FakeApplication(), "/dashboard/page.js")[2].decode()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", script)

    def test_every_id_that_the_script_uses_is_on_the_page(self) -> None:
        page, script = (request(FakeApplication(), path)[2].decode() for path in ("/", "/dashboard/page.js"))
        ids = set(re.findall(r'\bid="([^"]+)"', page))
        used = set(re.findall(r'\b(?:byId|say|figure|fill|spark)\("([\w-]+)"', script))
        assert used - ids == set()

    def test_the_script_knows_every_phase_of_an_epoch(self) -> None:
        script = request(FakeApplication(), "/dashboard/page.js")[2].decode()
        [known], [commit] = re.findall(r"const PHASES = {([^}]+)}", script), re.findall(r"const COMMIT = new Set\((.+)\)", script)
        assert re.findall(r"(\w+):", known) == [BEFORE, JOB, WAIT, CHECK, *AT_THE_BARRIER.values()]
        assert json.loads(commit) == [*AT_THE_BARRIER.values()]

    def test_the_drawing_is_served_without_its_style_which_is_a_separate_file(self) -> None:
        _, headers, body = request(under_load()[0], "/dashboard/topology.svg")
        assert headers["content-type"] == "image/svg+xml"
        assert b"<style" not in body
        assert b'data-node="paid-only"' in body
        assert b"prefers-color-scheme" in request(FakeApplication(), "/dashboard/drawing.css")[2]


class TestSnapshot:
    def test_an_application_under_load_is_shown_completely(self) -> None:
        application, _ = under_load()
        answer = snapshot(application)
        assert (answer["application"], answer["state"], answer["epoch"]) == ("shop-orders", "running", application.epoch)
        assert answer["live"] == answer["ready"] == []
        assert answer["records"] == application.recorder.totals.records
        assert 15_000 < answer["records_per_s"] < 25_000
        assert set(answer["nodes"]) == set(application.topology.nodes)
        assert sum(node["share"] for node in answer["nodes"].values()) == pytest.approx(1)
        assert len(answer["lanes"]) == 12
        assert all(0 < lane["busy"] < 1 for lane in answer["lanes"])
        assert {store["name"]: store["kind"] for store in answer["stores"]} == {
            "customers": "timestamped",
            "orders-per-region": "timestamped_window",
        }
        assert all(store["entries"] and store["bytes"] for store in answer["stores"])
        assert answer["dead_letter_topics"] == ["orders-dead", "orders-late"]
        assert {one["reason"] for one in answer["dropped"]} == {"dead letter", "expired window"}
        assert len(answer["memory"]) == 4
        assert answer["sent"]["orders-enriched"]["per_s"] == pytest.approx(answer["records_per_s"])

    def test_the_engine_is_shown_with_its_slots_once_it_has_started(self) -> None:
        application, _ = under_load()
        assert snapshot(application)["engine"] is None
        application.recorder.whereabouts = lambda: Whereabouts("spark", {"b": 2, "a": 1}, "Spark tasks")
        assert snapshot(application)["engine"] == {"name": "spark", "kind": "Spark tasks", "slots": 3, "hosts": {"b": 2, "a": 1}}

    def test_only_epochs_after_the_last_known_one_are_sent(self) -> None:
        application, feeder = under_load()
        newest = snapshot(application)["epochs"][-1]["number"]
        assert snapshot(application, f"after={newest}")["epochs"] == []
        feeder.epoch(int(time.time() * 1000) - 700, is_sampled=False)
        assert [one["number"] for one in snapshot(application, f"after={newest}")["epochs"]] == [newest + 1]

    @pytest.mark.parametrize("after", ["x", "-1", "1.5", "²", "9" * 20])
    def test_an_invalid_epoch_is_refused(self, after: str) -> None:
        status, _, body = request(FakeApplication(), "/dashboard/snapshot", f"after={after}")
        assert status == 400
        assert json.loads(body)["error"].endswith(": expected an epoch's number.")

    def test_before_the_first_epoch_figures_are_null_or_empty(self) -> None:
        application = FakeApplication(state=State.REBALANCING, epoch=-1)
        answer = snapshot(application)
        assert answer["records_per_s"] is answer["committed_s"] is answer["current"] is answer["watermark"] is None
        assert answer["epochs"] == answer["lanes"] == answer["partitions"] == []
        assert answer["nodes"] == {}
        assert [problem["what"] for problem in answer["ready"]] == ["starting"]

    def test_a_restore_is_shown_until_it_is_done(self) -> None:
        application = FakeApplication(state=State.REBALANCING)
        application.recorder.restoring({0: 600, 1: 400})
        application.recorder.restoring({0: 100, 1: 150})
        restore = snapshot(application)["restore"]
        assert (restore["read"], restore["total"], restore["fraction"]) == (750, 1000, 0.75)
        application.recorder.restored()
        assert snapshot(application)["restore"] is None

    def test_the_current_epoch_is_shown_with_its_phase(self) -> None:
        application = FakeApplication()
        application.recorder.epoch_begins(7, "before")
        application.recorder.phase_begins("job")
        current = snapshot(application)["current"]
        assert (current["number"], current["phase"]) == (7, "job")
        assert 0 <= current["seconds"] < 5

    def test_unknown_values_are_null(self) -> None:
        application = FakeApplication(topology=Topology().add_source("in", "lines"))
        application.recorder.moved({("lines", 0): PartitionReport("lines", 0, 5, -1, -1, -1)}, -1)
        [place] = snapshot(application)["partitions"]
        assert place["lag"] is place["event_time"] is place["watermark"] is None
        application.recorder.saw_ends({("lines", 0): 9})
        assert snapshot(application)["partitions"][0]["lag"] == 4

    def test_topics_of_a_pattern_are_counted_where_the_pattern_is_drawn(self) -> None:
        topology = Topology().add_source("in", re.compile("lines-.*")).add_source("other", "facts")
        application = FakeApplication(topology=topology)
        places = {(topic, 0): PartitionReport(topic, 0, 1, 2, 0, 0) for topic in ("lines-eu", "facts")}
        application.recorder.moved(places, -1)
        drawn = {place["topic"]: place["drawn_as"] for place in snapshot(application)["partitions"]}
        assert drawn == {"lines-eu": "lines-.*", "facts": "facts"}

    def test_names_are_those_of_the_drawing(self) -> None:
        """Some characters are valid in a name, but not in XML."""
        name = "bell\x07"
        application = FakeApplication(topology=Topology().add_source(name, "lines"))
        application.recorder.epoch_begins(1, "job")
        watched = LaneReport(0, 0, 1, 0.1, nodes={name: (1, 0.1)})
        application.recorder.epoch_committed(1, {}, (), [watched], is_sampled=True)
        assert list(snapshot(application)["nodes"]) == ["bell�"]

    def test_a_failure_shows_its_type_and_no_data(self) -> None:
        application = FakeApplication(state=State.ERROR)
        application.recorder.failure = ValueError("the record of customer Eve")
        answer = snapshot(application)
        assert answer["live"] == [{"what": "failed", "why": "ValueError: see the log"}]
        assert "Eve" not in json.dumps(answer)


class TestSpan:
    def test_rates_are_means_over_the_last_seconds(self) -> None:
        epochs = [epoch(number, number * 1000, 0.5, 100) for number in range(60)]
        lately = Span.of(epochs, 60_000, is_busy=False)
        assert len(lately.reports) == 10
        assert lately.records_per_s == pytest.approx(100)
        assert lately.sent_per_s(["out", "none"]) == [("none", 0), ("out", pytest.approx(100))]

    def test_rates_drop_to_zero_without_epochs(self) -> None:
        epochs = [epoch(1, 0, 1.0, 500)]
        assert Span.of(epochs, 5_000, is_busy=False).records_per_s == 100
        assert Span.of(epochs, 11_001, is_busy=False).records_per_s == 0
        assert Span.of([], 0, is_busy=False).records_per_s is None

    def test_a_long_current_epoch_does_not_lower_rates(self) -> None:
        epochs = [epoch(1, 0, 30.0, 3_000), epoch(2, 30_000, 30.0, 6_000)]
        assert Span.of(epochs, 85_000, is_busy=True).records_per_s == 200

    def test_lanes_are_summed_by_stage(self) -> None:
        application, _ = under_load()
        reports = application.recorder.recent[-1:]
        [one] = [replace(report, began_ms=0, seconds=2.0) for report in reports]
        lanes = Span.of([one], 2_000, is_busy=True).lanes()
        assert [(lane["lane"], lane["stage"]) for lane in lanes] == [(lane, stage) for lane in range(4) for stage in range(3)]
        assert lanes[0]["per_s"] == one.lanes[0].records / 2
