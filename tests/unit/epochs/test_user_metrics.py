"""Metrics of processors in lanes: exact and the same with any number of lanes, and when a task runs again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import Processor, Record, StreamsBuilder, Topology, key_value_store
from penstock.epochs.shards import shard_of
from penstock.epochs.wire import Kind, decode_control
from penstock.metrics import MetricReport
from penstock.observation.user_metrics import UserTotals
from tests.unit.epochs.application import SHARDS, Application, some_records

RECORDS = some_records(seed=3, count=60)


class Words(Processor[str, str, str, str]):
    """Counts records before the exchange, and words behind it, with one name for both."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.words = context.metrics.counter("words", "Words.", labels=["where"])
        self.longest = context.metrics.histogram("lengths", "Lengths of records.", buckets=[2, 5])

    def process(self, record: Record[str, str]) -> None:
        self.words.labels(where="before").inc()
        self.longest.observe(len(record.value))
        for word in record.value.split():
            self.context.forward(record.with_key(word).with_value(word))


class Kept(Processor[str, str, str, str]):
    def init(self, context: Any) -> None:
        super().init(context)
        self.store = context.store("kept")

    def process(self, record: Record[str, str]) -> None:
        self.store[record.key] = (self.store.get(record.key) or 0) + 1
        self.context.metrics.counter("words", "Words.", labels=["where"]).labels(where="behind").inc()
        self.context.metrics.gauge("kept", "Words that this shard has kept.").set(sum(1 for _ in self.store.all()))


def counting() -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("kept", value=int))
    words = builder.stream("in", value=str).process(Words, key=str, value=str).repartition(name="words")
    words.process(Kept, stores=["kept"])
    return builder.build()


def metrics_in(table: pa.Table) -> list[MetricReport]:
    controls = [decode_control(row["value"]) for row in table.to_pylist() if row["kind"] == Kind.CONTROL]
    return [report for control in controls for report in control.metrics]


def numbers(reports: Any) -> dict[tuple[str, tuple[str, ...], str], list[float]]:
    return {(each.declaration.name, labels, shard): found for each in reports for labels, shard, found in each.series}


@pytest.mark.parametrize("lanes", [1, 3, 8])
def test_they_are_exact_with_any_number_of_lanes(tmp_path: Path, lanes: int) -> None:
    application = Application(tmp_path, counting)
    application.start(lanes)
    totals = UserTotals()
    found: Any = ()
    for start in range(0, 60, 20):
        table = application.run(RECORDS[start : start + 20])
        application.commit(RECORDS[start : start + 20], table)
        found = totals.with_epoch(metrics_in(table))
    texts = [(record.value or b"").decode() for record in RECORDS]
    words = [word for text in texts for word in text.split()]
    by_shard: dict[str, set[str]] = {}
    for word in words:
        by_shard.setdefault(str(shard_of(word.encode(), SHARDS)), set()).add(word)
    lengths = [len(text) for text in texts]
    counts = [sum(low < length <= high for length in lengths) for low, high in ((0, 2), (2, 5), (5, 99))]
    kept = {("kept", (), shard): [float(len(found_words))] for shard, found_words in by_shard.items()}
    assert (
        numbers(found)
        == {
            ("words", ("before",), ""): [60],
            ("words", ("behind",), ""): [len(words)],
            ("lengths", (), ""): [sum(lengths), *counts],
        }
        | kept
    )


def test_a_task_that_runs_again_reports_the_same(tmp_path: Path) -> None:
    application = Application(tmp_path, counting)
    application.start(2)
    first, again = (metrics_in(application.run(RECORDS)) for _ in range(2))
    assert numbers(first) == numbers(again)
    assert len(first) > 2


def test_without_metrics_there_is_nothing_to_report(tmp_path: Path) -> None:
    application = Application(tmp_path)
    application.start(2)
    assert metrics_in(application.run(RECORDS)) == []
