"""Everything that the dashboard shows of an application at one moment, as one JSON value.

Rates are over the last seconds and come from the reports of epochs, so the first request gets them, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.admin.answers import known
from penstock.observation import EpochReport, PartitionReport, Recorder
from penstock.topology import SourceNode, Topology
from penstock.topology.layout import topics_of
from penstock.topology.svg import drawable
from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.runtime.application import RunningApplication

RATE_OVER_MS = 10_000
"""Rates are means over about this long."""


def snapshot(running: RunningApplication, after: int = -1) -> dict[str, Any]:
    """Return what is known now, with those recent epochs that follow epoch `after`."""
    recorder, now_ms = running.recorder, int(time.time() * 1000)
    recent, totals = recorder.recent, recorder.totals
    lately = Span.of(recent, now_ms, is_busy=recorder.current is not None)
    return {
        "application": running.application_id,
        "version": __version__,
        "at_ms": now_ms,
        "up_s": time.monotonic() - recorder.started_at,
        "state": running.state.value,
        "paused": recorder.is_paused,
        "live": [problem._asdict() for problem in running.health.live()],
        "ready": [problem._asdict() for problem in running.health.ready()],
        "epoch": running.epoch,
        "engine": None if (where := recorder.whereabouts()) is None else where.as_dict(),
        "committed_s": recorder.idle_for() if totals.epochs else None,
        "current": _current(recorder),
        "restore": _restore(recorder),
        "records": totals.records,
        "records_per_s": lately.records_per_s,
        "sent": {drawable(topic): {"count": totals.sent[topic], "per_s": rate} for topic, rate in lately.sent_per_s(totals.sent)},
        "nodes": _nodes(recent, lately.records_per_s),
        "lanes": lately.lanes(),
        "epochs": [_epoch(report) for report in recent if report.number > after],
        "watermark": known(recorder.watermark),
        "partitions": _partitions(running.topology, recorder.partitions),
        "stores": _stores(running.topology, recorder),
        "dropped": [
            {"node": drawable(node), "reason": drawable(reason), "count": count}
            for (node, reason), count in sorted(recorder.left_out.and_dropped(totals).items())
        ],
        "troubles": [trouble._asdict() for trouble in recorder.troubles()],
        "dead_letter_topics": sorted(running.topology.dead_letter_topics() | running.handlers.dead_letter_topics()),
        "memory": [
            {"worker": worker.process, "host": worker.host, "bytes": size} for worker, size in sorted(recorder.memory.items())
        ],
    }


class Span(NamedTuple):
    """The last epochs, and how many seconds they cover."""

    reports: Sequence[EpochReport]
    seconds: float

    @classmethod
    def of(cls, recent: Sequence[EpochReport], now_ms: int, *, is_busy: bool) -> Span:
        """Return the epochs of the last seconds. The current epoch's records are not known yet: if there is one, the span ends
        with the last committed epoch.
        """
        if not recent:
            return cls((), 0.0)
        until = _committed_ms(recent[-1]) if is_busy else now_ms
        reports = [report for report in recent if _committed_ms(report) > until - RATE_OVER_MS]
        if not reports:
            return cls((), RATE_OVER_MS / 1000)
        return cls(reports, max(until - reports[0].began_ms, 1) / 1000)

    @property
    def records_per_s(self) -> float | None:
        """Records read per second; None before the first epoch."""
        return sum(report.records for report in self.reports) / self.seconds if self.seconds else None

    def sent_per_s(self, topics: Iterable[str]) -> list[tuple[str, float]]:
        """Return rows sent per second, by topic."""
        seconds = self.seconds or 1.0
        return [(topic, sum(report.sent.get(topic, 0) for report in self.reports) / seconds) for topic in sorted(topics)]

    def lanes(self) -> list[dict[str, Any]]:
        """Return the load of each lane by stage: records per second, and the share of the time that it was busy."""
        sums: dict[tuple[int, int], tuple[int, float]] = {}
        for report in self.reports:
            for lane in report.lanes:
                records, seconds = sums.get((lane.lane, lane.stage), (0, 0.0))
                sums[lane.lane, lane.stage] = (records + lane.records, seconds + lane.seconds)
        return [
            {"lane": lane, "stage": stage, "per_s": records / self.seconds, "busy": seconds / self.seconds}
            for (lane, stage), (records, seconds) in sorted(sums.items())
        ]


def _committed_ms(report: EpochReport) -> int:
    return report.began_ms + int(report.seconds * 1000)


def _nodes(recent: Sequence[EpochReport], per_s: float | None) -> dict[str, dict[str, float | None]]:
    """Estimate each node's records per second and share of all nodes' time, from the recent sampled epochs."""
    sampled = [report for report in recent if report.is_sampled]
    read = sum(report.records for report in sampled)
    sums: dict[str, tuple[int, float]] = {}
    for report in sampled:
        for lane in report.lanes:
            for name, (records, seconds) in lane.nodes.items():
                before = sums.get(name, (0, 0.0))
                sums[name] = (before[0] + records, before[1] + seconds)
    spent = sum(seconds for _, seconds in sums.values())
    return {
        drawable(name): {
            "per_s": per_s * records / read if read and per_s is not None else None,
            "share": seconds / spent if spent else None,
        }
        for name, (records, seconds) in sums.items()
    }


def _current(recorder: Recorder) -> dict[str, Any] | None:
    current = recorder.current
    return None if current is None else {"number": current.number, "phase": current.phase, "seconds": recorder.lasted()}


def _restore(recorder: Recorder) -> dict[str, Any] | None:
    restore = recorder.restore
    if restore is None or restore.is_done:
        return None
    left, total = sum(restore.left.values()), sum(restore.total.values())
    return {"read": total - left, "total": total, "fraction": restore.fraction, "seconds": restore.seconds}


def _epoch(report: EpochReport) -> dict[str, Any]:
    return {
        "number": report.number,
        "began_ms": report.began_ms,
        "seconds": report.seconds,
        "records": report.records,
        "phases": dict(report.phases),
    }


def _partitions(topology: Topology, partitions: Mapping[tuple[str, int], PartitionReport]) -> list[dict[str, Any]]:
    sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode) and not node.internal]
    drawn = {topic: _drawn_as(topic, sources) for topic, _ in partitions}
    return [
        {
            "topic": topic,
            "drawn_as": drawn[topic],
            "partition": partition,
            "offset": report.offset,
            "lag": known(report.lag),
            "event_time": known(report.high_time),
            "watermark": known(report.watermark),
            "idle": report.is_idle,
        }
        for (topic, partition), report in sorted(partitions.items())
    ]


def _drawn_as(topic: str, sources: Sequence[SourceNode]) -> str:
    """Return the name under which a topic is drawn: its own, or the pattern that matches it."""
    return next((drawable(topics_of(node)[0]) for node in sources if node.pattern is not None and node.reads(topic)), topic)


def _stores(topology: Topology, recorder: Recorder) -> list[dict[str, Any]]:
    entries, sizes = recorder.stores.entries, recorder.stores.size_bytes
    return [
        {"name": drawable(name), "kind": spec.kind.value, "entries": entries.get(name), "bytes": sizes.get(name)}
        for name, spec in topology.stores.items()
    ]
