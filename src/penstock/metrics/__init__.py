"""Metrics of user code: the counters, gauges and histograms of processors, as plain numbers of one epoch.

Lanes report them with the results of an epoch, and they count once that is committed. So an epoch that fails and runs again
counts once. Names, numbers and label values are checked where they are given: what is reported can always be sent and shown.
"""

from penstock.metrics.declarations import MOST_LABEL_SETS, MOST_METRICS, OTHER, MetricReport
from penstock.metrics.series import Counter, Gauge, Histogram
from penstock.metrics.user import Labelled, UserMetrics, combined

__all__ = [
    "MOST_LABEL_SETS",
    "MOST_METRICS",
    "OTHER",
    "Counter",
    "Gauge",
    "Histogram",
    "Labelled",
    "MetricReport",
    "UserMetrics",
    "combined",
]
