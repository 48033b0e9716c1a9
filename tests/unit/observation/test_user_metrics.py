"""Metrics of user code over many epochs: what Prometheus sees, and what cannot be added up."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.metrics import MOST_LABEL_SETS, MOST_METRICS, OTHER, MetricReport, UserMetrics
from penstock.observation import Recorder
from penstock.observation.metrics import Metrics
from tests.unit.observation.test_metrics import value


def committed(recorder: Recorder, number: int, reports: Sequence[MetricReport]) -> None:
    recorder.epoch_begins(number, "job")
    recorder.epoch_committed(1, {}, [], [], is_sampled=False, metrics=reports)


def an_epoch(shard: str = "0", pending: float = 4) -> list[MetricReport]:
    metrics = UserMetrics(shard)
    rejected = metrics.counter("orders_rejected", "Orders that were rejected.", labels=["reason"])
    rejected.labels(reason="late").inc(2)
    rejected.labels(reason='"\\\n').inc()
    metrics.gauge("orders_pending", "Orders that wait.").set(pending)
    amounts = metrics.histogram("order_amount", "Amounts of orders.", buckets=[10, 100])
    amounts.observe(5)
    amounts.observe(500)
    return metrics.reports()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


def test_epochs_are_added_up(recorder: Recorder, metrics: Metrics) -> None:
    committed(recorder, 0, [*an_epoch("0", 4), *an_epoch("1", 9)])
    committed(recorder, 1, an_epoch("1", 3))
    assert value(metrics, "penstock_user_orders_rejected_total", reason="late") == 6
    assert value(metrics, "penstock_user_orders_rejected_total", reason='"\\\n') == 3
    assert value(metrics, "penstock_user_orders_pending", shard="0") == 4
    assert value(metrics, "penstock_user_orders_pending", shard="1") == 3
    buckets = [value(metrics, "penstock_user_order_amount_bucket", le=bound) for bound in ("10.0", "100.0", "+Inf")]
    assert buckets == [3, 3, 6]
    assert value(metrics, "penstock_user_order_amount_sum") == 1515
    assert value(metrics, "penstock_user_order_amount_count") == 6


def test_they_say_what_they_are(recorder: Recorder, metrics: Metrics) -> None:
    committed(recorder, 0, an_epoch())
    payload, _ = metrics.exposition()
    families = {family.name: family for family in text_string_to_metric_families(payload.decode())}
    found = families["penstock_user_orders_rejected"]
    assert (found.type, found.documentation) == ("counter", "Orders that were rejected.")


def test_what_a_scrape_reads_does_not_change(recorder: Recorder) -> None:
    committed(recorder, 0, an_epoch())
    before = recorder.user_metrics
    shown = repr(before)
    committed(recorder, 1, an_epoch())
    assert repr(before) == shown
    assert repr(recorder.user_metrics) != shown


def test_label_sets_of_all_epochs_together_have_a_bound(
    recorder: Recorder, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(MOST_LABEL_SETS + 20):
        one = UserMetrics()
        one.counter("seen", "Seen.", ["user"]).labels(user=str(number)).inc()
        committed(recorder, number, one.reports())
    assert value(metrics, "penstock_user_seen_total", user=OTHER) == 20
    assert value(metrics, "penstock_user_seen_total", user="0") == 1
    assert warnings(caplog) == [f"metric 'seen' has more than {MOST_LABEL_SETS} label sets: others are counted as '{OTHER}'"]


def test_gauges_of_many_shards_are_not_too_many(recorder: Recorder, metrics: Metrics, caplog: pytest.LogCaptureFixture) -> None:
    for shard in range(MOST_LABEL_SETS + 1):
        committed(recorder, shard, an_epoch(str(shard), shard))
    assert value(metrics, "penstock_user_orders_pending", shard=str(MOST_LABEL_SETS)) == MOST_LABEL_SETS
    assert warnings(caplog) == []


def test_lanes_that_disagree_are_named_once_and_end_nothing(
    recorder: Recorder, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    other = UserMetrics()
    other.counter("orders_pending", "Orders that wait.").inc()
    other.counter("fine", "Fine.").inc()
    for number in range(3):
        committed(recorder, number, [*an_epoch(), *other.reports()])
    assert value(metrics, "penstock_user_orders_pending", shard="0") == 4
    assert value(metrics, "penstock_user_fine_total") == 3
    [warning] = warnings(caplog)
    assert "'orders_pending' is already a gauge without labels, and cannot be a counter" in warning


def test_names_of_all_epochs_together_have_a_bound(
    recorder: Recorder, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3 * MOST_METRICS):
        one = UserMetrics()
        one.counter(f"seen_{number}", "Seen.").inc()
        committed(recorder, number, one.reports())
    assert len(recorder.user_metrics) == MOST_METRICS
    assert len(warnings(caplog)) == MOST_METRICS
