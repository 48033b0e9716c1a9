"""No data from records gets into the metrics, whatever the application does with it; so the number of series is bounded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Failure, StreamsBuilder, Topology, dead_letter, log_and_continue
from penstock.epochs.hops import INPUT
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch, Program
from penstock.handlers import DeadLetter, ErrorHandlers
from penstock.history.progress import Progress
from penstock.kafka.commit import Committer, SourceOffset
from penstock.observation import Recorder
from penstock.observation.metrics import Metrics
from penstock.runtime.loop import agenda
from penstock.runtime.loop.epoch_size import EpochSize
from penstock.runtime.loop.epochs import Bounds, Contributions, Ends, Epochs, StartingPoint
from penstock.runtime.loop.publication import Publication
from penstock.timing import bounded_disorder
from tests.unit.epochs.application import Application, Raw

CANARY = "canary"
LANES = 2


def careless() -> Topology:
    """An application that uses its data in all names it can choose: topics, headers, errors."""
    builder = StreamsBuilder()
    lines = builder.stream("in", value=str, watermark=bounded_disorder("1s"), late=log_and_continue())
    words = lines.map_values(_strict)
    words.group_by_key().count(store="counts").to_stream().to(lambda key, value, context: f"out-{key}", key=str, value=int)
    return builder.build()


def _strict(value: str) -> str:
    if value.startswith("bad"):
        raise ValueError(f"what is {value}?")
    return value


def _named_by_data(failure: Failure) -> DeadLetter:
    return dead_letter(f"dead-{(failure.key or b'').decode()}")


class InProcess:
    """Jobs of an epoch in this process, and a publisher that accepts everything."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.records: list[Raw] = []

    def run(self, epoch: Epoch, is_small: bool, ranges: Any) -> pa.Table:
        rows = [{"name": 0, "origin": 0, "offset": number, **record._asdict()} for number, record in enumerate(self.records)]
        return run_epoch(self.program, epoch, [pa.RecordBatch.from_pylist(rows, schema=INPUT)])

    def tick(self, epoch: Epoch) -> pa.Table:
        return run_epoch(self.program, epoch, [])

    def roll_back(self, epoch: Epoch) -> None: ...

    def read(self, partition: tuple[str, int], offset: int) -> pa.Table: ...

    def begin(self) -> None: ...

    def produce(self, rows: pa.RecordBatch) -> None: ...

    def send_offsets(self, offsets: Sequence[SourceOffset]) -> None: ...

    def commit(self) -> bool:
        return True

    def abort(self) -> None: ...


def records(count: int, start: int = 0) -> list[Raw]:
    """Each key is new; some records are late, some fail, some have no key."""
    found = []
    for number in range(start, start + count):
        key: bytes | None = f"{CANARY}-key-{number}".encode()
        value, timestamp = f"{CANARY}-value-{number}".encode(), 60_000 + number
        match number % 5:
            case 1:
                value = b"bad " + value
            case 2:
                timestamp = 1
            case 3:
                key = None
        found.append(Raw(key, value, timestamp))
    return found


def series(payload: str) -> set[str]:
    return {line.rpartition(" ")[0] for line in payload.splitlines() if not line.startswith("#")}


@pytest.mark.security(11)
def test_metrics_hold_nothing_from_data_and_do_not_grow_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agenda, "SAMPLE_EVERY_S", -1.0)
    application = Application(tmp_path, careless, handlers=ErrorHandlers(processing=_named_by_data))
    application.start(LANES)
    recorder = Recorder()
    metrics = Metrics("app", recorder, lambda: "running", epoch_timeout_s=60)
    jobs = InProcess(application.running)
    start = Progress(-1, {("in", 0): 0}, {})
    epochs = Epochs(
        application.running,
        jobs,
        Publication(application.running, Committer(jobs), lambda rows: rows, {}),
        StartingPoint(start, partitions={}, changelog_ids={}),
        Bounds(1, EpochSize(9_999, 1 << 30)),
        Ends(dict),
        Contributions(),
        recorder,
    )
    found = []
    end = 0
    for count in (20, 20, 400):
        jobs.records = records(count, end)
        end += count
        epochs.on_input({("in", 0): end})
        payload = metrics.exposition()[0].decode()
        assert CANARY not in payload
        found.append(series(payload))
    totals = recorder.totals
    assert totals.sent["(chosen per record)"] > 100, "topics were not named by data"
    assert totals.sent["(dead letters)"] > 50, "nothing failed"
    assert {reason for _, reason in totals.dropped} == {"late", "dead letter", "null key or value"}
    assert totals.nodes
    assert found[1] == found[2], "after the first epoch, which moved the watermark, there must be no new series"
