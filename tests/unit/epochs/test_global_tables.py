"""Global tables follow their topics and continue where they stopped, however often the application starts."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import Processor, Record, StreamsBuilder, Topology, dead_letter, key_value_store, log_and_continue, machine
from penstock.epochs import global_tables
from penstock.epochs.global_tables import GlobalTables, bring_globals_to
from penstock.epochs.program import Program
from penstock.epochs.state_directory import StateDirectory, open_globals
from penstock.epochs.wire import Kind, decode_control
from penstock.errors import ProcessingError, StateError, TopicError
from penstock.handlers import ErrorHandlers
from penstock.records import Headers
from penstock.runtime.loop.feedback import Feedback
from penstock.state import FORMAT, LaneState
from tests.unit.epochs.application import program_of

Partition = tuple[str, int]
Value = bytes | None


class Kafka:
    """Topics as lists, and what was read of them."""

    def __init__(self) -> None:
        self.logs: dict[Partition, list[tuple[Value, Value, int]]] = {("names", 0): [], ("names", 1): []}
        self.begins: dict[Partition, int] = {}
        self.compacted: set[int] = set()
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
                if offset not in self.compacted:
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
    StateDirectory(made.directory, made.application_id).take_over(made.incarnation)
    return made


def tables_of(program: Program, kafka: Kafka, **options: Any) -> GlobalTables:
    return GlobalTables(program, kafka.logs, kafka.begin_offsets, kafka.end_offsets, kafka.read, **options)


def content(program: Program, tables: GlobalTables) -> dict[str, int]:
    """The tables as lanes see them, in another process: this one can open the files only once."""
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


def test_they_continue_where_they_stopped_even_after_a_restart(program: Program) -> None:
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


def test_nothing_is_written_without_new_records(program: Program) -> None:
    kafka = Kafka()
    kafka.put("a", 1)
    tables = tables_of(program, kafka, every_s=0)
    tables.refresh()
    tables.refresh()
    assert len(kafka.read_from) == 1


class Counted(Processor[str, int, None, None]):
    def process(self, record: Record[str, int]) -> None:
        self.context.metrics.counter("names", "Names.").inc()
        self.context.store("names")[record.key] = record.value


def test_what_the_processor_of_a_global_store_counts_goes_with_the_next_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(global_tables, "CHUNK_RECORDS", 2)
    builder = StreamsBuilder()
    builder.add_global_store(key_value_store("names", value=int), "names", Counted, value=int)
    builder.stream("in").to("out")
    program = program_of(builder.build(), directory=str(tmp_path))
    StateDirectory(program.directory, program.application_id).take_over(program.incarnation)
    kafka = Kafka()
    for number in range(5):
        kafka.put(f"n{number}", number)
    tables = tables_of(program, kafka, every_s=0)
    counts = []
    for _ in range(3):
        tables.refresh()
        counts.append([numbers for report in Feedback.found_in(tables.take_rows()).metrics for _, _, numbers in report.series])
        if len(counts) == 1:
            kafka.put("more", 1)
    assert counts == [[[5]], [[1]], []]
    tables.close()


def test_topics_are_not_read_too_often(program: Program) -> None:
    kafka = Kafka()
    tables = tables_of(program, kafka, every_s=60)
    tables.refresh(at_once=True)
    tables.refresh()
    tables.refresh()
    assert len(kafka.asked) == 1
    tables.refresh(at_once=True)
    assert len(kafka.asked) == 2


def test_without_global_tables_no_request_is_sent(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    kafka = Kafka()
    nothing = program_of(builder.build(), directory=str(tmp_path))
    GlobalTables(nothing, [], kafka.begin_offsets, kafka.end_offsets, kafka.read).refresh(at_once=True)
    assert not kafka.asked
    assert not StateDirectory(str(tmp_path), "app").global_directory.exists()


def test_the_handler_decides_about_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    kafka = Kafka()
    kafka.put("a", 1)
    kafka.logs["names", 0].append((b"b", b"bad", 5))
    kafka.put("c", 3)
    strict = program_of(topology(), directory=str(tmp_path / "strict"))
    StateDirectory(strict.directory, "app").take_over("one")
    with pytest.raises(ProcessingError, match="cannot read the record from names-0 at offset 1"):
        tables_of(strict, kafka).refresh(at_once=True)
    handlers = ErrorHandlers(deserialization=log_and_continue())
    lenient = program_of(topology(), directory=str(tmp_path / "lenient"), handlers=handlers)
    StateDirectory(lenient.directory, "app").take_over("one")
    tables = tables_of(lenient, kafka)
    tables.refresh(at_once=True)
    assert content(lenient, tables) == {"a": 1, "c": 3}


def test_a_failed_refresh_changes_nothing_and_is_repeated(program: Program) -> None:
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


def test_a_snapshot_does_not_change_with_its_tables(program: Program) -> None:
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


class Clock(machine.ThisMachine):
    """The wall clock and the monotonic clock, moved by hand; replaces the module `time`."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(machine._Current, "machine", clock)
    return clock


