"""The metrics of user code: summed over committed epochs, and as Prometheus sees them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from penstock.metrics import MOST_LABEL_SETS, OTHER, MetricReport, UserMetrics

_log = logging.getLogger(__name__)

PREFIX = "penstock_user_"
"""Begins the names of these metrics, so that they are never those of Penstock."""


class UserTotals:
    """Adds up what the lanes of committed epochs have measured.

    Lanes run apart from each other, so only here it shows that two use a name for different metrics, or that all together have
    too many label sets. The epoch is committed by then: it is logged, once for each metric.
    """

    def __init__(self) -> None:
        self._total = UserMetrics()
        self._logged: set[str] = set()

    def with_epoch(self, metrics: Iterable[MetricReport]) -> Sequence[MetricReport]:
        """Return the totals after one more epoch."""
        for report in metrics:
            name = report.declaration.name
            try:
                if self._total.add(report):
                    self._log_once(
                        name, f"metric {name!r} has more than {MOST_LABEL_SETS} label sets: others are counted as {OTHER!r}"
                    )
            except ValueError as error:
                self._log_once(name, f"a metric of a processor is ignored: {error}")
        return tuple(self._total.reports())

    def _log_once(self, name: str, what: str) -> None:
        if name not in self._logged and len(self._logged) < MOST_LABEL_SETS:
            self._logged.add(name)
            _log.warning("%s", what)


def families_of_users(metrics: Iterable[MetricReport]) -> Iterator[Metric]:
    """Return the metrics as Prometheus' client writes them."""
    for declared, series in ((report.declaration, report.series) for report in metrics):
        name = PREFIX + declared.name
        if declared.kind == "counter":
            counter = CounterMetricFamily(name, declared.about, labels=declared.labels)
            for labels, _, [value] in series:
                counter.add_metric(labels, value)
            yield counter
        elif declared.kind == "gauge":
            gauge = GaugeMetricFamily(name, declared.about, labels=[*declared.labels, "shard"])
            for labels, shard, [value] in series:
                gauge.add_metric([*labels, shard], value)
            yield gauge
        else:
            bounds = [*map(str, declared.buckets), "+Inf"]
            histogram = HistogramMetricFamily(name, declared.about, labels=declared.labels)
            for labels, _, [total, *counts] in series:
                histogram.add_metric(labels, list(zip(bounds, accumulate(counts), strict=True)), total)
            yield histogram
