"""Spark's own work beside the lanes: its tables show what the driver has committed, wherever lanes are; without Spark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.engines import serving
from penstock.runtime.hosting import spark_work as module
from penstock.runtime.hosting.spark_work import SparkWork
from penstock.spark.sql import GuardedSql
from penstock.state import memory_engine
from penstock.state.remote.protocol import Located
from tests.unit.epochs.application import program_of
from tests.unit.runtime.noting import counting
from tests.unit.spark.without_java import broadcast_of


@pytest.fixture
def spark() -> Any:
    """A Spark whose session runs the tasks of tables here; it notes what is broadcast."""
    broadcasts: list[Any] = []

    def broadcast(value: bytes) -> Any:
        broadcasts.append(value)
        return SimpleNamespace(value=value)

    context = SimpleNamespace(getConf=dict, broadcast=broadcast)
    frame = SimpleNamespace(mapInArrow=lambda task, schema: task)
    return SimpleNamespace(session=SimpleNamespace(sparkContext=context, range=lambda *bounds: frame), broadcasts=broadcasts)


@pytest.mark.parametrize("is_spread", [False, True])
def test_stores_are_tables_of_what_the_driver_has_committed(
    spark: Any, is_spread: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_programs", {})
    program = replace(program_of(counting(), 2), directory=str(tmp_path), server_key=b"k" * 32)
    (tmp_path / program.application_id).mkdir()
    asked: list[int] = []

    def located(epoch: int) -> Located:
        asked.append(epoch)
        return Located(epoch, [])

    work = SparkWork(spark, program, lambda: None, located if is_spread else None)
    state: Any = SimpleNamespace(epoch=-1, specs=program.specs, globals=memory_engine)
    work.query(state)
    work.after_commit(-1)
    assert spark.broadcasts == []  # nobody has asked for a table yet
    read: Any = work.tables.table("counts")
    work.after_commit(-1)
    assert list(read(iter([]))) == []
    assert asked == ([-1] if is_spread else [])
    assert len(spark.broadcasts) == 1
    assert serving.loaded(spark.broadcasts[0]).application_id == program.application_id
    work.close()


def test_the_program_is_broadcast_as_slots_get_it() -> None:
    program = program_of(counting(), 2)
    assert serving.loaded(broadcast_of(program).value).incarnation == program.incarnation


def test_rows_are_read_in_order_or_in_any(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(module, "ordered_rows", lambda *arguments: asked.append(arguments))
    monkeypatch.setattr(module, "all_rows", lambda *arguments: asked.append(arguments))
    work, read = SparkWork(spark, program_of(counting()), lambda: None, None), repr
    unread: Any = read
    work.rows(unread, ["id"], 7)
    work.rows_in_any_order(unread)
    assert asked == [(spark.session, read, ["id"], 7), (spark.session, read)]


def test_sql_is_guarded_and_what_was_not_used_needs_no_end(spark: Any, tmp_path: Path) -> None:
    program = replace(program_of(counting()), directory=str(tmp_path))
    work = SparkWork(spark, program, lambda: None, None)
    work.close()
    state: Any = SimpleNamespace(epoch=-1, specs=program.specs, globals=memory_engine)
    work.query(state)
    (tmp_path / program.application_id).mkdir()
    assert isinstance(work.sql, GuardedSql)
    work.close()
