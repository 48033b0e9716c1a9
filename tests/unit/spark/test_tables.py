"""Stores as tables: the task that reads one can be pickled, and learns the committed epoch; names are quoted for SQL."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from penstock.engines import serving
from penstock.errors import NotReadyError, UnknownStoreError
from penstock.spark.lane_finders import LanesHere, LanesOnHosts, lanes_here
from penstock.spark.tables import StoreTables, quoted, reading_task
from penstock.state import memory_engine
from penstock.state.remote.protocol import Located
from tests.unit.epochs.application import Application, Raw
from tests.unit.epochs.served import ADDRESS, KEY, moved_to_hosts
from tests.unit.spark.without_java import broadcast_of


@pytest.fixture(autouse=True)
def _no_programs_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_programs", {})


class Session:
    """A session that only records its calls."""

    def range(self, *numbers: int) -> Session:
        return self

    def mapInArrow(self, task: Any, schema: Any) -> tuple[Any, Any]:
        return task, schema


def test_a_task_reads_what_is_committed_when_it_runs(tmp_path: Path) -> None:
    app = Application(tmp_path)
    app.start(2)
    broadcast = broadcast_of(app.running)
    session: Any = Session()
    tables = StoreTables(session, broadcast, app.running.specs, LanesHere(app.running, lambda: app.epoch))
    tables.after_commit()
    made: Any = tables.table("words")
    task, schema = made
    travelled = cloudpickle.loads(cloudpickle.dumps(task))
    assert [field.name for field in schema] == ["key", "value", "timestamp"]
    assert list(travelled(iter([]))) == []
    app.step([Raw(b"k", b"a", 5)])
    tables.after_commit()
    app.run([Raw(b"k", b"a", 7)])
    [batch] = travelled(iter([]))
    assert batch.to_pylist() == [{"key": "a", "value": 1, "timestamp": 5}]
    with pytest.raises(UnknownStoreError, match=r"Unknown store 'nope'\. Known stores: held-store, sessions, windows, words"):
        tables.table("nope")
    tables.close()
    tables.after_commit()


def test_a_task_before_the_first_commit_finds_nothing(tmp_path: Path) -> None:
    app = Application(tmp_path)
    app.start(1)
    note = tmp_path / "committed"
    note.write_bytes(b"\xff" * 8)
    broadcast = broadcast_of(app.running)
    assert list(reading_task(broadcast, "words", partial(lanes_here, note))(iter([]))) == []


def test_on_a_cluster_a_task_asks_the_driver_when_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.epochs.store_reader._PAUSE_S", 0)
    app = Application(tmp_path)
    app.start(3)
    app.step([Raw(b"k", b"a", 5)])
    app.send([Raw(b"k", b"a", 7)])
    program = replace(app.running, is_spread=True, server_key=KEY)
    told = [Located(-1, [])]
    session: Any = Session()
    finder = LanesOnHosts(ADDRESS, program, lambda: told[-1], memory_engine)
    tables = StoreTables(session, broadcast_of(program), program.specs, finder)
    tables.close()
    made: Any = tables.table("words")
    task, _ = cloudpickle.loads(cloudpickle.dumps(made))
    again: Any = tables.table("words")
    assert list(task(iter([]))) == []
    with moved_to_hosts(app.running) as servers:
        told.append(Located(app.epoch, servers))
        tables.after_commit()
        [batch] = task(iter([]))
        assert batch.to_pylist() == [{"key": "a", "value": 1, "timestamp": 5}]
        assert [each.to_pylist() for each in again[0](iter([]))] == [batch.to_pylist()]
        tables.close()
        with pytest.raises(NotReadyError, match="Retry"):
            list(task(iter([])))


def test_a_name_is_quoted() -> None:
    assert (quoted("by-second"), quoted("a`b")) == ("`by-second`", "`a``b`")
