"""Windows that are open when an application goes down are closed after a start without input, by the wall clock."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import StreamsBuilder, Topology, bounded_disorder, tumbling, until_window_closes
from penstock.epochs.hops import INPUT
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch, Program
from penstock.epochs.state_directory import StateDirectory
from penstock.epochs.wire import Kind
from penstock.history.progress import Progress
from penstock.kafka.commit import Committer, SourceOffset
from penstock.observation import Recorder
from penstock.runtime.loop.epoch_size import EpochSize
from penstock.runtime.loop.epochs import Bounds, Contributions, Ends, Epochs, StartingPoint
from penstock.runtime.loop.publication import Publication
from tests.unit.epochs.application import ID, program_of
from tests.unit.runtime.noting import Clock

PLACE = ("in", 0)


def final_counts() -> Topology:
    builder = StreamsBuilder()
    told = bounded_disorder("1s", idle="5s", follow_wall_clock=True)
    counts = builder.stream("in", value=str, watermark=told).group_by_key().windowed_by(tumbling("10s")).count(store="counts")
    counts.suppress(until_window_closes()).to_stream(lambda window, _: window.key, key=str).to("out", value=int)
    return builder.build()


class InProcess:
    """Jobs in this process; a publisher that keeps what sinks send."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.records: list[dict[str, Any]] = []
        self.sent: list[tuple[bytes, bytes]] = []

    def run(self, epoch: Epoch, is_small: bool, ranges: Any) -> pa.Table:
        return run_epoch(self.program, epoch, [pa.RecordBatch.from_pylist(self.records, schema=INPUT)])

    def tick(self, epoch: Epoch) -> pa.Table:
        return run_epoch(self.program, epoch, [])

    def roll_back(self, epoch: Epoch) -> None:
        raise AssertionError

    def read(self, partition: Any, offset: int) -> pa.Table:
        raise AssertionError

    def begin(self) -> None: ...

    def produce(self, rows: pa.RecordBatch) -> None:
        self.sent += [(row["key"], row["value"]) for row in rows.to_pylist() if row["kind"] == Kind.SINK]

    def send_offsets(self, offsets: Sequence[SourceOffset]) -> None: ...

    def commit(self) -> bool:
        return True

    def abort(self) -> None: ...


def started(jobs: InProcess, start: Progress, end: int) -> Epochs:
    return Epochs(
        jobs.program,
        jobs,
        Publication(jobs.program, Committer(jobs), lambda rows: rows, {}),
        StartingPoint(start, partitions={}, changelog_ids={}),
        Bounds(10, EpochSize(10, 1 << 20)),
        Ends(dict, lambda: {PLACE: end}),
        Contributions(),
        Recorder(),
    )


@pytest.mark.parametrize("down_s", [0, 3_600])
def test_windows_close_after_a_start_without_input(down_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock.standing_still(monkeypatch)
    jobs = InProcess(program_of(final_counts(), directory=str(tmp_path)))
    StateDirectory(str(tmp_path), ID).take_over(jobs.program.incarnation)
    now = int(clock.now * 1000)
    jobs.records = [{"name": 0, "origin": 0, "offset": n, "timestamp": now, "key": b"k%d" % n, "value": b"v"} for n in range(3)]
    before = started(jobs, Progress(-1, {PLACE: 0}, {}), 3)
    before.on_input({PLACE: 3})
    assert jobs.sent == []

    clock.now += down_s
    after = started(jobs, before.progress, 3)
    for _ in range(30):
        clock.now += 1
        after.tick()
    assert sorted(key for key, _ in jobs.sent) == [b"k0", b"k1", b"k2"]
    epoch = after.progress.epoch
    for _ in range(30):
        clock.now += 1
        after.tick()
    assert after.progress.epoch == epoch
