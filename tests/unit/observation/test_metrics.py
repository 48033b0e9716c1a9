"""The metrics for Prometheus: everything that the recorder knows, by Prometheus' conventions."""

from __future__ import annotations

import re
import threading
from functools import partial

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock import errors
from penstock.engines.port import Whereabouts
from penstock.epochs.wire import LaneReport
from penstock.observation import PartitionReport, Recorder
from penstock.observation.metrics import BOUNDS, STATES, Durations, Metrics
from penstock.runtime.states import State
from tests.unit.observation.exposed import JVM, all_metrics
from tests.unit.observation.observed import Clock, an_epoch, fed

Labels = frozenset[tuple[str, str]]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def recorder(clock: Clock) -> Recorder:
    return Recorder(clock)


@pytest.fixture
def metrics(recorder: Recorder) -> Metrics:
    return Metrics("word-count", recorder, lambda: "running", epoch_timeout_s=60)


def samples(metrics: Metrics) -> dict[tuple[str, Labels], float]:
    payload, _ = metrics.exposition()
    families = text_string_to_metric_families(payload.decode())
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[name, frozenset(labels.items())]


def names(metrics: Metrics) -> set[str]:
    return {name for name, _ in samples(metrics)}


def test_the_format_is_plain_text_that_every_prometheus_can_read(metrics: Metrics) -> None:
    payload, content_type = metrics.exposition()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert b'penstock_application_info{application="word-count",version="' in payload


def test_names_follow_the_conventions() -> None:
    payload, _ = all_metrics().exposition()
    for family in text_string_to_metric_families(payload.decode()):
        if family.name.startswith("process_"):
            continue
        assert re.fullmatch(r"(penstock|jvm)_[a-z_]+", family.name)
        assert family.documentation.endswith(".")
        is_counted = all(sample.name.endswith("_total") for sample in family.samples)
        assert is_counted == (family.type == "counter")


class TestApplication:
    def test_its_slots_are_counted_by_host_as_soon_as_there_are_some(self, metrics: Metrics, recorder: Recorder) -> None:
        def slots() -> dict[str, float]:
            return {dict(labels)["host"]: n for (name, labels), n in samples(metrics).items() if name == "penstock_slots"}

        assert slots() == {}
        recorder.whereabouts = lambda: Whereabouts("spark", {"b": 2, "a": 1}, "Spark tasks")
        assert slots() == {"a": 1, "b": 2}
        assert value(metrics, "penstock_slots", engine="spark", kind="Spark tasks", host="b") == 2

    def test_it_is_in_exactly_one_state(self, recorder: Recorder) -> None:
        assert set(STATES) == {state.value for state in State}
        for now in STATES:
            metrics = Metrics("a", recorder, partial(str, now), epoch_timeout_s=60)
            states = {state: value(metrics, "penstock_application_state", state=state) for state in STATES}
            assert states == {state: float(state == now) for state in STATES}

    def test_the_error_that_ended_it_is_counted_by_its_code(self, metrics: Metrics, recorder: Recorder) -> None:
        assert value(metrics, "penstock_errors_total", code="broker") == 0
        recorder.failure = errors.BrokerError("gone")
        failed = {
            dict(labels)["code"]: count for (name, labels), count in samples(metrics).items() if name == "penstock_errors_total"
        }
        assert {code for code, count in failed.items() if count} == {"broker"}
        assert {"config", "fenced", "processing", "stalled", "penstock"} < failed.keys()

    def test_times_are_of_the_wall_clock(self, metrics: Metrics, recorder: Recorder, clock: Clock) -> None:
        assert value(metrics, "penstock_start_time_seconds") == recorder.started_ms / 1000
        assert value(metrics, "penstock_last_commit_timestamp_seconds") == recorder.started_ms / 1000
        an_epoch(recorder, clock)
        assert value(metrics, "penstock_last_commit_timestamp_seconds") == recorder.committed_ms / 1000

    def test_the_process_has_metrics(self, metrics: Metrics) -> None:
        assert {"process_resident_memory_bytes", "process_cpu_seconds_total", "process_start_time_seconds"} < names(metrics)


class TestEpochs:
    def test_buckets_are_cumulative(self) -> None:
        durations = Durations()
        for seconds in (0.005, 0.01, 0.2, 400.0):
            durations = durations.with_one(seconds)
        buckets = dict(durations.buckets())
        assert (buckets["0.01"], buckets["0.1"], buckets["0.25"], buckets["300.0"], buckets["+Inf"]) == (2, 2, 3, 3, 4)
        assert list(buckets) == [*map(str, BOUNDS), "+Inf"]
        assert durations.sum == pytest.approx(400.215)

    def test_durations_of_epochs_and_phases_are_counted(self, metrics: Metrics, recorder: Recorder, clock: Clock) -> None:
        for number in range(3):
            an_epoch(recorder, clock, number)
        assert value(metrics, "penstock_epoch_seconds_count") == 3
        assert value(metrics, "penstock_epoch_seconds_sum") == pytest.approx(1.5)
        assert value(metrics, "penstock_epoch_phase_seconds_bucket", phase="job", le="0.25") == 3
        assert value(metrics, "penstock_epoch_phase_seconds_bucket", phase="committing", le="0.25") == 0
        assert value(metrics, "penstock_commits_total") == 3

    def test_the_current_epoch_is_shown_before_it_is_committed(self, metrics: Metrics, recorder: Recorder, clock: Clock) -> None:
        assert value(metrics, "penstock_open_epoch_seconds") == 0
        recorder.epoch_begins(0, "job")
        clock.now += 45
        assert value(metrics, "penstock_open_epoch_seconds") == 45
        assert value(metrics, "penstock_epoch_timeout_seconds") == 60

    def test_commit_retries_are_counted(self, metrics: Metrics, recorder: Recorder) -> None:
        recorder.commit_retried()
        assert value(metrics, "penstock_commit_retries_total") == 1


