"""Lanes restored by worker processes: with progress, and once more without the local store if that has killed the worker."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from penstock.epochs.restore import ChangelogRows, ReadChangelog, Restored
from penstock.errors import TopicError
from penstock.workers.jobs import WorkerJobs
from penstock.workers.pool import WorkerLostError, WorkerPool
from tests.unit.epochs.application import Application, Place, some_records
from tests.unit.workers.programs import nothing

RECORDS = some_records(seed=7, count=100)


@pytest.fixture
def app(tmp_path: Path) -> Application:
    """Two lanes, four epochs, a mark in the third; the lanes are one epoch behind."""
    application = Application(tmp_path / "state")
    application.start(2)
    application.step(RECORDS[:25])
    application.step(RECORDS[25:50])
    application.note_mark()
    application.step(RECORDS[50:75])
    lanes = application.lane_directory(0).parent
    shutil.copytree(lanes, tmp_path / "earlier")
    application.step(RECORDS[75:])
    shutil.rmtree(lanes)
    (tmp_path / "earlier").rename(lanes)
    return application


@pytest.fixture
def jobs(app: Application) -> Iterator[WorkerJobs]:
    """The jobs of a new start."""
    program = app.take_over(2)
    pool = WorkerPool(program, nothing, 2, lambda line: None)
    pool.start()
    yield WorkerJobs(pool, program, lambda ranges: [], 60)
    pool.close()


def dying_reader(app: Application, died: Path, is_always: bool = False) -> ReadChangelog:
    """Reads changelogs, but kills its process on the way if it reads for the first lane: the first time, or always."""
    topics = app.topics

    def read(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[ChangelogRows]:
        is_of_first_lane = any(shard == 0 for _, shard in positions)
        for number, rows in enumerate(topics.read(positions, ends)):
            if number == 1 and is_of_first_lane and (is_always or not died.exists()):
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield rows

    return read


def found(restored: list[Restored]) -> list[tuple[int, str]]:
    return [(lane.lane, lane.found) for lane in restored]


def ignore(left: Mapping[int, int]) -> None:
    """Do nothing with the progress."""


def test_all_lanes_are_restored_and_their_progress_is_reported(app: Application, jobs: WorkerJobs) -> None:
    seen: list[dict[int, int]] = []
    restored = jobs.restore(app.committed(), app.topics.read, lambda left: seen.append(dict(left)))
    assert found(restored) == [(0, "behind"), (1, "behind")]
    assert all(lane.rows > 0 for lane in restored)
    app.check()
    assert seen[-1] == {0: 0, 1: 0}
    for lane in range(2):
        left = [each[lane] for each in seen if lane in each]
        assert left == sorted(left, reverse=True)
        assert left[0] > 10


def test_a_lane_whose_worker_dies_is_rebuilt_without_its_store(app: Application, jobs: WorkerJobs, tmp_path: Path) -> None:
    restored = jobs.restore(app.committed(), dying_reader(app, tmp_path / "died"), ignore)
    assert (tmp_path / "died").exists()
    assert found(restored) == [(0, "rebuilt"), (1, "behind")]
    app.check()


def test_what_cannot_be_restored_is_an_error_in_the_driver(app: Application, jobs: WorkerJobs, tmp_path: Path) -> None:
    def lost(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[ChangelogRows]:
        raise TopicError("The changelog is gone.")

    with pytest.raises(TopicError, match=r"^The changelog is gone\.$"):
        jobs.restore(app.committed(), lost, ignore)
    with pytest.raises(WorkerLostError, match="A worker process has ended unexpectedly"):
        jobs.restore(app.committed(), dying_reader(app, tmp_path / "died", is_always=True), ignore)
    jobs.restore(app.committed(), app.topics.read, ignore)
    app.check()
