"""Lanes restored by forked slots: with progress, and once more without the local store if that has killed the slot."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock.advance import advanced
from penstock.engines import carrier
from penstock.engines.forked.slots import ForkedSlots
from penstock.engines.one_host import OneHost
from penstock.engines.port import SlotLostError
from penstock.epochs.program import Program
from penstock.epochs.restore import ReadChangelog, Restored
from penstock.errors import StateError, TopicError
from penstock.observation import Recorder
from penstock.records import ChangelogRows
from penstock.runtime.hosting.lane_restore import LaneRestore
from tests.unit.engines.driving import ignore
from tests.unit.engines.lending import LentSlots
from tests.unit.epochs.application import Application, Place, some_records

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
def program(app: Application) -> Program:
    """That of a new start."""
    return app.take_over(2)


@pytest.fixture
def engine(program: Program, forked: list[ForkedSlots]) -> OneHost:
    lent: Any = LentSlots(forked[1], program)
    return OneHost(program, lent, 60, "local", "forked processes")


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


def found(restored: Sequence[Restored]) -> list[tuple[int, str]]:
    return [(lane.lane, lane.found) for lane in restored]


def test_all_lanes_are_restored_and_their_progress_is_reported(app: Application, engine: OneHost) -> None:
    seen: list[tuple[int, str, int | None]] = []
    restored = engine.place(app.committed(), app.topics.read, lambda *found: seen.append(found))
    assert found(restored) == [(0, "behind"), (1, "behind")]
    assert all(lane.rows > 0 for lane in restored)
    app.check()
    for lane in range(2):
        assert [where for number, where, _ in seen if number == lane][-1] == ""
        left = [left for number, _, left in seen if number == lane and left is not None]
        assert left[-1] == 0
        assert left == sorted(left, reverse=True)
        assert left[0] > 10


def test_a_lost_slot_names_its_lane_whose_store_is_not_used_again(app: Application, engine: OneHost, tmp_path: Path) -> None:
    read = dying_reader(app, tmp_path / "died")
    with pytest.raises(SlotLostError, match="A slot on this host has ended unexpectedly") as error:
        engine.place(app.committed(), read, ignore)
    assert error.value.lanes == {0}
    restored = engine.place(app.committed(), read, ignore, error.value.lanes)
    assert found(restored) == [(0, "rebuilt"), (1, "behind")]
    assert restored[0].rows > restored[1].rows == 0  # the other lane was restored by the first attempt
    app.check()


def test_a_start_survives_a_lane_whose_store_kills_its_slot(
    app: Application, program: Program, engine: OneHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    none: Any = None
    read = dying_reader(app, tmp_path / "died")
    LaneRestore(program, engine, none, none, read, none, Recorder()).run(app.committed())
    assert (tmp_path / "died").exists()
    assert "restoring lanes once more: A slot on this host has ended unexpectedly" in caplog.text
    app.check()


def test_what_cannot_be_restored_is_an_error_in_the_driver(
    app: Application, program: Program, engine: OneHost, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def lost(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[ChangelogRows]:
        raise TopicError("The changelog is gone.")

    with pytest.raises(TopicError, match=r"^The changelog is gone\.$"):
        engine.place(app.committed(), lost, ignore)
    none: Any = None
    always = dying_reader(app, tmp_path / "died", is_always=True)
    with pytest.raises(StateError, match=r"not restored in 3 attempts\..* A slot on this host has ended unexpectedly"):
        LaneRestore(program, engine, none, none, always, none, Recorder()).run(app.committed())
    assert caplog.text.count("restoring lanes once more") == 2
    engine.place(app.committed(), app.topics.read, ignore)
    app.check()


def stuck_reader(app: Application, where: str, is_always: bool) -> ReadChangelog:
    """Reads changelogs of the first lane from a place that does not answer any more; the second time, it may."""
    topics, once = app.topics, app.lane_directory(0).parent.parent / "stuck"

    def read(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[ChangelogRows]:
        for rows in topics.read(positions, ends):
            if any(shard == 0 for _, shard in positions) and (is_always or not once.exists()):
                once.touch()
                advanced(where)
                time.sleep(3_600)
            yield rows

    return read


@pytest.fixture
def _impatient(monkeypatch: pytest.MonkeyPatch, engine: OneHost) -> None:
    monkeypatch.setattr(carrier, "_SILENT_S", 2.0)
    monkeypatch.setattr(engine._carrier, "_patience_s", 2.0)


@pytest.mark.usefixtures("_impatient")
def test_a_restore_that_stands_still_ends_with_an_error_that_says_where(
    app: Application, program: Program, engine: OneHost, caplog: pytest.LogCaptureFixture
) -> None:
    none: Any = None
    read = stuck_reader(app, "reading app-totals-changelog-0 at offset 11", is_always=True)
    recorder = Recorder()
    with pytest.raises(StateError) as error:
        LaneRestore(program, engine, none, none, read, none, recorder).run(app.committed())
    said = (
        "The restore of lane 0 on this host has not advanced for 2 s, reading app-totals-changelog-0 at offset 11. Check the disk"
    )
    assert said in str(error.value)
    assert "Start again" in str(error.value)
    assert caplog.text.count("restoring lanes once more") == 2
    assert (recorder.restores.is_under_way, recorder.restores.left) == (False, {})


@pytest.mark.usefixtures("_impatient")
def test_one_that_stands_still_once_is_restored_in_another_process(app: Application, program: Program, engine: OneHost) -> None:
    none: Any = None
    LaneRestore(program, engine, none, none, stuck_reader(app, "here", is_always=False), none, Recorder()).run(app.committed())
    app.check()
