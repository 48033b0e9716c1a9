"""Stores as tables: the task that reads one can be pickled, and learns the committed epoch; names are quoted for SQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from penstock.errors import UnknownStoreError
from penstock.spark import tasks
from penstock.spark.tables import StoreTables, quoted, reading_task
from tests.unit.epochs.application import Application, Raw
from tests.unit.spark.test_tasks import broadcast_of


@pytest.fixture(autouse=True)
def _no_programs_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "_programs", {})


class Session:
    """A session that only records its calls."""

    def range(self, *numbers: int) -> Session:
        return self

    def mapInArrow(self, task: Any, schema: Any) -> tuple[Any, Any]:  # noqa: N802 - Spark's name
        return task, schema


def test_a_task_reads_what_is_committed_when_it_runs(tmp_path: Path) -> None:
    app = Application(tmp_path)
    app.start(2)
    broadcast = broadcast_of(app.running)
    session: Any = Session()
    tables = StoreTables(session, broadcast, app.running, app.running.specs, lambda: app.epoch)
    tables.after_commit(-1)
    made: Any = tables.table("words")
    task, schema = made
    travelled = cloudpickle.loads(cloudpickle.dumps(task))
    assert [field.name for field in schema] == ["key", "value", "timestamp"]
    assert list(travelled(iter([]))) == []
    app.step([Raw(b"k", b"a", 5)])
    tables.after_commit(0)
    app.run([Raw(b"k", b"a", 7)])
    [batch] = travelled(iter([]))
    assert batch.to_pylist() == [{"key": "a", "value": 1, "timestamp": 5}]
    with pytest.raises(UnknownStoreError, match=r"Unknown store 'nope'\. Known stores: held-store, sessions, windows, words"):
        tables.table("nope")
    tables.close()
    tables.after_commit(1)


def test_a_task_before_the_first_commit_finds_nothing(tmp_path: Path) -> None:
    app = Application(tmp_path)
    app.start(1)
    note = tmp_path / "committed"
    note.write_bytes(b"\xff" * 8)
    broadcast = broadcast_of(app.running)
    assert list(reading_task(broadcast, "words", note)(iter([]))) == []


def test_a_name_is_quoted() -> None:
    assert (quoted("by-second"), quoted("a`b")) == ("`by-second`", "`a``b`")
