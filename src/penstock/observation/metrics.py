"""`Metrics`: the metrics for Prometheus, computed at each scrape from what the recorder knows.

Nothing is done per record; per epoch, only what a scrape could not compute later: histograms and estimates. Label values are
names of the topology and of topics, and numbers of lanes, stages and partitions; never data from records, except where user code
labels its own metrics with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

from penstock import errors
from penstock.observation.client_metrics import families_of_clients
from penstock.observation.recorder import Recorder
from penstock.observation.reports import DEAD_LETTERS, EpochReport, RestoreReport
from penstock.observation.user_metrics import families_of_users
from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.spark.memory import JvmReport

STATES = ("created", "standby", "rebalancing", "running", "pending_shutdown", "pending_error", "not_running", "error")
"""The states of an application; it is always in exactly one."""

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""The buckets of durations: an epoch takes tenths of a second, seconds while catching up, and minutes when it stalls."""

_BOUND_NAMES = (*map(str, BOUNDS), "+Inf")
_CODES = tuple(
    sorted({kind.code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PenstockError)})
)


class Durations(NamedTuple):
    """A histogram of durations: the count of each bucket, and the sum in seconds."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    sum: float = 0.0

    def with_one(self, seconds: float) -> Durations:
        """Return a copy with one more duration."""
        bucket = bisect_left(BOUNDS, seconds)
        return Durations((*self.counts[:bucket], self.counts[bucket] + 1, *self.counts[bucket + 1 :]), self.sum + seconds)

    def buckets(self) -> list[tuple[str, float]]:
        """Return cumulative buckets, as Prometheus expects them."""
        return list(zip(_BOUND_NAMES, accumulate(self.counts), strict=True))


class Metrics(Collector):
    """The metrics of one start of an application.

    `state` returns the name of the application's state; `jvm` returns a report of the driver's JVM, or None, and must not block a
    scrape for long (`penstock.spark.memory.JvmMemory`).
    """

    def __init__(
        self,
        application_id: str,
        recorder: Recorder,
        state: Callable[[], str],
        *,
        epoch_timeout_s: float,
        jvm: Callable[[], JvmReport | None] = lambda: None,
    ) -> None:
        self._about = {"application": application_id, "version": __version__}
        self._recorder = recorder
        self._state = state
        self._epoch_timeout_s = epoch_timeout_s
        self._jvm = jvm
        self._epochs = Durations()
        self._phases: Mapping[str, Durations] = {}
        self._nodes: Mapping[str, tuple[float, float]] = {}
        self._unsampled = 0  # records since the last sampled epoch that had records
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        recorder.listen(self._heed)

    def exposition(self) -> tuple[bytes, str]:
        """Return all current metrics, and their content type."""
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4

    def collect(self) -> Iterable[Metric]:
        """Yield all metrics except those of the process."""
        yield from self._application()
        yield from self._progress()
        yield from self._epoch()
        yield from self._records()
        yield from self._work()
        yield from self._sources()
        yield from self._tables()
        yield from self._restore(self._recorder.restore)
        yield from self._memory()
        yield from families_of_clients(self._recorder.clients.reports())
        yield from families_of_users(self._recorder.user_metrics)

    # ---- per epoch ----------------------------------------------------------------------------------------------------

    def _heed(self, report: EpochReport) -> None:
        """Add an epoch to the histograms and estimates. Each is replaced as a whole, because a scrape may be reading it."""
        self._epochs = self._epochs.with_one(report.seconds)
        phases = dict(self._phases)
        for phase, seconds in report.phases.items():
            phases[phase] = phases.get(phase, Durations()).with_one(seconds)
        self._phases = phases
        self._unsampled += report.records
        if report.is_sampled:
            self._nodes = self._estimated(report)

    def _estimated(self, report: EpochReport) -> Mapping[str, tuple[float, float]]:
        """Estimate the load of nodes: a sampled epoch stands for all records since the previous sampled epoch.

        This way, sums never fall. A share of all records, recomputed each time, would fall at times, and Prometheus would take
        that for a restart.
        """
        weight = 1.0
        if report.records:
            weight, self._unsampled = self._unsampled / report.records, 0
        nodes = dict(self._nodes)
        for lane in report.lanes:
            for name, (records, seconds) in lane.nodes.items():
                before = nodes.get(name, (0.0, 0.0))
                nodes[name] = (before[0] + weight * records, before[1] + weight * seconds)
        return nodes

    # ---- per scrape ---------------------------------------------------------------------------------------------------

    def _application(self) -> Iterator[Metric]:
        yield InfoMetricFamily("penstock_application", "The application, and the version of Penstock.", value=self._about)
        where = self._recorder.whereabouts()
        slots = GaugeMetricFamily("penstock_slots", "Processes in which lanes run.", labels=["engine", "kind", "host"])
        if where is not None:
            for host, count in sorted(where.slots.items()):
                slots.add_metric([where.engine, where.kind, host], count)
        yield slots
        now = self._state()
        states = {state: state == now for state in STATES}
        yield _gauges("penstock_application_state", "1 for the state the application is in.", "state", states)
        yield _gauge("penstock_paused", "1 while the application is paused.", self._recorder.is_paused)
        failure = self._recorder.failure
        codes = {code: isinstance(failure, errors.PenstockError) and code == failure.code for code in _CODES}
        yield _counters("penstock_errors", "Errors that ended the application, by their code.", ("code",), codes)

    def _progress(self) -> Iterator[Metric]:
        recorder = self._recorder
        yield _gauge("penstock_start_time_seconds", "When the application was started (Unix time).", recorder.started_ms / 1000)
        yield _gauge(
            "penstock_last_commit_timestamp_seconds",
            "When the last epoch was committed, or the application started (Unix time).",
            recorder.committed_ms / 1000,
        )
        watermark = GaugeMetricFamily("penstock_watermark_timestamp_seconds", "The application's watermark (Unix time).")
        if recorder.watermark >= 0:
            watermark.add_metric([], recorder.watermark / 1000)
        yield watermark

    def _epoch(self) -> Iterator[Metric]:
        recorder = self._recorder
        epochs = HistogramMetricFamily("penstock_epoch_seconds", "How long committed epochs took.")
        epochs.add_metric([], self._epochs.buckets(), self._epochs.sum)
        yield epochs
        phases = HistogramMetricFamily(
            "penstock_epoch_phase_seconds", "How long the phases of committed epochs took.", labels=["phase"]
        )
        for phase, durations in self._phases.items():
            phases.add_metric([phase], durations.buckets(), durations.sum)
        yield phases
        yield _gauge("penstock_open_epoch_seconds", "How long the current epoch has taken so far.", recorder.lasted())
        yield _gauge("penstock_epoch_timeout_seconds", "How long an epoch may take (epoch_timeout).", self._epoch_timeout_s)
        yield _counter(
            "penstock_commits", "Epochs committed; exactly once, each is one Kafka transaction.", recorder.totals.epochs
        )
        yield _counter(
            "penstock_commit_retries",
            "Retries of the check with a broker whether an epoch is committed.",
            recorder.commit_retries,
        )

    def _records(self) -> Iterator[Metric]:
        totals = self._recorder.totals
        yield _counter("penstock_records", "Offsets of source topics read by committed epochs (markers count).", totals.records)
        sent = {topic: count for topic, count in totals.sent.items() if topic != DEAD_LETTERS}
        yield _counters("penstock_sent_records", "Rows sent to topics, changelogs too.", ("topic",), sent)
        yield _counter("penstock_dead_letters", "Records sent to dead-letter topics.", totals.sent.get(DEAD_LETTERS, 0))
        about = "Records that nodes dropped, and why (late, null key, dead letter, ...)."
        yield _counters("penstock_dropped_records", about, ("node", "reason"), self._recorder.left_out.and_dropped(totals))

    def _work(self) -> Iterator[Metric]:
        lanes = self._recorder.totals.lanes
        by_lane = ["lane", "stage"]
        records = CounterMetricFamily("penstock_lane_records", "Records that lanes received, by stage.", labels=by_lane)
        seconds = CounterMetricFamily("penstock_lane_seconds", "Seconds that lanes worked, by stage.", labels=by_lane)
        for (lane, stage), (count, spent) in lanes.items():
            records.add_metric([str(lane), str(stage)], count)
            seconds.add_metric([str(lane), str(stage)], spent)
        yield from (records, seconds)
        records = CounterMetricFamily(
            "penstock_node_records", "Records that nodes received, estimated from sampled epochs.", labels=["node"]
        )
        seconds = CounterMetricFamily(
            "penstock_node_seconds",
            "Seconds that nodes worked, without their child nodes, estimated from sampled epochs.",
            labels=["node"],
        )
        for node, (estimate, spent) in self._nodes.items():
            records.add_metric([node], estimate)
            seconds.add_metric([node], spent)
        yield from (records, seconds)
        stores = self._recorder.stores
        yield _gauges("penstock_store_entries", "Entries of stores, as of the last sampled epoch.", "store", stores.entries)
        yield _gauges("penstock_store_size_bytes", "Bytes of stores, as of the last sampled epoch.", "store", stores.size_bytes)

    def _sources(self) -> Iterator[Metric]:
        offset, end, lag, watermark, high, idle = (
            GaugeMetricFamily(f"penstock_source_{name}", about, labels=["topic", "partition"])
            for name, about in (
                ("offset", "The offset up to which a source partition is processed and committed."),
                ("end_offset", "Where a source partition ends."),
                ("lag", "Offsets of a source partition that are still to be processed."),
                ("watermark_timestamp_seconds", "The watermark of a source partition (Unix time)."),
                ("event_timestamp_seconds", "The highest timestamp of a source partition's processed records (Unix time)."),
                ("idle", "1 for a source partition that the application's watermark does not wait for."),
            )
        )
        for (topic, partition), known in self._recorder.partitions.items():
            place = [topic, str(partition)]
            offset.add_metric(place, known.offset)
            idle.add_metric(place, known.is_idle)
            if known.end >= 0:
                end.add_metric(place, known.end)
                lag.add_metric(place, known.lag)
            if known.watermark >= 0:
                watermark.add_metric(place, known.watermark / 1000)
            if known.high_time >= 0:
                high.add_metric(place, known.high_time / 1000)
        yield from (offset, end, lag, watermark, high, idle)
        about = "Offsets of a source partition that were skipped because their records were gone (on_lost_input)."
        lost = {(topic, str(partition)): count for (topic, partition), count in self._recorder.lost.items()}
        yield _counters("penstock_source_lost_offsets", about, ("topic", "partition"), lost)

    def _tables(self) -> Iterator[Metric]:
        tables = self._recorder.tables.reports
        at = {store: table.refreshed_ms / 1000 for store, table in tables.items() if table.refreshed_ms}
        about = "When the rows of a global table were last read with Spark (Unix time)."
        yield _gauges("penstock_global_table_refresh_timestamp_seconds", about, "store", at)
        about = "Attempts to read the rows of a global table that failed."
        failures = {store: table.failures for store, table in tables.items()}
        yield _counters("penstock_global_table_refresh_failures", about, ("store",), failures)

    @staticmethod
    def _restore(restore: RestoreReport | None) -> Iterator[Metric]:
        known = restore or RestoreReport({}, {}, 0.0, is_done=False)
        yield _gauge("penstock_restore_done", "1 once all lanes are at the committed epoch.", known.is_done)
        yield _gauge("penstock_restore_seconds", "How long the restore took, or has taken so far.", known.seconds)
        by_lane = {str(lane): offsets for lane, offsets in known.total.items()}
        yield _gauges("penstock_restore_offsets", "Offsets of changelogs that a lane reads to restore.", "lane", by_lane)
        by_lane = {str(lane): offsets for lane, offsets in known.left.items()}
        yield _gauges("penstock_restore_offsets_left", "Offsets of changelogs that a lane still has to read.", "lane", by_lane)

    def _memory(self) -> Iterator[Metric]:
        workers = self._recorder.memory.values()
        yield _gauge("penstock_workers", "Python workers that took part in the last sampled epoch.", len(workers))
        about = "Resident memory of all those workers; shared memory is counted for each."
        yield _gauge("penstock_workers_resident_memory_bytes", about, sum(workers))
        if hosts := Counter(self._recorder.hosts.values()):
            yield _gauges("penstock_lanes", "Lanes that run on a host of a cluster.", "host", hosts)
        report = self._jvm()
        if report is None:
            return
        used = {"heap": report.heap_used_bytes, "nonheap": report.other_used_bytes}
        yield _gauges("jvm_memory_used_bytes", "Memory that the driver's JVM uses.", "area", used)
        if report.heap_max_bytes >= 0:
            most = {"heap": report.heap_max_bytes}
            yield _gauges("jvm_memory_max_bytes", "Memory that the driver's JVM may use.", "area", most)
        yield _gauge("jvm_threads_current", "Threads of the driver's JVM.", report.threads)
        garbage = SummaryMetricFamily("jvm_gc_collection_seconds", "Garbage collections of the driver's JVM.", labels=["gc"])
        for collector, (count, seconds) in report.collections.items():
            garbage.add_metric([collector], count, seconds)
        yield garbage


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(name, about, value=value)


def _gauges(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, about, labels=[label])
    for place, value in values.items():
        family.add_metric([place], value)
    return family


def _counter(name: str, about: str, value: float) -> Metric:
    return CounterMetricFamily(name, about, value=value)


def _counters(name: str, about: str, labels: Sequence[str], values: Mapping[Any, float]) -> Metric:
    """Return a counter for each of `values`, which are by label, or by tuples of labels."""
    family = CounterMetricFamily(name, about, labels=labels)
    for place, value in values.items():
        family.add_metric([place] if isinstance(place, str) else place, value)
    return family