class TestRecords:
    def test_lost_input_is_counted_by_partition(self, metrics: Metrics, recorder: Recorder) -> None:
        recorder.lost_input(("lines", 0), 5)
        recorder.lost_input(("lines", 0), 7)
        recorder.lost_input(("lines", 1), 1)
        assert value(metrics, "penstock_source_lost_offsets_total", topic="lines", partition="0") == 12
        assert value(metrics, "penstock_source_lost_offsets_total", topic="lines", partition="1") == 1

    def test_refreshes_of_global_tables_are_counted(self, metrics: Metrics, recorder: Recorder) -> None:
        recorder.tables.refreshed("countries", errors.BrokerError("gone"))
        assert value(metrics, "penstock_global_table_refresh_failures_total", store="countries") == 1
        assert "penstock_global_table_refresh_timestamp_seconds" not in names(metrics)
        recorder.tables.refreshed("countries")
        assert value(metrics, "penstock_global_table_refresh_failures_total", store="countries") == 1
        at = value(metrics, "penstock_global_table_refresh_timestamp_seconds", store="countries")
        assert at == recorder.tables.reports["countries"].refreshed_ms / 1000

    def test_read_sent_and_dropped_records_are_counted(self, metrics: Metrics, recorder: Recorder, clock: Clock) -> None:
        an_epoch(recorder, clock)
        assert value(metrics, "penstock_records_total") == 10
        assert value(metrics, "penstock_sent_records_total", topic="counts") == 4
        assert value(metrics, "penstock_sent_records_total", topic="(chosen per record)") == 2
        assert value(metrics, "penstock_dropped_records_total", node="KSTREAM-SOURCE-0000000000", reason="late") == 2

    def test_dead_letters_are_counted_from_the_start_and_not_as_a_topic(
        self, metrics: Metrics, recorder: Recorder, clock: Clock
    ) -> None:
        assert value(metrics, "penstock_dead_letters_total") == 0
        an_epoch(recorder, clock)
        assert value(metrics, "penstock_dead_letters_total") == 1
        assert not any(("topic", "(dead letters)") in labels for _, labels in samples(metrics))

    def test_lanes_are_counted_by_stage(self, metrics: Metrics, recorder: Recorder, clock: Clock) -> None:
        an_epoch(recorder, clock)
        assert value(metrics, "penstock_lane_records_total", lane="1", stage="0") == 5
        assert value(metrics, "penstock_lane_seconds_total", lane="1", stage="1") == 0.1


class TestNodes:
    def test_a_sampled_epoch_stands_for_all_since_the_previous_sample(
        self, metrics: Metrics, recorder: Recorder, clock: Clock
    ) -> None:
        an_epoch(recorder, clock, 0, records=10)
        an_epoch(recorder, clock, 1, records=70, is_sampled=False)
        an_epoch(recorder, clock, 2, records=20)
        # 10 of the first epoch's 10 records were sampled, and 10 of the third's 20, which stands for 90
        assert value(metrics, "penstock_node_records_total", node="KSTREAM-SOURCE-0000000000") == 10 + 10 * 90 / 20
        assert value(metrics, "penstock_node_seconds_total", node="KSTREAM-SOURCE-0000000000") == pytest.approx(0.02 + 0.02 * 4.5)

    def test_a_sampled_epoch_without_records_stands_for_itself(self, metrics: Metrics, recorder: Recorder, clock: Clock) -> None:
        an_epoch(recorder, clock, 0, records=70, is_sampled=False)
        an_epoch(recorder, clock, 1, records=0)
        assert value(metrics, "penstock_node_records_total", node="KSTREAM-AGGREGATE-0000000003") == 6
        an_epoch(recorder, clock, 2, records=10)
        assert value(metrics, "penstock_node_records_total", node="KSTREAM-AGGREGATE-0000000003") == 6 + 6 * 80 / 10

    def test_estimates_never_fall(self, metrics: Metrics, recorder: Recorder) -> None:
        """A share of all records would: the node gets all records of the first epoch, and none of the second."""
        before = 0.0
        for number, seen in enumerate((100, 0, 1, 0, 50)):
            recorder.epoch_begins(number, "job")
            lane = LaneReport(0, 0, 100, 0.1, nodes={"node": (seen, 0.001 * seen)})
            recorder.epoch_committed(100, {}, [], [lane], is_sampled=True)
            now = value(metrics, "penstock_node_records_total", node="node")
            assert now >= before
            before = now
        assert before == 151


