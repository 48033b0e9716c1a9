"""What the tasks of an epoch report to the driver, besides rows for Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.epochs.wire import Control, Kind, LaneReport, decode_control, reports_of
from penstock.history.progress import Progress
from penstock.metrics import MetricReport
from penstock.records import NO_TIMESTAMP, Partition


@dataclass(frozen=True)
class Feedback:
    """Everything that tasks have reported about one epoch: times, drops, what is due, and how much work it was."""

    controls: Sequence[Control]
    reports: Sequence[LaneReport]

    @classmethod
    def found_in(cls, tables: Sequence[pa.Table]) -> Feedback:
        """Return the feedback that an epoch's rows contain."""
        reports = [report for table in tables for report in reports_of(table)]
        return cls([control for table in tables for control in _controls(table)], reports)

    @property
    def due(self) -> int | None:
        """The earliest wall-clock time that something waits for; None for none."""
        return min((control.due for control in self.controls if control.due is not None), default=None)

    @property
    def event_due(self) -> int | None:
        """The earliest watermark that something waits for; None for none."""
        return min((control.event_due for control in self.controls if control.event_due is not None), default=None)

    @property
    def heads(self) -> dict[int, str]:
        """The ids of the last writes, by lane."""
        written = sorted((report for report in self.reports if report.write_id), key=lambda report: report.stage)
        return {report.lane: report.write_id for report in written}

    @property
    def wants_commit(self) -> bool:
        """Whether a processor has requested a commit."""
        return any(control.wants_commit for control in self.controls)

    @property
    def dropped(self) -> list[tuple[str, str, int]]:
        """Node, reason and count of records that were dropped."""
        return [entry for control in self.controls for entry in control.dropped]

    @property
    def metrics(self) -> list[MetricReport]:
        """The metrics of user code, as each task has measured them."""
        return [report for control in self.controls for report in control.metrics]

    @property
    def written(self) -> list[tuple[int, int, int]]:
        """The rows that executors have written: topic by index, partition and count."""
        return [entry for control in self.controls for entry in control.written]

    @property
    def left_out(self) -> int:
        """How many rows executors have not written because they were too large."""
        return sum(control.left_out for control in self.controls)

    def watermarks(self, progress: Progress) -> list[tuple[Partition, int]]:
        """Return the watermarks that partitions have reported, in order; a partition may report several."""
        reported = [entry for control in self.controls for entry in control.watermarks.items()]
        return [(progress.origins[origin], watermark) for origin, watermark in reported]

    def high_times(self, progress: Progress) -> dict[Partition, int]:
        """Return the highest event time of each partition, continuing from `progress`."""
        high_times = dict(progress.high_times)
        for control in self.controls:
            for origin, high in control.high_times.items():
                partition = progress.origins[origin]
                high_times[partition] = max(high, high_times.get(partition, NO_TIMESTAMP))
        return high_times


def _controls(table: pa.Table) -> list[Control]:
    is_control = pc.equal(table.column("kind"), int(Kind.CONTROL))
    return list(map(decode_control, table.filter(is_control).column("value").to_pylist()))
