"""How long a user's processor lives, on every engine: as long as its lane stays in its process, and nothing is rolled back."""

from __future__ import annotations

import sys
import uuid
from collections import defaultdict
from collections.abc import Collection
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from penstock import Processor, PunctuationType, Record, StreamsBuilder, Topology, ValueTransformer, key_value_store
from penstock.epochs.shards import shard_of
from penstock.epochs.stays import end_stays
from penstock.errors import ProcessingError
from tests.unit.engines.comparing import Engines
from tests.unit.engines.driving import CUTS, Driven, InOneProcess, shown

cloudpickle.register_pickle_by_value(sys.modules[__name__])

ENDS = [{("in", part): end for part in range(3)} for end in (6, 12, 18, 24, 30)]
HOW = ("small", "large", "read")


class Numbered(Processor[str, str, str, str]):
    """Numbers records, in an attribute and in a store. A file says that it has begun, and not closed yet."""

    def __init__(self, open_in: Path) -> None:
        self._open_in = open_in

    def init(self, context: Any) -> None:
        super().init(context)
        self._store = context.store("numbers")
        self._mark = self._open_in / uuid.uuid4().hex
        self._mark.touch()
        self._count = 0

    def process(self, record: Record[str, str]) -> None:
        self._count += 1
        number = self._store["last"] = (self._store.get("last") or 0) + 1
        self.context.forward(record.with_value(f"{self._count} {number}"))

    def close(self) -> None:
        self._mark.unlink()


def numbered(open_in: Path, kind: type[Numbered] = Numbered) -> Topology:
    builder = StreamsBuilder(key=str, value=str)
    builder.add_state_store(key_value_store("numbers", key=str, value=int))
    builder.stream("in").process(partial(kind, open_in), stores=["numbers"], key=str, value=str).to("out")
    return builder.build()


def stepped(driven: Driven, ends: Any, how: str) -> pa.Table:
    """Run the next epoch in one of the ways that engines have, and commit it."""
    rows = driven.read(ends) if how == "read" else driven.run(ends, how == "small")
    driven.commit(rows, ends)
    return rows


def numbers(driven: Driven, tables: Collection[pa.Table]) -> dict[int, list[tuple[int, int]]]:
    """The numbers of each shard, in order: that of the attribute, and that of the store."""
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    out = driven.program.topics.index("out")
    for row in [row for table in tables for row in shown(table) if row["name"] == out]:
        attribute, store = map(int, row["value"].split())
        found[shard_of(row["key"], driven.program.shards)].append((attribute, store))
    return {shard: sorted(both, key=lambda pair: pair[1]) for shard, both in found.items()}


def begun_anew(found: dict[int, list[tuple[int, int]]]) -> set[int]:
    """How often a processor has begun anew in a shard."""
    return {sum(after[0] <= before[0] for before, after in pairwise(both)) for both in found.values()}


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("engine", "lanes"), [("one process", 2), ("one slot", 2), ("forked", 3), ("tasks", 2), ("hosts", 3)])
def test_attributes_live_as_long_as_the_lane_stays(engines: Engines, engine: str, lanes: int, how: str, tmp_path: Path) -> None:
    (open_in := tmp_path / "open").mkdir()
    driven = engines.driven(engine, lambda: numbered(open_in), lanes)
    found = numbers(driven, [stepped(driven, ends, how) for ends in ENDS])
    assert len(found) > 2
    assert all(attribute == store for both in found.values() for attribute, store in both)
    assert len(list(open_in.iterdir())) == len(found)  # each has begun once
    driven.engine.close()
    if engine != "one process":
        assert list(open_in.iterdir()) == []


@pytest.mark.parametrize("engine", ["one process", "forked", "hosts"])
def test_attributes_of_an_epoch_that_is_rolled_back_are_forgotten(engines: Engines, engine: str, tmp_path: Path) -> None:
    (open_in := tmp_path / "open").mkdir()
    driven = engines.driven(engine, lambda: numbered(open_in), 2)
    before = [stepped(driven, ENDS[0], "large")]
    driven.run(ENDS[1])  # and is not committed
    driven.roll_back()
    after = [stepped(driven, ends, "large") for ends in ENDS[1:]]
    assert begun_anew(numbers(driven, before + after)) == {1}
    for both in numbers(driven, after).values():
        assert [attribute for attribute, _ in both] == list(range(1, len(both) + 1))
    assert len(list(open_in.iterdir())) <= 8


@pytest.mark.parametrize("engine", ["one process", "forked", "hosts"])
def test_attributes_of_an_attempt_are_forgotten_if_the_epoch_runs_again(engines: Engines, engine: str, tmp_path: Path) -> None:
    """As after an attempt that was given up because its rows were too many."""
    (open_in := tmp_path / "open").mkdir()
    driven = engines.driven(engine, lambda: numbered(open_in), 2)
    before = [stepped(driven, ENDS[0], "large")]
    driven.run(ENDS[2])
    after = [stepped(driven, ends, "large") for ends in ENDS[1:]]
    assert begun_anew(numbers(driven, before + after)) == {1}


class Picky(Numbered):
    """Fails once at a value, after it has counted it."""

    def process(self, record: Record[str, str]) -> None:
        super().process(record)
        failed = self._open_in.parent / "failed"
        if self._count == 3 and not failed.exists():
            failed.touch()
            raise ValueError("once")


