"""Sides: their commands, what they leave out, and the progress of a Spark query by its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.bench import SIDES, in_turn
from benchmarks.sides.job import Job
from benchmarks.sides.kafka_streams import LARGER, candidates
from benchmarks.sides.penstock import Penstock
from benchmarks.sides.progress import CheckpointProgress
from benchmarks.workloads import WORKLOADS


def job(directory: Path, topology: str = "totals") -> Job:
    return Job(
        application_id="app",
        topology=topology,
        sources=("in", "table"),
        sink="out",
        bootstrap_servers="localhost:1",
        state_dir=directory,
        admin_port=1,
    )


def commit(directory: Path, batch: int, offsets: dict[str, dict[str, int]] | None) -> None:
    for name in ("offsets", "commits"):
        (directory / name).mkdir(exist_ok=True)
    if offsets is not None:
        (directory / "offsets" / str(batch)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{json.dumps(offsets)}')
    (directory / "commits" / str(batch)).write_text("v1\n{}")


def test_a_query_without_a_committed_batch_has_no_records(tmp_path: Path) -> None:
    assert CheckpointProgress(job(tmp_path), tmp_path / "checkpoint", emits_late=False).records() == 0


def test_only_committed_batches_count(tmp_path: Path) -> None:
    progress = CheckpointProgress(job(tmp_path), tmp_path, emits_late=False)
    commit(tmp_path, 9, {"in": {"0": 3, "1": 4}, "other": {"0": 100}})
    commit(tmp_path, 10, {"in": {"0": 5, "1": 6}})
    (tmp_path / "offsets" / "11").write_text('v1\n{}\n{"in":{"0":50,"1":60}}')
    (tmp_path / "commits" / ".11.crc").write_text("")
    assert progress.records() == 11
    assert progress.is_settled()


def test_a_query_that_waits_for_the_watermark_needs_a_batch_without_records(tmp_path: Path) -> None:
    progress = CheckpointProgress(job(tmp_path), tmp_path, emits_late=True)
    commit(tmp_path, 0, {"in": {"0": 3}})
    assert not progress.is_settled()
    commit(tmp_path, 1, {"in": {"0": 3}})
    assert progress.is_settled()


def test_kafka_streams_has_four_settings() -> None:
    assert [side.settings for side in candidates()] == ["100ms", "1000ms", "100ms-larger", "1000ms-larger"]
    assert all(LARGER.items() <= side.overrides.items() for side in candidates()[2:])


def test_penstock_is_given_its_topics_and_nothing_but_lanes(tmp_path: Path) -> None:
    command = Penstock().command(job(tmp_path))
    assert command[2:] == ["totals", "in,table", "out", "app", "localhost:1", str(tmp_path), "2"]


def test_only_the_first_setting_of_a_side_decides_what_it_can_run() -> None:
    for sides in SIDES.values():
        for workload in WORKLOADS.values():
            assert len({side.excuse(workload.topology) for side in sides}) == 1


@pytest.mark.parametrize("name", ["spark", "quix"])
def test_a_rival_that_cannot_join_by_foreign_key_says_why(name: str) -> None:
    assert SIDES[name][0].excuse("foreign-keys")


def test_real_time_mode_passes_records_on_with_a_core_for_each_partition(tmp_path: Path) -> None:
    [side] = SIDES["spark-real-time"]
    assert side.command(job(tmp_path, "passed-on"))[-2:] == ["4", "real-time"]
    assert side.excuse("passed-on") is None
    assert "without state only" in str(side.excuse("totals"))


def test_each_round_begins_with_another_side() -> None:
    assert [in_turn(["a", "b", "c"], number) for number in range(4)] == [
        ["a", "b", "c"],
        ["b", "c", "a"],
        ["c", "a", "b"],
        ["a", "b", "c"],
    ]
    assert in_turn([], 1) == []
