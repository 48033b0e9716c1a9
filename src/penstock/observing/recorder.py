"""`Recorder`: is told what happens in an application while it happens, and can be asked about it from any thread.

It is told between records, never per record. Whoever asks gets frozen values; nothing here waits for anything.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from structlog.contextvars import bind_contextvars, unbind_contextvars

from penstock.epochs.wire import LaneReport
from penstock.observing.reports import CommittedStores, EpochReport, OpenEpoch, Partition, PartitionReport, RestoreReport

_log = logging.getLogger(__name__)

RECENT = 200
"""How many epochs are remembered."""

Name = TypeVar("Name")
Amount = TypeVar("Amount", int, float)

EpochListener = Callable[[EpochReport], None]
RestoreListener = Callable[[RestoreReport], None]


class NodeSample(NamedTuple):
    """What sampled epochs have shown about a node: records it was given, and seconds it had for them, without those below."""

    records: int
    seconds: float


class Totals(NamedTuple):
    """Sums since the start of the process; replaced as a whole, so that they belong together."""

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


class Recorder:
    """The memory of one start of an application."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: OpenEpoch | None = None
        self._phases: dict[str, float] = {}
        self._began_ms = 0
        self._restore_began = 0.0
        self._recent: deque[EpochReport] = deque(maxlen=RECENT)
        self._places: Mapping[Partition, PartitionReport] = {}
        self._ends: Mapping[Partition, int] = {}
        self._sizes: dict[tuple[int, str], tuple[int, int]] = {}  # of stores, by lane
        self._listeners: list[EpochListener] = []
        self._restore_listeners: list[RestoreListener] = []
        self.started_at = clock()
        self.committed_at = clock()
        """When the last commit was, or the start."""
        self.started_ms = self.committed_ms = int(time.time() * 1000)
        """The same two by the wall clock."""
        self.restore: RestoreReport | None = None
        self.watermark = -1
        self.totals = Totals()
        self.stores = CommittedStores({}, {})
        self.memory: Mapping[int, int] = {}
        """Bytes that Python workers have, by process id, as of the last epoch that was sampled."""
        self.commit_retries = 0
        """How often a broker had to be asked again whether an epoch is committed."""
        self.lost: Mapping[Partition, int] = {}
        """How many offsets of source partitions were skipped because their records were gone."""
        self.failure: BaseException | None = None

    # ---- asked --------------------------------------------------------------------------------------------------------

    @property
    def current(self) -> OpenEpoch | None:
        """The epoch in hand, if there is one."""
        return self._open

    @property
    def recent(self) -> Sequence[EpochReport]:
        """The last epochs, the newest last."""
        return tuple(self._recent)

    @property
    def partitions(self) -> Mapping[Partition, PartitionReport]:
        """The source partitions: where they are as of the last barrier, and where they end as of a moment ago.

        One thread tells the former and another the latter, so they are put together here and not where they are told.
        """
        ends = self._ends
        return {place: replace(known, end=ends.get(place, -1)) for place, known in self._places.items()}

    def lasted(self) -> float:
        """For how many seconds the epoch in hand has been going on; 0 if there is none."""
        current = self._open
        return 0.0 if current is None else self._clock() - current.began

    def idle_for(self) -> float:
        """Seconds since the last commit, or since the start."""
        return self._clock() - self.committed_at

    # ---- told: restore ------------------------------------------------------------------------------------------------

    def restoring(self, left: Mapping[int, int], lanes: int = 1) -> None:
        """How many offsets each lane that has reported still has to read, of so many lanes in all."""
        if self.restore is None:
            self._restore_began = self._clock()
        before = self.restore or RestoreReport({}, {}, 0.0, is_done=False)
        total = {lane: max(offsets, before.total.get(lane, 0)) for lane, offsets in left.items()}
        seconds = self._clock() - self._restore_began
        self._restore_is_at(RestoreReport(dict(left), total, seconds, is_done=False, lanes=lanes, reached=before.fraction))

    def restored(self) -> None:
        """All lanes are at the committed epoch."""
        if self.restore is None:
            self._restore_is_at(RestoreReport({}, {}, 0.0, is_done=True))
            return
        none_left = dict.fromkeys(self.restore.total, 0)
        seconds = self._clock() - self._restore_began
        self._restore_is_at(replace(self.restore, left=none_left, seconds=seconds, is_done=True))

    def listen_to_restore(self, listener: RestoreListener) -> None:
        """Have the progress of a restore told to somebody, in the thread that hears of it."""
        self._restore_listeners.append(listener)

    def _restore_is_at(self, report: RestoreReport) -> None:
        self.restore = report
        for listener in self._restore_listeners:
            listener(report)

    # ---- told: epochs -------------------------------------------------------------------------------------------------

    def listen(self, listener: EpochListener) -> None:
        """Have every committed epoch told to somebody, in the thread that committed it.

        A listener that fails is logged and changes nothing: the epoch is committed all the same.
        """
        self._listeners.append(listener)

    def epoch_begins(self, number: int, phase: str) -> None:
        """An epoch is taken in hand, in this thread: what it logs from now on is about it."""
        now = self._clock()
        bind_contextvars(epoch=number, phase=phase)
        self._phases = {}
        self._began_ms = int(time.time() * 1000)
        self._open = OpenEpoch(number, phase, now, now)

    def phase_begins(self, phase: str) -> None:
        """The epoch in hand goes on to another phase."""
        current = self._open
        if current is None:
            return
        now = self._clock()
        self._phases[current.phase] = self._phases.get(current.phase, 0.0) + now - current.phase_began
        self._open = replace(current, phase=phase, phase_began=now)
        bind_contextvars(phase=phase)

    def epoch_committed(
        self,
        records: int,
        sent: Mapping[str, int],
        dropped: Sequence[tuple[str, str, int]],
        lanes: Sequence[LaneReport],
        is_sampled: bool,
    ) -> None:
        """The epoch in hand is committed."""
        current = self._open
        assert current is not None
        self.phase_begins("done")
        unbind_contextvars("epoch", "phase")
        self._open = None
        self.committed_at, self.committed_ms = self._clock(), int(time.time() * 1000)
        report = EpochReport(
            current.number,
            self._began_ms,
            self.committed_at - current.began,
            records,
            dict(self._phases),
            dict(sent),
            tuple(dropped),
            tuple(lanes),
            is_sampled,
        )
        self._recent.append(report)
        self.totals = _added(self.totals, report)
        if is_sampled:
            # Every lane tells about its stores after each of its stages: the last word counts.
            self._sizes.update({(lane.lane, store): sizes for lane in lanes for store, sizes in lane.stores.items()})
            self.stores = _stores(self._sizes)
            self.memory = {lane.worker: lane.memory for lane in lanes if lane.memory}
        for listener in self._listeners:
            try:
                listener(report)
            except Exception:  # noqa: BLE001 - whoever looks on must not end what is looked at
                _log.exception("a listener failed on epoch %d", report.number)

    def commit_retried(self) -> None:
        """No broker has said yet whether the epoch in hand is committed: it is asked again."""
        self.commit_retries += 1

    def moved(self, partitions: Mapping[Partition, PartitionReport], watermark: int) -> None:
        """Where the source partitions are as of the last barrier, and the application's watermark."""
        self._places = partitions
        self.watermark = watermark

    def lost_input(self, place: Partition, offsets: int) -> None:
        """Records of a source partition were gone before they were read, and are skipped."""
        self.lost = _sums(self.lost, [(place, offsets)])

    def saw_ends(self, ends: Mapping[Partition, int]) -> None:
        """Where the source partitions end now."""
        self._ends = ends


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