@pytest.mark.parametrize("engine", ["one process", "forked"])
def test_attributes_of_an_attempt_that_has_failed_are_forgotten(engines: Engines, engine: str, tmp_path: Path) -> None:
    (open_in := tmp_path / "open").mkdir()
    driven = engines.driven(engine, lambda: numbered(open_in, Picky), 1)
    with pytest.raises(ProcessingError, match="once"):
        driven.run(ENDS[0])
    assert list(open_in.iterdir()) == []
    found = numbers(driven, [stepped(driven, ends, "large") for ends in ENDS])
    assert all(attribute == store for both in found.values() for attribute, store in both)


def test_a_lane_that_was_elsewhere_begins_anew(engines: Engines, tmp_path: Path) -> None:
    (open_in := tmp_path / "open").mkdir()
    driven = engines.driven("forked", lambda: numbered(open_in), 2)
    slots, here = driven.engine, InOneProcess(driven.program)
    tables = []
    for ends, engine in zip(ENDS, (slots, here, here, slots, slots), strict=True):
        driven.engine = engine
        tables.append(stepped(driven, ends, "large"))
    assert begun_anew(numbers(driven, tables)) == {2}
    end_stays(driven.program)
    assert len(list(open_in.iterdir())) == len(numbers(driven, tables))
    slots.close()
    assert list(open_in.iterdir()) == []


class Late(Processor[str, str, str, str]):
    """Schedules when the first record comes, in the shard's own time and by the wall clock."""

    def init(self, context: Any) -> None:
        super().init(context)
        self._is_scheduled = False

    def process(self, record: Record[str, str]) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self.context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, self._fire)
            self._once = self.context.schedule("1s", PunctuationType.WALL_CLOCK_TIME, self._fire_once)

    def _fire(self, now: int) -> None:
        self.context.forward(Record("late", "fired", now))

    def _fire_once(self, now: int) -> None:
        self.context.forward(Record("late", "once", now))
        self._once.cancel()


def late() -> Topology:
    builder = StreamsBuilder(key=str, value=str)
    builder.stream("in").process(Late, key=str, value=str).to("out")
    return builder.build()


def fired(table: pa.Table, driven: Driven) -> tuple[int, int]:
    values = [row["value"] for row in shown(table) if row["name"] == driven.program.topics.index("out")]
    return values.count(b"fired"), values.count(b"once")


@pytest.mark.parametrize("engine", ["one process", "one slot", "forked", "tasks", "hosts"])
def test_what_is_scheduled_late_is_called_as_long_as_the_lane_stays(engines: Engines, engine: str) -> None:
    driven = engines.driven(engine, late, 2)
    counts = [fired(driven.step(ends), driven) for ends in [CUTS[-1]] * 4]
    shards = counts[1][0]
    assert shards > 2
    assert counts == [(0, 0), (shards, shards), (shards, 0), (shards, 0)]
    assert driven.run(CUTS[-1]).num_rows  # the next one, which is rolled back: what was scheduled is gone, as after a restart
    driven.roll_back()
    assert fired(driven.step(CUTS[-1]), driven) == (0, 0)


class Joining(ValueTransformer[str, str, str]):
    """Numbers values."""

    def init(self, context: Any) -> None:
        super().init(context)
        self._count = 0

    def transform(self, key: str, value: str) -> str:
        self._count += 1
        return str(self._count)


def transformed() -> Topology:
    builder = StreamsBuilder(key=str, value=str)
    builder.table("in").transform_values(Joining, value=str).to_stream().to("out")
    return builder.build()


@pytest.mark.parametrize("engine", ["one process", "forked"])
def test_a_transformer_lives_as_long(engines: Engines, engine: str) -> None:
    driven = engines.driven(engine, transformed, 2)
    tables = [driven.step(ends) for ends in ENDS]
    found: dict[int, list[int]] = defaultdict(list)
    for row in [row for table in tables for row in shown(table) if row["name"] == driven.program.topics.index("out")]:
        found[shard_of(row["key"], driven.program.shards)].append(int(row["value"]))
    assert all(sorted(values) == list(range(1, len(values) + 1)) for values in found.values())


def scattered(open_in: Path) -> Topology:
    """A processor of two stages, because it gets records from topics and from an exchange."""
    builder = StreamsBuilder(key=str, value=str)
    builder.add_state_store(key_value_store("numbers", key=str, value=int))
    words = builder.stream("in")
    merged = words.merge(words.group_by(lambda key, value: value).count().to_stream().map_values(str, value=str))
    merged.process(partial(Numbered, open_in), stores=["numbers"], key=str, value=str).to("out")
    return builder.build()


@pytest.mark.parametrize("engine", ["one process", "forked"])
def test_a_processor_of_several_stages_is_one(engines: Engines, engine: str, tmp_path: Path) -> None:
    (open_in := tmp_path / "open").mkdir()
    driven = engines.driven(engine, lambda: scattered(open_in), 2)
    stages = [stage.nodes for stage in driven.program.plan.stages]
    assert sum(any(name.startswith("KSTREAM-PROCESSOR") for name in nodes) for nodes in stages) == 2
    found = numbers(driven, [stepped(driven, ends, "large") for ends in ENDS])
    assert all(attribute == store for both in found.values() for attribute, store in both)
    assert len(list(open_in.iterdir())) == len(found)