class TestPlaces:
    def test_stores(self, metrics: Metrics, recorder: Recorder, clock: Clock) -> None:
        an_epoch(recorder, clock)
        assert value(metrics, "penstock_store_entries", store="words") == 201
        assert value(metrics, "penstock_store_size_bytes", store="words") == 16_000

    def test_source_partitions(self, metrics: Metrics, recorder: Recorder, clock: Clock) -> None:
        fed(recorder, clock)
        found = {
            name.removeprefix("penstock_source_"): count
            for (name, labels), count in samples(metrics).items()
            if labels == {("topic", "lines"), ("partition", "0")}
        }
        assert found == {
            "offset": 40,
            "end_offset": 50,
            "lag": 10,
            "watermark_timestamp_seconds": 4,
            "event_timestamp_seconds": 5,
            "idle": 1,
            "lost_offsets_total": 7,
        }
        assert value(metrics, "penstock_watermark_timestamp_seconds") == 4

    def test_unknown_values_are_absent(self, metrics: Metrics, recorder: Recorder) -> None:
        recorder.moved({("lines", 0): PartitionReport("lines", 0, 40, -1, -1, -1)}, -1)
        found = {name for name in names(metrics) if name.startswith(("penstock_source_", "penstock_watermark"))}
        assert found == {"penstock_source_offset", "penstock_source_idle"}

    def test_a_restore(self, metrics: Metrics, recorder: Recorder, clock: Clock) -> None:
        assert value(metrics, "penstock_restore_done") == 0
        recorder.restoring({0: 500})
        clock.now += 2
        recorder.restoring({0: 100})
        assert (value(metrics, "penstock_restore_done"), value(metrics, "penstock_restore_seconds")) == (0, 2)
        assert value(metrics, "penstock_restore_offsets", lane="0") == 500
        assert value(metrics, "penstock_restore_offsets_left", lane="0") == 100
        recorder.restored()
        assert (value(metrics, "penstock_restore_done"), value(metrics, "penstock_restore_offsets_left", lane="0")) == (1, 0)


class TestMemory:
    def test_memory_of_workers_is_summed(self, metrics: Metrics, recorder: Recorder, clock: Clock) -> None:
        an_epoch(recorder, clock)
        assert (value(metrics, "penstock_workers"), value(metrics, "penstock_workers_resident_memory_bytes")) == (2, 100_000_000)

    def test_memory_of_the_jvm_is_reported(self, recorder: Recorder) -> None:
        metrics = Metrics("a", recorder, lambda: "running", epoch_timeout_s=60, jvm=lambda: JVM)
        assert value(metrics, "jvm_memory_used_bytes", area="heap") == 64_000_000
        assert value(metrics, "jvm_memory_used_bytes", area="nonheap") == 32_000_000
        assert value(metrics, "jvm_memory_max_bytes", area="heap") == 1_000_000_000
        assert value(metrics, "jvm_threads_current") == 40
        assert value(metrics, "jvm_gc_collection_seconds_count", gc="PS Scavenge") == 7
        assert value(metrics, "jvm_gc_collection_seconds_sum", gc="PS Scavenge") == 0.25

    def test_without_a_jvm_report_there_are_no_jvm_metrics(self, metrics: Metrics) -> None:
        assert not any(name.startswith("jvm_") for name in names(metrics))

    def test_a_heap_without_a_limit_has_no_maximum(self, recorder: Recorder) -> None:
        report = JVM._replace(heap_max_bytes=-1)
        metrics = Metrics("a", recorder, lambda: "running", epoch_timeout_s=60, jvm=lambda: report)
        assert "jvm_memory_max_bytes" not in names(metrics)


def test_a_scrape_may_happen_during_an_epoch(metrics: Metrics, recorder: Recorder, clock: Clock) -> None:
    ended = threading.Event()
    failed: list[RuntimeError] = []

    def scrape() -> None:
        while not ended.is_set():
            try:
                metrics.exposition()
            except RuntimeError as error:  # a dictionary changed during iteration
                failed.append(error)

    scraping = threading.Thread(target=scrape)
    scraping.start()
    for number in range(300):
        recorder.epoch_begins(number, "job")
        recorder.phase_begins(f"phase {number % 7}")
        recorder.epoch_committed(1, {f"topic {number % 9}": 1}, [("node", f"reason {number}", 1)], [], is_sampled=True)
    ended.set()
    scraping.join()
    assert not failed


def test_two_applications_of_a_process_have_separate_metrics(recorder: Recorder, clock: Clock) -> None:
    one, other = (
        Metrics(name, known, lambda: "running", epoch_timeout_s=60) for name, known in (("a", recorder), ("b", Recorder(clock)))
    )
    an_epoch(recorder, clock)
    assert (value(one, "penstock_commits_total"), value(other, "penstock_commits_total")) == (1, 0)
