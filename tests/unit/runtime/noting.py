"""Jobs and a publisher that only record their calls, and the epochs of an application that uses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from penstock import Processor, StreamsBuilder, Topology, machine
from penstock.epochs.bounds import Measured, measure_row
from penstock.epochs.program import Epoch
from penstock.epochs.wire import OUT, Control, Kind, LaneReport, control_row, out_rows, rows_about
from penstock.errors import EpochTooLargeError
from penstock.history.progress import Progress
from penstock.kafka.commit import Committer, SourceOffset
from penstock.observation import Recorder
from penstock.records import Partition
from penstock.runtime.loop.epoch_size import EpochSize
from penstock.runtime.loop.epochs import Bounds, Contributions, Ends, Epochs, StartingPoint
from penstock.runtime.loop.publication import Publication
from penstock.timing import monotonous
from tests.unit.epochs.application import program_of

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
START = Progress(4, {A0: 10, A1: 20, B0: 30}, {A0: 500})


class Clock(machine.ThisMachine):
    """The wall clock and the monotonic clock, moved by hand."""

    @classmethod
    def standing_still(cls, monkeypatch: pytest.MonkeyPatch) -> Clock:
        """The clock of everything that runs or decides about epochs."""
        clock = cls()
        monkeypatch.setattr(machine._Current, "machine", clock)
        return clock

    def __init__(self) -> None:
        self.now = 1_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Noted:
    """Jobs and a publisher in one: what was run, and what was published by it."""

    def __init__(self) -> None:
        self.epochs: list[Epoch] = []
        self.small: list[bool | None] = []
        self.ranges: list[Mapping[Partition, tuple[int, int]]] = []
        self.rolled_back: list[Epoch] = []
        self.calls: list[str] = []
        self.offsets: list[list[SourceOffset]] = []
        self.published: list[list[dict[str, Any]]] = []
        self.controls: list[Control] = []
        self.reports: list[LaneReport] = []
        self.measured: list[Measured] = []
        self.fits: int | None = None
        self.failure: Exception | None = None
        self.commit_failure: Exception | None = None
        self.during: Callable[[], None] = lambda: None

    def run(self, epoch: Epoch, is_small: bool, ranges: Mapping[Partition, tuple[int, int]]) -> pa.Table:
        self.ranges.append(ranges)
        if self.fits is not None and sum(end - begin for begin, end in ranges.values()) > self.fits:
            self.epochs.append(epoch)
            raise EpochTooLargeError("The epoch's Spark job failed, probably because of its size: OutOfMemoryError")
        return self._job(epoch, is_small)

    def roll_back(self, epoch: Epoch) -> None:
        self.rolled_back.append(epoch)

    def read(self, partition: Partition, offset: int) -> pa.Table:
        return pa.table({"key": [b"key"], "value": [b"value"], "timestamp": [7], "headers": [None]})

    def tick(self, epoch: Epoch) -> pa.Table:
        return self._job(epoch, None)

    def _job(self, epoch: Epoch, is_small: bool | None) -> pa.Table:
        self.epochs.append(epoch)
        self.small.append(is_small)
        self.during()
        if self.failure is not None:
            raise self.failure
        told = [control_row(control, 0).select(OUT.names) for control in self.controls]
        told += [rows_about(0, report, None).select(OUT.names) for report in self.reports]
        told += [measure_row(measured).select(OUT.names) for measured in self.measured]
        return pa.concat_tables([out_rows(Kind.SINK, 1, 0, 0, b"epoch", b"%d" % epoch.number), *told])

    def begin(self) -> None:
        self.calls.append("begin")
        self.published.append([])

    def produce(self, rows: pa.RecordBatch) -> None:
        self.published[-1] += rows.to_pylist()

    def send_offsets(self, offsets: Sequence[SourceOffset]) -> None:
        self.offsets.append(list(offsets))

    def commit(self) -> bool:
        if self.commit_failure is not None:
            raise self.commit_failure
        self.calls.append("commit")
        return True

    def abort(self) -> None:
        self.calls.append("abort")


def counting() -> Topology:
    builder = StreamsBuilder()
    builder.stream("a", value=str).group_by_key().count(store="counts").to_stream().to("out", value=int)
    return builder.build()


def with_a_schedule() -> Topology:
    builder = StreamsBuilder()
    builder.stream("a", value=str).to("out", value=str)
    builder.schedule("beat", every="1s").to("out", value=int)
    return builder.build()


def with_a_processor() -> Topology:
    builder = StreamsBuilder()
    builder.stream("a", value=str).process(Processor[Any, str, str, str]).to("out", key=str, value=str)
    return builder.build()


def with_watermarks(**options: Any) -> Topology:
    builder = StreamsBuilder()
    for topic in ("a", "b"):
        builder.stream(topic, value=str, watermark=monotonous(**options)).process(Processor[Any, str, str, str]).to(
            "out", key=str, value=str
        )
    return builder.build()


def epochs_of(noted: Noted, **options: Any) -> Epochs:
    """Epochs over `noted`; options are a topology, a recorder, and whatever differs from the defaults here."""
    program = program_of(options.pop("topology", None) or counting())
    committer = options.pop("committer", None) or Committer(noted)
    recorder = options.pop("recorder", None) or Recorder()
    publication = Publication(program, committer, options.pop("check", lambda rows: rows), {"a": "id-a"})
    point = StartingPoint(options.pop("start", START), {"out": 3}, {"c": "id-c"}, options.pop("first_rows", None))
    size = options.pop("size", None) or EpochSize(1_000, 1 << 20, first_records=1_000)
    bounds = Bounds(5, size, options.pop("limits", {}), options.pop("in_flight", 0))
    ends = Ends(options.pop("changelog_ends", dict), options.pop("input_ends", dict))
    return Epochs(program, noted, publication, point, bounds, ends, Contributions(**options), recorder)


def ends(a0: int = 10, a1: int = 20, b0: int = 30) -> dict[Partition, int]:
    return {A0: a0, A1: a1, B0: b0}