HOUR_MS = 3_600_000


class TestRebuilding:
    """A table that may have missed records of its topic is read from the topic's beginning."""

    @pytest.fixture
    def loaded(self, program: Program, clock: Clock) -> Kafka:
        """A topic of five keys that were read before the application went down."""
        kafka = Kafka()
        for number in range(5):
            kafka.put(f"old{number}", number)
        tables = tables_of(program, kafka, identity="one", tombstones_ms=24 * HOUR_MS)
        tables.refresh(at_once=True)
        tables.close()
        return kafka

    def read_again(self, program: Program, kafka: Kafka, identity: str = "one") -> dict[str, int]:
        tables = tables_of(program, kafka, identity=identity, tombstones_ms=24 * HOUR_MS)
        tables.refresh(at_once=True)
        return content(program, tables)

    @pytest.mark.parametrize("count", [2, 5, 7])
    def test_a_topic_that_was_recreated(self, program: Program, loaded: Kafka, count: int) -> None:
        anew = Kafka()
        for number in range(count):
            anew.put(f"new{number}", number)
        assert self.read_again(program, anew, identity="two") == {f"new{number}": number for number in range(count)}

    def test_a_store_that_a_version_with_another_format_has_written(
        self, program: Program, loaded: Kafka, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        remains = StateDirectory(program.directory, program.application_id).global_directory / "remains"
        remains.touch()
        monkeypatch.setattr(global_tables, "FORMAT", FORMAT + 1)
        assert self.read_again(program, loaded) == {f"old{number}": number for number in range(5)}
        assert not remains.exists()

    def test_a_topic_that_ends_before_what_was_read_of_it(self, program: Program, loaded: Kafka) -> None:
        """An older broker may have no topic ids."""
        del loaded.logs["names", 0][2:]
        assert self.read_again(program, loaded) == {"old0": 0, "old1": 1}

    def test_a_topic_that_begins_after_what_was_read_of_it(self, program: Program, loaded: Kafka) -> None:
        for number in range(3):
            loaded.put(f"unseen{number}", number)
        loaded.begins["names", 0] = 6
        assert self.read_again(program, loaded) == {"unseen1": 1, "unseen2": 2}

    def test_a_tombstone_that_expired_while_the_application_was_down(self, program: Program, loaded: Kafka, clock: Clock) -> None:
        loaded.put("old1", None)
        loaded.put("x", 9)
        loaded.compacted = {1, 5}
        clock.now += 25 * 3_600
        assert self.read_again(program, loaded) == {"old0": 0, "old2": 2, "old3": 3, "old4": 4, "x": 9}

    def test_a_short_downtime_needs_no_rebuild(self, program: Program, loaded: Kafka, clock: Clock) -> None:
        loaded.put("old1", None)
        clock.now += 3_600
        assert self.read_again(program, loaded) == {"old0": 0, "old2": 2, "old3": 3, "old4": 4}
        assert loaded.read_from[-1] == {("names", 0): 5, ("names", 1): 0}

    def test_the_time_up_to_which_a_table_is_current_advances_without_records(
        self, program: Program, loaded: Kafka, clock: Clock
    ) -> None:
        tables = tables_of(program, loaded, identity="one", tombstones_ms=24 * HOUR_MS)
        for _ in range(30):
            clock.now += 3_600
            tables.refresh()
        tables.close()
        loaded.put("x", 9)
        self.read_again(program, loaded)
        assert loaded.read_from[-1] == {("names", 0): 5, ("names", 1): 0}

    def test_topics_that_keep_tombstones_need_no_rebuild_after_any_downtime(
        self, program: Program, loaded: Kafka, clock: Clock
    ) -> None:
        clock.now += 1_000 * 3_600
        loaded.put("x", 9)
        tables_of(program, loaded, identity="one").refresh(at_once=True)
        assert loaded.read_from[-1] == {("names", 0): 5, ("names", 1): 0}

    def test_an_interrupted_load_continues_only_while_no_tombstone_can_have_expired(
        self, program: Program, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(global_tables, "CHUNK_RECORDS", 2)
        kafka = Kafka()
        for number in range(5):
            kafka.put(f"old{number}", number)
        kafka.logs["names", 0].append((b"bad", b"bad", 5))

        def load() -> None:
            tables = tables_of(program, kafka, tombstones_ms=24 * HOUR_MS)
            try:
                tables.refresh(at_once=True)
            finally:
                tables.close()

        for hours in (0, 5, 11):
            clock.now = 1_000_000 + hours * 3_600
            with pytest.raises(ProcessingError):
                load()
        assert [positions["names", 0] for positions in kafka.read_from] == [0, 4, 4]
        clock.now += 2 * 3_600
        with pytest.raises(ProcessingError):
            load()
        assert kafka.read_from[-1]["names", 0] == 0

    def test_a_topic_that_is_recreated_while_running_ends_the_application(self, program: Program) -> None:
        kafka = Kafka()
        kafka.put("a", 1)
        tables = tables_of(program, kafka, every_s=0)
        tables.refresh()
        kafka.logs["names", 0].clear()
        with pytest.raises(StateError, match=r"names-0 ends at offset 0, but was read up to 1: .* Start again"):
            tables.refresh()


class TestLoading:
    def test_a_table_larger_than_memory_is_written_piece_by_piece(
        self, program: Program, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(global_tables, "CHUNK_RECORDS", 5_000)

        class Many(Kafka):
            """Each key twice."""

            def end_offsets(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
                return {("names", 0): ROWS, ("names", 1): 0}

            def read(
                self, positions: Mapping[Partition, int], ends: Mapping[Partition, int]
            ) -> Iterator[tuple[str, int, int, Value, Value, int, Headers]]:
                for offset in range(positions["names", 0], ROWS):
                    yield "names", 0, offset, b"key-%012d" % (offset // 2), offset.to_bytes(8, "big"), 5, ()

        tables = tables_of(program, Many())
        tracemalloc.start()
        try:
            tables.refresh(at_once=True)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 4_000_000  # all at once took 12 MB
        found = content(program, tables)
        assert len(found) == ROWS // 2
        assert found["key-000000000077"] == 155

    def test_large_records_are_few_in_a_piece(self, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(global_tables, "CHUNK_BYTES", 100)
        kafka = Kafka()
        kafka.put("k" * 60, 1)
        kafka.put("l" * 60, 2)
        kafka.put("a", 3)
        kafka.logs["names", 0].append((b"bad", b"bad", 5))
        tables = tables_of(program, kafka)
        with pytest.raises(ProcessingError):
            tables.refresh(at_once=True)
        assert content(program, tables) == {"k" * 60: 1, "l" * 60: 2}


ROWS = 60_000


class TestRecordsThatCannotBeRead:
    def told(self, tables: GlobalTables) -> tuple[list[tuple[Any, ...]], list[tuple[str, str, int]]]:
        """Dead letters, and what was dropped."""
        rows = [row for table in tables.take_rows() for row in table.to_pylist()]
        letters = [(row["topic"], row["key"], row["value"]) for row in rows if row["kind"] == Kind.DEAD_LETTER]
        controls = [decode_control(row["value"]) for row in rows if row["kind"] == Kind.CONTROL]
        return letters, [drop for control in controls for drop in control.dropped]

    def tables(self, tmp_path: Path, kafka: Kafka, handlers: ErrorHandlers) -> GlobalTables:
        made = program_of(topology(), directory=str(tmp_path), handlers=handlers)
        StateDirectory(made.directory, "app").take_over("one")
        return tables_of(made, kafka, every_s=0)

    def test_dead_letters_are_returned_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(global_tables, "CHUNK_RECORDS", 1)
        kafka = Kafka()
        kafka.logs["names", 0] += [(b"a", b"bad", 5), (b"b", b"worse", 5)]
        tables = self.tables(tmp_path, kafka, ErrorHandlers(deserialization=dead_letter("letters")))
        tables.refresh()
        letters, dropped = self.told(tables)
        assert letters == [("letters", b"a", b"bad"), ("letters", b"b", b"worse")]
        assert dropped == [("KSTREAM-SOURCE-0000000000", "dead letter", 1)] * 2
        assert tables.take_rows() == []
        kafka.put("c", 1)
        tables.refresh()
        assert tables.take_rows() == []

    def test_skipped_records_are_counted(self, tmp_path: Path) -> None:
        kafka = Kafka()
        kafka.logs["names", 0] += [(b"a", b"bad", 5), (b"b", b"worse", 5)]
        tables = self.tables(tmp_path, kafka, ErrorHandlers(deserialization=log_and_continue()))
        tables.refresh()
        assert self.told(tables) == ([], [("KSTREAM-SOURCE-0000000000", "deserialization error", 2)])


class TestHosts:
    """On a cluster, each host reads the topics itself, as far as the driver has when an epoch begins."""

    @pytest.fixture
    def spread(self, program: Program) -> Program:
        return replace(program, is_spread=True)

    def on(self, program: Program, host: str) -> Program:
        return replace(program, directory=f"{program.directory}/{host}")

    def names(self, program: Program) -> dict[str, int]:
        with open_globals(program) as state:
            assert state is not None
            return dict(state.store(program.specs["names"]).all())

    def test_each_has_what_the_driver_has(self, spread: Program) -> None:
        kafka = Kafka()
        driver = tables_of(spread, kafka, every_s=0, identity="x")
        kafka.put("a", 1)
        driver.refresh(at_once=True)
        first = driver.topics(kafka.read)
        kafka.put("b", 2, partition=1)
        bring_globals_to(self.on(spread, "one"), first)
        assert self.names(self.on(spread, "one")) == {"a": 1}
        driver.refresh()
        second = driver.topics(kafka.read)
        for host in ("one", "two"):
            bring_globals_to(self.on(spread, host), second)
            assert self.names(self.on(spread, host)) == {"a": 1, "b": 2}
        read = len(kafka.read_from)
        bring_globals_to(self.on(spread, "one"), second)
        assert len(kafka.read_from) == read
        driver.close()

    def test_a_host_that_has_missed_records_reads_everything_again(self, spread: Program) -> None:
        kafka = Kafka()
        driver = tables_of(spread, kafka, every_s=0)
        kafka.put("gone", 1)
        driver.refresh(at_once=True)
        bring_globals_to(self.on(spread, "one"), driver.topics(kafka.read))
        kafka.put("gone", None)
        kafka.put("a", 2)
        kafka.begins = {("names", 0): 2}
        kafka.compacted = {0, 1}
        driver.refresh()
        topics = replace(driver.topics(kafka.read), begins=kafka.begin_offsets(kafka.logs))
        bring_globals_to(self.on(spread, "one"), topics)
        assert self.names(self.on(spread, "one")) == {"a": 2}
        driver.close()


class Watched:
    """A watch that tells what it is told."""

    def __init__(self) -> None:
        self.new: list[Partition] = []
        self.is_another = False

    def added(self) -> list[Partition]:
        new, self.new = self.new, []
        return new

    def look(self) -> None:
        if self.is_another:
            raise TopicError("created again")


def test_partitions_that_are_added_are_read_too(program: Program) -> None:
    kafka, watched = Kafka(), Watched()
    tables = tables_of(program, kafka, every_s=0)
    tables.watch = watched
    kafka.put("a", 1)
    tables.refresh()
    assert set(tables.topics(kafka.read).begins) == {("names", 0), ("names", 1)}
    kafka.logs["names", 2] = []
    kafka.put("b", 2, partition=2)
    watched.new = [("names", 2), ("names", 1)]
    tables.refresh()
    assert set(tables.topics(kafka.read).begins) == set(tables.topics(kafka.read).ends) == set(kafka.logs)
    assert content(program, tables) == {"a": 1, "b": 2}


def test_a_topic_that_is_created_again_does_not_mix_with_the_old_one(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_tables, "CHUNK_RECORDS", 2)
    kafka, watched = Kafka(), Watched()
    tables = tables_of(program, kafka, every_s=0)
    tables.watch = watched
    for number, key in enumerate(("a", "b")):
        kafka.put(key, number)
    tables.refresh()
    kafka.logs["names", 0].clear()
    for number, key in enumerate(("a", "b", "c", "d", "e", "f")):
        kafka.put(key, 10 + number)
    watched.is_another = True
    with pytest.raises(TopicError, match="created again"):
        tables.refresh()
    kafka.logs["names", 0].clear()
    with pytest.raises(TopicError, match="created again"):  # which explains that it ends before what was read
        tables.refresh()
    assert content(program, tables) == {"a": 0, "b": 1}
