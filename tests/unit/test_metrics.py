"""Metrics of user code: what counts, what is refused, and what keeps their number bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from penstock.metrics import MOST_LABEL_SETS, MOST_METRICS, OTHER, MetricReport, UserMetrics, combined


def series(reports: list[MetricReport]) -> dict[tuple[str, tuple[str, ...], str], list[float]]:
    """All numbers by name, label values and shard."""
    return {(each.declaration.name, labels, shard): numbers for each in reports for labels, shard, numbers in each.series}


@pytest.fixture
def metrics() -> UserMetrics:
    return UserMetrics("3")


class TestNumbers:
    def test_a_counter_only_increases(self, metrics: UserMetrics) -> None:
        counter = metrics.counter("seen", "Seen.")
        counter.inc()
        counter.inc(2.5)
        counter.inc(0)
        assert counter.value == 3.5
        for amount in (-1, float("nan"), float("inf"), 10**400):
            with pytest.raises(ValueError, match="cannot increase by"):
                counter.inc(amount)
        assert counter.value == 3.5

    def test_a_count_without_fractions_is_an_int(self, metrics: UserMetrics) -> None:
        counter = metrics.counter("seen", "Seen.")
        counter.inc()
        assert isinstance(counter.value, int)

    def test_a_gauge_has_the_value_that_was_set_last(self, metrics: UserMetrics) -> None:
        gauge = metrics.gauge("pending", "Pending.")
        assert gauge.value is None
        gauge.set(7)
        gauge.set(-2)
        assert gauge.value == -2

    def test_a_histogram_counts_by_upper_bounds(self, metrics: UserMetrics) -> None:
        histogram = metrics.histogram("amount", "Amounts.", buckets=(1, 10))
        for value in (0.5, 1, 1.5, 10, 11):
            histogram.observe(value)
        assert series(metrics.reports()) == {("amount", (), ""): [24.0, 2, 2, 1]}
        assert (histogram.count, histogram.sum) == (5, 24.0)
        for value in (float("nan"), float("inf")):
            with pytest.raises(ValueError, match="cannot count"):
                histogram.observe(value)

    @pytest.mark.parametrize("amount", [np.int64(5), np.float32(5), 5, True])
    def test_numbers_of_any_kind_can_be_sent(self, metrics: UserMetrics, amount: Any) -> None:
        metrics.counter("a", "A.").inc(amount)
        metrics.gauge("b", "B.").set(amount)
        metrics.histogram("c", "C.").observe(amount)
        found = msgspec.msgpack.decode(msgspec.msgpack.encode(metrics.reports()), type=list[MetricReport])
        assert found == metrics.reports()

    @pytest.mark.parametrize("amount", ["five", None, [5]])
    def test_what_is_not_a_number_is_refused_where_it_is_given(self, metrics: UserMetrics, amount: Any) -> None:
        """Later, nobody would know whose record it was."""
        give: list[Callable[[Any], None]] = [
            metrics.counter("a", "A.").inc,
            metrics.gauge("b", "B.").set,
            metrics.histogram("c", "C.").observe,
        ]
        for refuse in give:
            with pytest.raises((TypeError, ValueError)):
                refuse(amount)


class TestDeclarations:
    def test_the_same_name_is_the_same_metric(self, metrics: UserMetrics) -> None:
        metrics.counter("seen", "Seen.").inc()
        metrics.counter("seen", "Other words.").inc()
        assert metrics["seen"].value == 2

    @pytest.mark.parametrize(
        "declare",
        [
            lambda metrics: metrics.gauge("seen", "Seen."),
            lambda metrics: metrics.counter("seen", "Seen.", ["reason"]),
            lambda metrics: metrics.histogram("seen", "Seen."),
        ],
    )
    def test_a_name_has_one_meaning(self, metrics: UserMetrics, declare: Callable[[UserMetrics], Any]) -> None:
        metrics.counter("seen", "Seen.")
        with pytest.raises(ValueError, match="Metric 'seen' is already a counter without labels, and cannot be a"):
            declare(metrics)

    def test_histograms_of_one_name_have_the_same_buckets(self, metrics: UserMetrics) -> None:
        metrics.histogram("took", "Took.", buckets=[1, 2])
        with pytest.raises(ValueError, match="Declare it the same everywhere"):
            metrics.histogram("took", "Took.")

    @pytest.mark.parametrize(
        "name", ["", "1st", "a-b", "a b", "é", "a{b}", "a\n", "seen_total", "took_sum", "took_bucket", "n_count"]
    )
    def test_invalid_names(self, metrics: UserMetrics, name: str) -> None:
        with pytest.raises(ValueError, match="Invalid name of a metric"):
            metrics.counter(name, "A.")

    @pytest.mark.parametrize("labels", [["a-b"], ["__name__"], [""], ["a", "a"]])
    def test_invalid_labels(self, metrics: UserMetrics, labels: list[str]) -> None:
        with pytest.raises(ValueError, match="Metric 'seen': "):
            metrics.counter("seen", "Seen.", labels)

    def test_labels_that_metrics_of_a_kind_have_anyway(self, metrics: UserMetrics) -> None:
        metrics.counter("a", "A.", ["shard", "le"])
        with pytest.raises(ValueError, match="invalid label 'shard'"):
            metrics.gauge("b", "B.", ["shard"])
        with pytest.raises(ValueError, match="invalid label 'le'"):
            metrics.histogram("c", "C.", ["le"])

    def test_one_label_is_a_list_too(self, metrics: UserMetrics) -> None:
        with pytest.raises(TypeError, match=r"labels='reason' must be a list of names: \['reason'\]"):
            metrics.counter("seen", "Seen.", "reason")

    @pytest.mark.parametrize("buckets", [[], [2, 1], [1, 1], [1, float("inf")], range(51)])
    def test_invalid_buckets(self, metrics: UserMetrics, buckets: list[float]) -> None:
        with pytest.raises(ValueError, match="must be 1 to 50 ascending numbers"):
            metrics.histogram("took", "Took.", buckets=buckets)

    def test_names_from_data_have_a_bound(self, metrics: UserMetrics) -> None:
        for number in range(MOST_METRICS):
            metrics.counter(f"seen_{number}", "Seen.")
        metrics.counter("seen_0", "Seen.")
        with pytest.raises(ValueError, match="A name must not contain data: use a label"):
            metrics.counter("one_more", "Seen.")

    def test_what_nobody_has_declared_is_named(self, metrics: UserMetrics) -> None:
        metrics.counter("seen", "Seen.")
        with pytest.raises(KeyError, match=r"a metric 'sen'\. Declared: seen"):
            metrics["sen"]


class TestLabels:
    def test_each_label_set_has_its_own_numbers(self, metrics: UserMetrics) -> None:
        counter = metrics.counter("seen", "Seen.", ["shop", "reason"])
        counter.labels(shop="a", reason="late").inc()
        counter.labels(reason="late", shop="a").inc()
        counter.labels(shop="late", reason="a").inc(5)
        assert series(metrics.reports()) == {("seen", ("a", "late"), ""): [2], ("seen", ("late", "a"), ""): [5]}

    def test_all_labels_must_be_given(self, metrics: UserMetrics) -> None:
        counter = metrics.counter("seen", "Seen.", ["shop"])
        for wrong in ({}, {"reason": "late"}, {"shop": "a", "reason": "late"}):
            with pytest.raises(ValueError, match="Metric 'seen' has the labels shop, not"):
                counter.labels(**wrong)
        wrong_value: Any = 1
        with pytest.raises(TypeError, match="label values must be strings, not"):
            counter.labels(shop=wrong_value)
        untyped: Any = counter
        with pytest.raises(AttributeError, match=r"Metric 'seen' has labels: use \.labels\(shop=\.\.\.\)\.inc"):
            untyped.inc()

    def test_label_sets_beyond_the_bound_are_counted_together(self, metrics: UserMetrics) -> None:
        counter = metrics.counter("seen", "Seen.", ["user"])
        for number in range(MOST_LABEL_SETS + 30):
            counter.labels(user=str(number)).inc()
        counter.labels(user="0").inc()
        found = series(metrics.reports())
        assert len(found) == MOST_LABEL_SETS + 1
        assert (found["seen", (OTHER,), ""], found["seen", ("0",), ""]) == ([30], [2])

    def test_label_values_from_data_can_be_sent_and_are_not_long(self, metrics: UserMetrics) -> None:
        """Else a record with half a surrogate would end every attempt at its epoch, after the record."""
        counter = metrics.counter("seen", "Seen.", ["user"])
        counter.labels(user="\ud800").inc()
        counter.labels(user="x" * 10_000).inc()
        encoded = msgspec.msgpack.encode(metrics.reports())
        assert len(encoded) < 500
        assert b"?" in encoded

    def test_a_metric_whose_labels_nobody_used_is_not_reported(self, metrics: UserMetrics) -> None:
        metrics.counter("seen", "Seen.", ["user"])
        metrics.gauge("pending", "Pending.")
        assert metrics.reports() == []
        metrics.counter("errors", "Errors.")
        assert series(metrics.reports()) == {("errors", (), ""): [0]}, "a counter that exists is 0"


class TestShards:
    @staticmethod
    def shard(name: str, seen: int, pending: float) -> UserMetrics:
        metrics = UserMetrics(name)
        metrics.counter("seen", "Seen.").inc(seen)
        metrics.gauge("pending", "Pending.").set(pending)
        metrics.histogram("took", "Took.", buckets=[1]).observe(pending)
        return metrics

    def test_counts_are_added_and_gauges_are_kept_apart(self) -> None:
        assert series(combined([self.shard("0", 2, 0.5), self.shard("1", 3, 7)])) == {
            ("seen", (), ""): [5],
            ("pending", (), "0"): [0.5],
            ("pending", (), "1"): [7],
            ("took", (), ""): [7.5, 1, 1],
        }

    def test_what_cannot_be_combined_is_reported_by_itself(self) -> None:
        """Whether two shards agree may depend on data: it must not end the epoch."""
        other = UserMetrics("1")
        other.gauge("seen", "Seen.").set(9)
        reports = combined([self.shard("0", 2, 0.5), other])
        assert [(each.declaration.name, each.declaration.kind) for each in reports] == [
            ("seen", "counter"),
            ("pending", "gauge"),
            ("took", "histogram"),
            ("seen", "gauge"),
        ]

    def test_a_report_without_a_shard_belongs_to_the_shard_that_takes_it(self) -> None:
        call, lane = UserMetrics(), UserMetrics("4")
        call.gauge("pending", "Pending.").set(9)
        for report in call.reports():
            lane.add(report)
        assert series(lane.reports()) == {("pending", (), "4"): [9]}
