"""Global tables follow their topics, from where they have read to, however often the application starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamsBuilder, Topology, log_and_continue
from penstock.epochs.home import Home, open_globals
from penstock.epochs.program import Program
from penstock.errors import ProcessingError
from penstock.handlers import ErrorHandlers
from penstock.records import Headers
from penstock.running.global_tables import GlobalTables
from penstock.state import LaneState
from tests.unit.epochs.application import program_of

Partition = tuple[str, int]
Value = bytes | None


class Kafka:
    """Topics as lists, and what was read of them."""

    def __init__(self) -> None:
        self.logs: dict[Partition, list[tuple[Value, Value, int]]] = {("names", 0): [], ("names", 1): []}
        self.begins: dict[Partition, int] = {}
        self.asked: list[list[Partition]] = []
        self.read_from: list[Mapping[Partition, int]] = []

    def begin_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {partition: self.begins.get(partition, 0) for partition in partitions}

    def end_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        self.asked.append(list(partitions))
        return {partition: len(self.logs[partition]) for partition in self.asked[-1]}

    def read(
        self, positions: Mapping[Partition, int], ends: Mapping[Partition, int]
    ) -> Iterator[tuple[str, int, int, Value, Value, int, Headers]]:
        self.read_from.append(dict(positions))
        for (topic, partition), position in positions.items():
            for offset in range(position, ends[topic, partition]):
                yield topic, partition, offset, *self.logs[topic, partition][offset], ()

    def put(self, key: str, value: int | None, partition: int = 0) -> None:
        self.logs["names", partition].append((key.encode(), None if value is None else value.to_bytes(8, "big"), 5))


def topology(store: str = "names") -> Topology:
    builder = StreamsBuilder()
    names = builder.global_table("names", value=int, store=store)
    builder.stream("in", value=str).join(names, lambda left, right: right, on=lambda key, value: value).to("out", value=int)
    return builder.build()


@pytest.fixture
def program(tmp_path: Path) -> Program:
    made = program_of(topology(), directory=str(tmp_path))
    Home(made.directory, made.application_id).take_over(made.incarnation)
    return made


def tables_of(program: Program, kafka: Kafka, **options: Any) -> GlobalTables:
    return GlobalTables(program, kafka.logs, kafka.begin_offsets, kafka.end_offsets, kafka.read, **options)


def content(program: Program, tables: GlobalTables) -> dict[str, int]:
    """As lanes see them, which are other processes: the files can be open once in this one."""
    tables.close()
    with open_globals(program) as state:
        assert state is not None
        return dict(state.store(program.specs["names"]).all())


def test_they_have_what_their_topics_have(program: Program) -> None:
    kafka = Kafka()
    tables = tables_of(program, kafka, every_s=0)
    tables.refresh(at_once=True)
    assert content(program, tables) == {}
    kafka.put("a", 1)
    kafka.put("b", 2, partition=1)
    tables.refresh()
    assert content(program, tables) == {"a": 1, "b": 2}
    kafka.put("a", None)
    kafka.put("b", 3, partition=1)
    tables.refresh()
    assert content(program, tables) == {"b": 3}


def test_they_go_on_from_where_they_have_read_to_also_after_a_restart(program: Program) -> None:
    kafka = Kafka()
    kafka.put("a", 1)
    tables = tables_of(program, kafka)
    tables.refresh(at_once=True)
    tables.close()
    kafka.put("b", 2)
    tables = tables_of(program, kafka)
    tables.refresh(at_once=True)
    assert kafka.read_from == [{("names", 0): 0, ("names", 1): 0}, {("names", 0): 1, ("names", 1): 0}]
    assert content(program, tables) == {"a": 1, "b": 2}


def test_one_with_another_name_has_all_of_its_topic_too(program: Program) -> None:
    kafka = Kafka()
    kafka.put("a", 1)
    before = tables_of(program, kafka)
    before.refresh(at_once=True)
    before.close()
    renamed = program_of(topology("other"), directory=program.directory)
    tables = tables_of(renamed, kafka)
    tables.refresh(at_once=True)
    tables.close()
    with open_globals(renamed) as state:
        assert state is not None
        assert dict(state.store(renamed.specs["other"]).all()) == {"a": 1}


def test_a_topic_is_read_from_where_it_begins(program: Program) -> None:
    kafka = Kafka()
    kafka.put("gone", 0)
    kafka.put("a", 1)
    kafka.begins["names", 0] = 1
    tables = tables_of(program, kafka)
    tables.refresh(at_once=True)
    assert content(program, tables) == {"a": 1}


def test_nothing_is_written_while_nothing_comes(program: Program) -> None:
    kafka = Kafka()
    kafka.put("a", 1)
    tables = tables_of(program, kafka, every_s=0)
    tables.refresh()
    tables.refresh()
    assert len(kafka.read_from) == 1


def test_topics_are_not_asked_more_often_than_a_lane_could_notice(program: Program) -> None:
    kafka = Kafka()
    tables = tables_of(program, kafka, every_s=60)
    tables.refresh(at_once=True)
    tables.refresh()
    tables.refresh()
    assert len(kafka.asked) == 1
    tables.refresh(at_once=True)
    assert len(kafka.asked) == 2


def test_without_global_tables_nobody_is_asked(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    kafka = Kafka()
    nothing = program_of(builder.build(), directory=str(tmp_path))
    GlobalTables(nothing, [], kafka.begin_offsets, kafka.end_offsets, kafka.read).refresh(at_once=True)
    assert not kafka.asked
    assert not Home(str(tmp_path), "app").global_directory.exists()


def test_a_record_that_cannot_be_read_is_the_handlers_business(tmp_path: Path) -> None:
    kafka = Kafka()
    kafka.put("a", 1)
    kafka.logs["names", 0].append((b"b", b"bad", 5))
    kafka.put("c", 3)
    strict = program_of(topology(), directory=str(tmp_path / "strict"))
    Home(strict.directory, "app").take_over("one")
    with pytest.raises(ProcessingError, match="cannot read the record from names-0 at offset 1"):
        tables_of(strict, kafka).refresh(at_once=True)
    handlers = ErrorHandlers(deserialization=log_and_continue())
    lenient = program_of(topology(), directory=str(tmp_path / "lenient"), handlers=handlers)
    Home(lenient.directory, "app").take_over("one")
    tables = tables_of(lenient, kafka)
    tables.refresh(at_once=True)
    assert content(lenient, tables) == {"a": 1, "c": 3}


def test_a_refresh_that_fails_changes_nothing_and_is_read_again(program: Program) -> None:
    kafka = Kafka()
    kafka.put("a", 1)
    tables = tables_of(program, kafka, every_s=0)
    tables.refresh()
    kafka.put("a", 2)
    kafka.logs["names", 0].append((b"b", b"bad", 5))
    with pytest.raises(ProcessingError):
        tables.refresh()
    assert content(program, tables) == {"a": 1}
    kafka.logs["names", 0][2] = (b"b", (3).to_bytes(8, "big"), 5)
    tables.refresh()
    assert content(program, tables) == {"a": 2, "b": 3}


def test_a_snapshot_stays_as_it_was_while_its_tables_go_on(program: Program) -> None:
    kafka = Kafka()
    tables = tables_of(program, kafka, every_s=0)
    assert LaneState(tables.snapshot()).epoch == -1
    kafka.put("a", 1)
    tables.refresh()
    before = tables.snapshot()
    kafka.put("a", 2)
    kafka.put("b", 3)
    tables.refresh()
    after = tables.snapshot()
    seen = [dict(LaneState(engine).store(program.specs["names"]).all()) for engine in (before, after)]
    assert seen == [{"a": 1}, {"a": 2, "b": 3}]
    before.close()
    after.close()
    tables.close()
