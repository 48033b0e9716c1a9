"""`Recorder`: records what happens in an application, readable from any thread.

It is called between records, never per record. Readers get frozen values; nothing here blocks.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from structlog.contextvars import bind_contextvars, unbind_contextvars

from penstock import machine
from penstock.engines.port import Whereabouts
from penstock.epochs.wire import LaneReport
from penstock.kafka.statistics import ClientStatistics
from penstock.metrics import MetricReport
from penstock.observation.reports import (
    CommittedStores,
    EpochReport,
    OpenEpoch,
    PartitionReport,
    RestoreReport,
    Trouble,
    Worker,
)
from penstock.observation.restores import RefreshedTables, Restores
from penstock.observation.user_metrics import UserTotals
from penstock.records import Partition

_log = logging.getLogger(__name__)

RECENT = 200
"""How many epochs are kept."""

Name = TypeVar("Name")
Amount = TypeVar("Amount", int, float)

EpochListener = Callable[[EpochReport], None]
RestoreListener = Callable[[RestoreReport], None]


class NodeSample(NamedTuple):
    """What sampled epochs have measured of a node: records received, and seconds of its own, without its child nodes."""

    records: int
    seconds: float


class Totals(NamedTuple):
    """Sums since the start of the process; replaced as a whole, so that they are consistent."""

    epochs: int = 0
    records: int = 0
    seconds: float = 0.0
    phases: Mapping[str, float] = MappingProxyType({})
    sent: Mapping[str, int] = MappingProxyType({})
    dropped: Mapping[tuple[str, str], int] = MappingProxyType({})
    lanes: Mapping[tuple[int, int], tuple[int, float]] = MappingProxyType({})
    """Records and seconds, by lane and stage."""
    sampled_records: int = 0
    """Records of the epochs that were sampled."""
    nodes: Mapping[str, NodeSample] = MappingProxyType({})


class LeftOut:
    """Counts the records that deliveries have left out, in threads of their own: dropped ones that no epoch reports."""

    def __init__(self) -> None:
        self._counts: Mapping[tuple[str, str], int] = {}
        self._counting = machine.lock()

    def count(self, node: str, reason: str) -> None:
        """Count a record."""
        with self._counting:
            self._counts = _sums(self._counts, [((node, reason), 1)])

    def and_dropped(self, totals: Totals) -> Mapping[tuple[str, str], int]:
        """Return all records that were dropped, by node and reason."""
        return _sums(totals.dropped, self._counts.items())


class Recorder:
    """The memory of one start of an application."""

    def __init__(self, clock: Callable[[], float] = machine.monotonic) -> None:
        self._clock = clock
        self._changing = machine.lock()  # one thread runs an epoch while another commits the one before it
        self._open: dict[int, OpenEpoch] = {}  # oldest first
        self._phases: dict[int, dict[str, float]] = {}
        self._began_ms: dict[int, int] = {}
        self._restore_began = 0.0
        self._recent: deque[EpochReport] = deque(maxlen=RECENT)
        self._places: Mapping[Partition, PartitionReport] = {}
        self._ends: Mapping[Partition, int] = {}
        self._sizes: dict[tuple[int, str], tuple[int, int]] = {}  # of stores, by lane
        self._listeners: list[EpochListener] = []
        self._restore_listeners: list[RestoreListener] = []
        self._user_totals = UserTotals()
        self.started_at: float = clock()
        self.committed_at: float = clock()
        """The time of the last commit, or of the start."""
        self.started_ms: int = machine.now_ms()
        self.committed_ms: int = self.started_ms
        """The same two times, by the wall clock."""
        self.restore: RestoreReport | None = None
        self.restores: Restores = Restores(clock)
        """Where the lanes are that are being restored."""
        self.watermark: int = -1
        self.totals: Totals = Totals()
        self.stores: CommittedStores = CommittedStores({}, {})
        self.whereabouts: Callable[[], Whereabouts | None] = lambda: None
        """Returns the engine, and where its slots are; None before it is started."""
        self.troubles: Callable[[], Sequence[Trouble]] = lambda: ()
        """Returns the last warnings and errors, newest first."""
        self.memory: Mapping[Worker, int] = {}
        """Bytes of memory of the Python workers, as of the last sampled epoch."""
        self.hosts: Mapping[int, str] = {}
        """Where each lane runs, as of the last sampled epoch; empty without a cluster."""
        self.commit_retries: int = 0
        """Retries of the check with a broker whether an epoch is committed."""
        self.lost: Mapping[Partition, int] = {}
        """Offsets skipped because their records were gone, by source partition."""
        self.left_out: LeftOut = LeftOut()
        """The records that deliveries have left out."""
        self.tables: RefreshedTables = RefreshedTables()
        """The global tables that are read again from time to time."""
        self.clients: ClientStatistics = ClientStatistics()
        """The last statistics of the driver's Kafka clients."""
        self.user_metrics: Sequence[MetricReport] = ()
        """The metrics of user code, summed over all committed epochs."""
        self.failure: BaseException | None = None
        self.is_paused: bool = False
        """Whether the application is paused."""
        self._resumed_at = self.started_at

    # ---- for readers --------------------------------------------------------------------------------------------------

    @property
    def current(self) -> OpenEpoch | None:
        """The oldest epoch that is not committed yet, if there is one; the next may already be running."""
        return next(iter(tuple(self._open.values())), None)

    @property
    def recent(self) -> Sequence[EpochReport]:
        """The last committed epochs, newest last."""
        return tuple(self._recent)

    @property
    def partitions(self) -> Mapping[Partition, PartitionReport]:
        """The source partitions: positions as of the last commit, and ends as last seen.

        Two threads report the two, so they are combined here, when they are read.
        """
        ends = self._ends
        return {place: replace(known, end=ends.get(place, -1)) for place, known in self._places.items()}

    def lasted(self) -> float:
        """Return the seconds since the current epoch began; 0 if there is none."""
        current = self.current
        return 0.0 if current is None else self._clock() - current.began

    def idle_for(self) -> float:
        """Return the seconds since the last commit, or since the start."""
        return self._clock() - self.committed_at

    def stuck_for(self) -> float:
        """Return the seconds in which it has committed nothing although it was not paused."""
        return 0.0 if self.is_paused else self._clock() - max(self.committed_at, self._resumed_at)

    # ---- restore ------------------------------------------------------------------------------------------------------

    def restoring(self, left: Mapping[int, int], lanes: int = 1) -> RestoreReport:
        """Record how many offsets each lane that has reported still has to read; `lanes` is how many there are."""
        if self.restore is None:
            self._restore_began = self._clock()
        before = self.restore or RestoreReport({}, {}, 0.0, is_done=False)
        total = {lane: max(offsets, before.total.get(lane, 0)) for lane, offsets in left.items()}
        seconds = self._clock() - self._restore_began
        self.restore = RestoreReport(dict(left), total, seconds, is_done=False, lanes=lanes, reached=before.fraction)
        _tell(self._restore_listeners, self.restore)
        return self.restore

    def restored(self) -> None:
        """Record that all lanes are at the committed epoch."""
        if self.restore is None:
            self.restore = RestoreReport({}, {}, 0.0, is_done=True)
        else:
            none_left = dict.fromkeys(self.restore.total, 0)
            seconds = self._clock() - self._restore_began
            self.restore = replace(self.restore, left=none_left, seconds=seconds, is_done=True)
        _tell(self._restore_listeners, self.restore)

    def listen_to_restore(self, listener: RestoreListener) -> None:
        """Notify a listener of the progress of a restore, in the thread that reports it."""
        self._restore_listeners.append(listener)

    # ---- epochs -------------------------------------------------------------------------------------------------------

    def listen(self, listener: EpochListener) -> Callable[[], None]:
        """Notify a listener of every committed epoch, in the thread that committed it; return a function that ends that.

        If a listener raises, the error is logged; the epoch stays committed.
        """
        self._listeners.append(listener)
        return partial(self._listeners.remove, listener)

    def epoch_begins(self, number: int, phase: str) -> None:
        """Record that an epoch begins in this thread; the thread's log lines name it from now on.

        Epochs from that number on that have begun before, and failed, are forgotten.
        """
        now = self._clock()
        bind_contextvars(epoch=number, phase=phase)
        with self._changing:
            self._phases[number], self._began_ms[number] = {}, machine.now_ms()
            before = {other: about for other, about in self._open.items() if other < number}
            self._open = {**before, number: OpenEpoch(number, phase, now, now)}

    def phase_begins(self, phase: str, number: int | None = None) -> None:
        """Record that an epoch, by default the current one, enters another phase."""
        with self._changing:
            current = self.current if number is None else self._open.get(number)
            if current is None:
                return
            now = self._clock()
            phases = self._phases[current.number]
            phases[current.phase] = phases.get(current.phase, 0.0) + now - current.phase_began
            self._open[current.number] = replace(current, phase=phase, phase_began=now)
        bind_contextvars(phase=phase)

    def epoch_committed(
        self,
        records: int,
        sent: Mapping[str, int],
        dropped: Sequence[tuple[str, str, int]],
        lanes: Sequence[LaneReport],
        is_sampled: bool,
        metrics: Sequence[MetricReport] = (),
    ) -> None:
        """Record that the current epoch is committed."""
        current = self.current
        assert current is not None
        self.phase_begins("done")
        unbind_contextvars("epoch", "phase")
        with self._changing:
            del self._open[current.number]
        self.committed_at, self.committed_ms = self._clock(), machine.now_ms()
        report = EpochReport(
            current.number,
            self._began_ms.pop(current.number),
            self.committed_at - current.began,
            records,
            self._phases.pop(current.number),
            dict(sent),
            tuple(dropped),
            tuple(lanes),
            is_sampled,
        )
        self._recent.append(report)
        if metrics:
            self.user_metrics = self._user_totals.with_epoch(metrics)
        self.totals = _added(self.totals, report)
        if is_sampled:
            # Every lane reports its stores after each of its stages: the last report counts.
            self._sizes.update({(lane.lane, store): sizes for lane in lanes for store, sizes in lane.stores.items()})
            self.stores = _stores(self._sizes)
            self.memory = {Worker(lane.host, lane.worker): lane.memory for lane in lanes if lane.memory}
            self.hosts = {lane.lane: lane.host for lane in lanes if lane.host}
        for listener in self._listeners:
            try:
                listener(report)
            except Exception:  # noqa: BLE001 - an observer must not end the application
                _log.exception("a listener raised on epoch %d; the epoch stays committed", report.number)

    def begin_anew(self) -> None:
        """Forget what is not committed, because the application starts again: the epochs that have begun, and the restore."""
        unbind_contextvars("epoch", "phase")
        with self._changing:
            self._open = {}
        self.restore = None

    def commit_retried(self) -> None:
        """Count a retry: no broker has said yet whether the current epoch is committed."""
        self.commit_retries += 1

    def moved(self, partitions: Mapping[Partition, PartitionReport], watermark: int) -> None:
        """Record the positions of the source partitions as of the last commit, and the application's watermark."""
        self._places = partitions
        self.watermark = watermark

    def lost_input(self, place: Partition, offsets: int) -> None:
        """Record that offsets of a source partition are skipped, because their records were gone before they were read."""
        self.lost = _sums(self.lost, [(place, offsets)])

    def paused(self, is_paused: bool) -> None:
        """Record that the application was paused, or resumed."""
        self.is_paused, self._resumed_at = is_paused, self._clock()

    def saw_ends(self, ends: Mapping[Partition, int]) -> None:
        """Record the current ends of the source partitions."""
        self._ends = ends


