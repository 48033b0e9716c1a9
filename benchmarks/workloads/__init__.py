"""The workloads: their records, the results when each record counts exactly once, and the check of both."""

from benchmarks.workloads.enriched import Enriched
from benchmarks.workloads.foreign_keys import ForeignKeys
from benchmarks.workloads.hopping import Hopping
from benchmarks.workloads.sessions import Sessions
from benchmarks.workloads.stateless import Stateless
from benchmarks.workloads.totals import Totals
from benchmarks.workloads.words import Words
from benchmarks.workloads.workload import Workload

WORKLOADS: dict[str, Workload] = {
    "A": Stateless(),
    "B": Totals(title="count and sum by key, 100,000 keys", keys=100_000, records=2_000_000),
    "C": Words(),
    "D": Enriched(),
    "E": ForeignKeys(),
    "F": Hopping(),
    "G": Sessions(),
    "H": Totals(title="count and sum by key, 5 million keys", keys=5_000_000, records=6_000_000),
}
"""Those whose throughput is measured, by letter."""

__all__ = ["WORKLOADS", "Totals", "Workload"]
