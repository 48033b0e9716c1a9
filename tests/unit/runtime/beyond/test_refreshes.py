"""Refreshes without Kafka and Spark: lists are the topic and the rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from penstock import StreamsBuilder
from penstock.errors import BrokerError, PenstockError, ProcessingError
from penstock.kafka.commit import Committer
from penstock.observation import Recorder
from penstock.runtime.beyond import refreshes
from penstock.runtime.beyond.refreshes import Access, Difference, Refreshes, Table, difference
from penstock.runtime.beyond.row_records import RowRecord
from penstock.topology import Contents, SourceNode

WAIT_S = 10
NOW = 1_700_000_000_000


class World:
    """Rows that Spark reads, and a topic with its transactions."""

    def __init__(self) -> None:
        self.rows: Iterable[dict[str, Any]] = []
        self.topic: list[tuple[bytes, bytes | None]] = []
        self.open: list[tuple[bytes, bytes | None]] = []
        self.commits = 0
        self.reads = 0
        self.down: Exception | None = None
        self.refuses: PenstockError | None = None

    @property
    def table(self) -> dict[bytes, bytes]:
        last = dict(self.topic)
        return {key: value for key, value in last.items() if value is not None}

    def read(self, contents: Contents) -> Iterator[dict[str, Any]]:
        self.reads += 1
        if self.down is not None:
            raise self.down
        yield from self.rows

    @contextmanager
    def committer(self) -> Iterator[Committer]:
        self.open = []
        yield Committer(self)

    def begin(self) -> None:
        pass

    def produce(self, rows: Any) -> None:
        assert set(rows["topic"].to_pylist()) == {"shop-countries-global"}
        self.open += zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)

    def send_offsets(self, offsets: Any) -> None:
        assert not offsets

    def commit(self) -> bool:
        if self.refuses is not None:
            raise self.refuses
        self.topic += self.open
        self.commits += 1
        return True

    def abort(self) -> None:
        self.open = []


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(refreshes, "_RETRY_S", 0.01)
    monkeypatch.setattr(refreshes, "_BATCH", 2)
    return World()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def following(world: World, recorder: Recorder) -> Iterator[Callable[..., Refreshes]]:
    made: list[Refreshes] = []

    def follow(refresh: str | None = None) -> Refreshes:
        builder = StreamsBuilder()
        builder.global_table_from(
            lambda spark: None, lambda row: (row["code"], row["name"]), store="countries", key=str, value=str, refresh=refresh
        )
        source = source_of(builder)
        assert source.contents is not None
        access = Access(world.read, lambda topic: list(world.topic), world.committer)
        made.append(Refreshes("shop", [Table("countries", source, source.contents)], access, recorder))
        return made[-1]

    yield follow
    for each in made:
        each.stop()


def source_of(builder: StreamsBuilder) -> SourceNode:
    [node] = [node for node in builder.build().nodes.values() if isinstance(node, SourceNode)]
    assert node.topics == ("countries-global",)
    return replace(node, topics=("shop-countries-global",))


def wait(until: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not until():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.005)


def country(code: str, name: str | None) -> dict[str, Any]:
    return {"code": code, "name": name}


class TestDifference:
    def records(self, *pairs: tuple[bytes | None, bytes | None]) -> Iterable[RowRecord]:
        return [RowRecord(key, value, NOW) for key, value in pairs]

    def test_only_what_differs_is_published(self) -> None:
        known = [(b"a", b"0"), (b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1"), (b"d", None)]
        found = difference(known, self.records((b"a", b"1"), (b"b", b"2"), (b"e", b"1")), NOW)
        changed = [RowRecord(b"b", b"2", NOW), RowRecord(b"e", b"1", NOW)]
        assert found == Difference(changed, [RowRecord(b"c", None, NOW)], rows=3)

    def test_a_row_that_was_deleted_and_comes_back_is_published(self) -> None:
        found = difference([(b"a", b"1"), (b"a", None)], self.records((b"a", b"1")), NOW)
        assert found.changed == [RowRecord(b"a", b"1", NOW)]

    def test_a_row_without_a_value_is_left_out(self) -> None:
        found = difference([(b"a", b"1")], self.records((b"a", None), (b"b", None), (None, None)), NOW)
        assert found == Difference([], [RowRecord(b"a", None, NOW)], rows=0)

    @pytest.mark.parametrize(("key", "why"), [(b"a", "several rows have the key b'a'"), (None, "a row has no key")])
    def test_keys_must_tell_rows_apart(self, key: bytes | None, why: str) -> None:
        with pytest.raises(ValueError, match=why):
            difference([], self.records((b"a", b"1"), (key, b"1")), NOW)


class TestStart:
    def test_all_changes_are_one_transaction(self, world: World, following: Callable[..., Refreshes]) -> None:
        world.rows = [country("CH", "Switzerland"), country("FR", "France"), country("IT", "Italy")]
        following().start()
        assert world.table == {b"CH": b"Switzerland", b"FR": b"France", b"IT": b"Italy"}
        world.rows = [country("CH", "Schweiz"), country("FR", "France")]
        following().start()
        assert world.topic[3:] == [(b"CH", b"Schweiz"), (b"IT", None)]
        assert world.commits == 2

    def test_nothing_is_published_if_nothing_has_changed(self, world: World, following: Callable[..., Refreshes]) -> None:
        world.rows = [country("CH", "Switzerland")]
        following().start()
        following().start()
        assert (world.reads, world.commits) == (2, 1)

    def test_a_table_that_was_never_filled_must_be_readable(self, world: World, following: Callable[..., Refreshes]) -> None:
        world.down = RuntimeError("no such path\n\tat org.apache.spark\n")
        with pytest.raises(
            ProcessingError, match=r"cannot read the rows of 'countries': RuntimeError: no such path\n.*declared at"
        ):
            following().start()
        assert not following().are_loaded

    def test_a_row_that_makes_no_entry_is_named(self, world: World, following: Callable[..., Refreshes]) -> None:
        world.rows = [{"code": "CH"}]
        with pytest.raises(ProcessingError, match=r"cannot make a record of row \{'code': 'CH'\}: KeyError"):
            following().start()

    def test_rows_of_one_key_change_nothing(self, world: World, following: Callable[..., Refreshes]) -> None:
        world.rows = [country("CH", "Switzerland"), country("CH", "Schweiz")]
        with pytest.raises(ProcessingError, match="several rows have the key b'CH'"):
            following().start()
        assert world.topic == []

    def test_a_table_that_was_filled_keeps_its_rows(
        self, world: World, following: Callable[..., Refreshes], recorder: Recorder, caplog: pytest.LogCaptureFixture
    ) -> None:
        world.rows = [country("CH", "Switzerland")]
        following().start()
        assert following().are_loaded
        world.rows, world.down = [country("FR", "France")], ConnectionError("refused")
        following().start()
        wait(lambda: recorder.tables.reports["countries"].failures > 2)  # it is tried again, though it has no interval
        assert "the global table countries keeps its rows" in caplog.text
        assert world.table == {b"CH": b"Switzerland"}
        assert isinstance(recorder.tables.reports["countries"].failure, ProcessingError)
        world.down = None
        wait(lambda: world.table == {b"FR": b"France"})
        wait(lambda: recorder.tables.reports["countries"].failure is None)


class TestIntervals:
    def test_rows_are_read_again(self, world: World, following: Callable[..., Refreshes], recorder: Recorder) -> None:
        following("10ms").start()
        world.rows = [country("CH", "Switzerland")]
        wait(lambda: world.table)
        world.rows = []
        wait(lambda: not world.table)
        assert world.commits == 2
        assert recorder.tables.reports["countries"].refreshed_ms > NOW

    def test_without_an_interval_they_are_not(self, world: World, following: Callable[..., Refreshes]) -> None:
        following().start()
        time.sleep(0.05)
        assert world.reads == 1

    def test_a_commit_that_fails_is_repeated(self, world: World, following: Callable[..., Refreshes], recorder: Recorder) -> None:
        following("10ms").start()
        world.refuses, world.rows = BrokerError("no broker"), [country("CH", "Switzerland")]
        wait(lambda: recorder.tables.reports["countries"].failures > 1)
        assert world.topic == []
        world.refuses = None
        wait(lambda: world.table == {b"CH": b"Switzerland"})

    def test_a_stop_gives_up_a_refresh_that_is_reading(
        self, world: World, following: Callable[..., Refreshes], recorder: Recorder
    ) -> None:
        def endless() -> Iterator[dict[str, Any]]:
            for number in range(10**9):
                yield country(str(number), "x")

        tables = following("10ms")
        tables.start()
        world.rows = endless()
        wait(lambda: world.reads > 1)
        tables.stop()
        assert not tables._thread.is_alive()
        assert world.topic == []
        assert recorder.tables.reports["countries"].failures == 0