def _tell(listeners: Iterable[RestoreListener], report: RestoreReport) -> None:
    for listener in listeners:
        listener(report)


def _added(totals: Totals, report: EpochReport) -> Totals:
    lanes = dict(totals.lanes)
    nodes = dict(totals.nodes)
    for lane in report.lanes:
        records, seconds = lanes.get((lane.lane, lane.stage), (0, 0.0))
        lanes[lane.lane, lane.stage] = (records + lane.records, seconds + lane.seconds)
        for name, (calls, spent) in lane.nodes.items():
            known = nodes.get(name, NodeSample(0, 0.0))
            nodes[name] = NodeSample(known.records + calls, known.seconds + spent)
    return Totals(
        totals.epochs + 1,
        totals.records + report.records,
        totals.seconds + report.seconds,
        _sums(totals.phases, report.phases.items()),
        _sums(totals.sent, report.sent.items()),
        _sums(totals.dropped, (((node, reason), count) for node, reason, count in report.dropped)),
        lanes,
        totals.sampled_records + (report.records if report.is_sampled else 0),
        nodes,
    )


def _sums(known: Mapping[Name, Amount], more: Iterable[tuple[Name, Amount]]) -> dict[Name, Amount]:
    sums = dict(known)
    for name, count in more:
        sums[name] = sums[name] + count if name in sums else count
    return sums


def _stores(sizes: Mapping[tuple[int, str], tuple[int, int]]) -> CommittedStores:
    entries: dict[str, int] = {}
    size_bytes: dict[str, int] = {}
    for (_, store), (count, size) in sizes.items():
        entries[store] = entries.get(store, 0) + count
        size_bytes[store] = size_bytes.get(store, 0) + size
    return CommittedStores(entries, size_bytes)
