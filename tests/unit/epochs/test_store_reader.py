"""A store as a table, as of the last barrier: what a task reads while epochs run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.epochs.committed_lanes import LocalLanes
from penstock.epochs.store_reader import read_store, schema_of
from penstock.errors import SerializationError, StateError
from penstock.state import EngineKind
from tests.unit.epochs.application import Application, Raw


def local(app: Application, committed: Callable[[], int]) -> LocalLanes:
    return LocalLanes(program=app.running, committed=committed)


def rows(app: Application, store: str, epoch: int | None = None) -> list[dict[str, Any]]:
    batches = list(read_store(app.running, store, local(app, lambda: app.epoch if epoch is None else epoch)))
    table = pa.Table.from_batches(batches, schema_of(app.running.specs[store]))
    return sorted(table.to_pylist(), key=str)


@pytest.mark.parametrize("engine", [EngineKind.LMDB, EngineKind.ROCKSDB])
def test_every_kind_of_store(tmp_path: Path, engine: EngineKind) -> None:
    app = Application(tmp_path, engine=engine)
    app.start(3)
    assert rows(app, "words") == []
    app.step([Raw(b"k", b"a b a", 1_100), Raw(b"m", b"b", 1_200)])
    app.run([Raw(b"k", b"never seen", 900_000)])
    assert rows(app, "words") == [
        {"key": "a", "value": 2, "timestamp": 1_100},
        {"key": "b", "value": 2, "timestamp": 1_200},
    ]
    window = {"key": "k", "window_start": 1_000, "window_end": 2_000, "value": 1, "timestamp": 1_100}
    assert rows(app, "windows") == [window, {**window, "key": "m", "timestamp": 1_200}]
    assert rows(app, "sessions")[0] == {"key": "k", "window_start": 1_100, "window_end": 1_100, "value": 1}


@pytest.mark.parametrize("engine", [EngineKind.LMDB, EngineKind.ROCKSDB])
def test_a_barrier_is_read_while_lanes_are_several_epochs_ahead(tmp_path: Path, engine: EngineKind) -> None:
    app = Application(tmp_path, engine=engine)
    app.start(3)
    app.step([Raw(b"k", b"a b", 0)])
    for number in (1, 2, 3):
        app.send([Raw(b"k", b"a", number)])
    for count in (1, 2, 3, 4):
        assert [row["value"] for row in rows(app, "words")] == [count, 1]
        if app.in_flight:
            app.commit_oldest()


def test_reading_is_retried_if_the_application_has_committed_meanwhile(tmp_path: Path) -> None:
    app = Application(tmp_path)
    app.start(2)
    for number in range(3):
        app.step([Raw(b"k", b"a", number)])
    told = iter([0, 0, 2])
    [batch] = read_store(app.running, "words", local(app, lambda: next(told)))
    assert batch.to_pylist() == [{"key": "a", "value": 3, "timestamp": 2}]


def test_an_old_epoch_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.epochs.store_reader._PAUSE_S", 0)
    app = Application(tmp_path)
    app.start(2)
    for number in range(3):
        app.step([Raw(b"k", b"a", number)])
    with pytest.raises(StateError, match="cannot be read as of epoch 0"):
        rows(app, "words", epoch=0)


def test_a_value_that_does_not_fit_its_column_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = Application(tmp_path)
    app.start(1)
    app.step([Raw(b"k", b"a", 1)])
    as_text = schema_of(app.running.specs["words"]).set(1, pa.field("value", pa.string()))
    monkeypatch.setattr("penstock.epochs.store_reader.schema_of", lambda spec: as_text)
    with pytest.raises(SerializationError, match="Store 'words': a value is not of type string"):
        list(read_store(app.running, "words", local(app, lambda: 0)))
