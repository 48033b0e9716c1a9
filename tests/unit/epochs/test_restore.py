"""The conditions of a lane's store, and how it is restored to the committed epoch from each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pytest
from msgspec.msgpack import Decoder

from penstock import StreamsBuilder, Topology
from penstock.epochs.hops import own_mark
from penstock.epochs.program import lanes_topic
from penstock.epochs.restore import ReadChangelog, Restored, restore_lane
from penstock.epochs.shards import shard_of
from penstock.epochs.state_directory import open_lane
from penstock.errors import BrokerError
from penstock.records import ChangelogRows
from penstock.state import MARK_LIFE_MS, EngineKind
from tests.unit.epochs.application import ID, SHARDS, Application, Place, Raw, some_records

RECORDS = some_records(seed=7, count=200)


@pytest.fixture
def app(tmp_path: Path) -> Application:
    """Two lanes, four epochs, and a mark in the third."""
    application = Application(tmp_path / "state")
    application.start(2)
    application.step(RECORDS[:30])
    application.step(RECORDS[30:60])
    application.note_mark()
    application.step(RECORDS[60:90])
    application.step(RECORDS[90:120])
    return application


def found(restored: list[Restored]) -> list[str]:
    return [lane.found for lane in restored]


def rows_of(app: Application) -> int:
    return sum(len(list(filter(None, log))) for (topic, _), log in app.topics.logs.items() if topic in app.changelogs())


def copy_of(app: Application, tmp_path: Path) -> Path:
    kept = tmp_path / f"copy-{app.epoch}-{app.running.incarnation}"
    shutil.copytree(app.lane_directory(0).parent, kept)
    return kept


def put_back(app: Application, kept: Path) -> None:
    shutil.rmtree(app.lane_directory(0).parent)
    shutil.copytree(kept, app.lane_directory(0).parent)


def no_reader(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[ChangelogRows]:
    raise AssertionError("nothing is to be read")


class GoneError(Exception):
    """The process is killed while it reads."""


def dying_reader(app: Application, chunks: int) -> ReadChangelog:
    def read(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[ChangelogRows]:
        for number, rows in enumerate(app.topics.read(positions, ends)):
            if number == chunks:
                raise GoneError
            yield rows

    return read


class TestUpToDate:
    def test_a_store_of_the_committed_epoch_reads_nothing(self, app: Application) -> None:
        registers = app.all_registers()
        program = app.take_over(2)
        assert found([app.restore(program, lane, no_reader) for lane in range(2)]) == ["up to date"] * 2
        app.check()
        assert app.all_registers() == registers

    def test_a_store_that_is_ahead_is_rolled_back(self, app: Application) -> None:
        registers = app.all_registers()
        app.run(RECORDS[120:150])
        program = app.take_over(2)
        assert found([app.restore(program, lane, no_reader) for lane in range(2)]) == ["up to date"] * 2
        app.check()
        assert app.all_registers() == registers

    @pytest.mark.parametrize("in_flight", [1, 2, 3])
    @pytest.mark.parametrize("committed", [0, 1])
    def test_a_store_that_is_several_epochs_ahead_is_rolled_back_to_the_committed_one(
        self, app: Application, in_flight: int, committed: int
    ) -> None:
        for number in range(in_flight):
            app.send(RECORDS[120 + 10 * number : 130 + 10 * number])
        for _ in range(committed):
            app.commit_oldest()
        program = app.take_over(2)
        assert found([app.restore(program, lane, no_reader) for lane in range(2)]) == ["up to date"] * 2
        app.check()
        app.step(RECORDS[app.position :])
        app.check()

    def test_lanes_need_not_be_equally_far_ahead(self, app: Application) -> None:
        app.send(RECORDS[120:130])
        app.send(RECORDS[130:140])
        with open_lane(app.running, 1) as state:
            state.roll_back()
        program = app.take_over(2)
        assert found([app.restore(program, lane, no_reader) for lane in range(2)]) == ["up to date"] * 2
        app.check()

    def test_a_restored_store_is_up_to_date_for_the_next_start_even_without_a_commit(self, app: Application) -> None:
        app.start(2)
        assert found(app.start(2)) == ["behind", "behind"]  # written by a start that is not the one that committed
        app.check()

    def test_an_old_mark_does_not_matter_to_it(self, app: Application) -> None:
        app.now_ms += MARK_LIFE_MS + 1
        assert found(app.start(2)) == ["up to date"] * 2
        app.check()


class TestBehind:
    def test_an_old_store_reads_what_came_after_its_mark(self, app: Application, tmp_path: Path) -> None:
        app.note_mark()
        at_mark = rows_of(app)
        app.step(RECORDS[120:150])
        kept = copy_of(app, tmp_path)
        app.step(RECORDS[150:180])
        registers = app.all_registers()
        put_back(app, kept)
        restored = app.start(2)
        assert found(restored) == ["behind", "behind"]
        assert sum(lane.rows for lane in restored) == rows_of(app) - at_mark
        app.check()
        assert app.all_registers() == registers

    def test_a_store_of_another_start_at_the_same_epoch_is_recognised_by_its_incarnation(
        self, app: Application, tmp_path: Path
    ) -> None:
        app.run(RECORDS[150:200])  # not committed, and kept somewhere else
        kept = copy_of(app, tmp_path)
        app.start(2)
        app.step(RECORDS[120:150])
        put_back(app, kept)
        with open_lane(app.program(2, app.running.incarnation), 0) as state:
            assert (state.epoch, state.head.incarnation) == (app.epoch, "start-1")
        assert found(app.start(2)) == ["behind", "behind"]
        app.check()

    @pytest.mark.parametrize("committed", [0, 1, 2])
    @pytest.mark.parametrize("later", [1, 2, 3])
    def test_epochs_in_flight_of_another_start_are_taken_back_and_read_from_the_changelogs(
        self, app: Application, tmp_path: Path, committed: int, later: int
    ) -> None:
        app.send(RECORDS[120:140])
        app.send(RECORDS[140:160])
        kept = copy_of(app, tmp_path)
        for _ in range(committed):
            app.commit_oldest()
        app.start(2)
        for number in range(later):
            app.step(RECORDS[160 + 10 * number : 170 + 10 * number])
        put_back(app, kept)
        assert found(app.start(2)) == ["behind", "behind"]
        app.check()

    def test_a_store_that_was_rolled_back_behind_its_mark_is_rebuilt(self, app: Application, tmp_path: Path) -> None:
        app.send(RECORDS[120:140])
        kept = copy_of(app, tmp_path)
        app.commit_oldest()
        app.note_mark()
        mark = app.mark
        app.start(2)
        app.step(RECORDS[140:160])
        put_back(app, kept)
        for lane in range(2):
            with open_lane(app.program(2, app.running.incarnation), lane) as state:
                state.commit(state.epoch + 1, mark=own_mark(app.running, lane, mark), committed=state.earliest)
        assert found(app.start(2)) == ["rebuilt", "rebuilt"]
        app.check()

    def test_a_lane_without_epochs_since_the_start_catches_up_from_the_start(self, app: Application, tmp_path: Path) -> None:
        app.start(2)
        kept, before = copy_of(app, tmp_path), rows_of(app)
        app.step(RECORDS[120:150])
        put_back(app, kept)
        restored = app.start(2)
        assert found(restored) == ["behind", "behind"]
        assert sum(lane.rows for lane in restored) == rows_of(app) - before
        app.check()

    def test_an_interrupted_catch_up_starts_again_at_the_mark(self, app: Application, tmp_path: Path) -> None:
        kept = copy_of(app, tmp_path)
        app.step(RECORDS[120:180])
        registers = app.all_registers()
        put_back(app, kept)
        for chunks in (0, 1, 5):
            program = app.take_over(2)
            for lane in range(2):
                with pytest.raises(GoneError):
                    app.restore(program, lane, dying_reader(app, chunks))
        assert found(app.start(2)) == ["behind", "behind"]
        app.check()
        assert app.all_registers() == registers


class TestRebuilt:
    def test_a_new_lane_reads_everything(self, app: Application) -> None:
        registers = app.all_registers()
        shutil.rmtree(app.lane_directory(0).parent)
        restored = app.start(2)
        assert found(restored) == ["rebuilt", "rebuilt"]
        assert sum(lane.rows for lane in restored) == rows_of(app)
        app.check()
        assert app.all_registers() == registers

    def test_one_lane_may_be_rebuilt_alone(self, app: Application) -> None:
        shutil.rmtree(app.lane_directory(1))
        assert found(app.start(2)) == ["up to date", "rebuilt"]
        app.check()

    def test_an_interrupted_rebuild_is_not_trusted(self, app: Application) -> None:
        shutil.rmtree(app.lane_directory(0).parent)
        for chunks in (1, 3, 6):
            program = app.take_over(2)
            for lane in range(2):
                with pytest.raises(GoneError):
                    app.restore(program, lane, dying_reader(app, chunks))
            with open_lane(program, 0) as state:
                assert (state.epoch, state.head.mark) == (-1, None)
        assert found(app.start(2)) == ["rebuilt", "rebuilt"]
        app.check()

    def test_a_retry_ignores_the_local_store(self, app: Application) -> None:
        assert found(app.start(2, is_retry=True)) == ["rebuilt", "rebuilt"]
        app.check()

    @pytest.mark.parametrize(("age_ms", "expected"), [(MARK_LIFE_MS, "behind"), (MARK_LIFE_MS + 1, "rebuilt")])
    def test_a_mark_is_good_for_half_a_day(self, app: Application, tmp_path: Path, age_ms: int, expected: str) -> None:
        kept = copy_of(app, tmp_path)
        app.step(RECORDS[120:150])
        put_back(app, kept)
        app.now_ms += age_ms
        assert found(app.start(2)) == [expected, expected]
        app.check()

    @pytest.mark.parametrize("has_ids", [True, False], ids=["of another topic", "of no topic"])
    def test_a_mark_of_a_changelog_that_was_created_again_is_not_used(
        self, app: Application, tmp_path: Path, has_ids: bool
    ) -> None:
        app.note_mark()
        assert app.mark is not None
        if not has_ids:
            app.mark = msgspec.structs.replace(app.mark, topic_ids={})
        app.step(RECORDS[120:150])
        kept = copy_of(app, tmp_path)
        app.step(RECORDS[150:180])
        put_back(app, kept)
        if has_ids:
            app.topics.ids.clear()
        assert found(app.start(2)) == ["rebuilt", "rebuilt"]
        app.check()

    def test_a_changelog_that_begins_after_the_mark_is_read_from_its_beginning(self, app: Application, tmp_path: Path) -> None:
        kept = copy_of(app, tmp_path)
        app.step(RECORDS[120:180])
        topics = app.topics
        topics.compact()
        for place, log in topics.logs.items():
            topics.begins[place] = next((offset for offset, row in enumerate(log) if row is not None), len(log))
        put_back(app, kept)
        assert "rebuilt" in found(app.start(2))
        app.check()

    def test_a_deletion_that_is_compacted_away_does_not_come_back(self, tmp_path: Path) -> None:
        app = Application(tmp_path / "state", a_table)
        app.start(1)
        app.step([Raw(b"a", b"1", 0), Raw(b"b", b"1", 0)])
        kept = copy_of(app, tmp_path)
        app.step([Raw(b"a", None, 1)])
        app.topics.compact()
        for place, log in app.topics.logs.items():
            app.topics.logs[place] = [None if row is None or row[1] is None else row for row in log]
        app.now_ms += 24 * 3_600_000  # which is how long deletions are kept
        put_back(app, kept)
        assert found(app.start(1)) == ["rebuilt"]
        app.check()
        assert list(app.content("table")) == [b"b"]

    def test_a_store_of_later_epochs_than_the_committed_one_is_not_trusted(self, app: Application, tmp_path: Path) -> None:
        kept = copy_of(app, tmp_path)
        reset = Application(app.directory)  # the application was reset: nothing is committed any more
        reset.start(2)
        reset.step(RECORDS[:10])
        put_back(reset, kept)
        assert found(reset.start(2)) == ["rebuilt", "rebuilt"]
        reset.check()

    def test_an_invalid_file_is_replaced(self, app: Application) -> None:
        (app.lane_directory(0) / "data.mdb").write_bytes(b"not a store" * 1_000)
        assert found(app.start(2)) == ["rebuilt", "up to date"]
        app.check()

    def test_an_error_while_reading_is_not_taken_for_a_damaged_store(self, app: Application) -> None:
        program = app.take_over(2)
        shutil.rmtree(app.lane_directory(0))

        def unreachable(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[ChangelogRows]:
            raise BrokerError("no broker")

        with pytest.raises(BrokerError):
            app.restore(program, 0, unreachable)


class TestLanes:
    def test_their_number_may_change_at_every_start(self, app: Application) -> None:
        for lanes in (5, 1, 2, 2, 5):
            app.start(lanes)
            app.check()
            app.step(RECORDS[app.position : app.position + 10])
            app.check()

    @pytest.mark.parametrize("is_lost", [False, True])
    def test_registers_stay_with_their_shard(self, app: Application, is_lost: bool) -> None:
        before = app.all_registers()
        assert len({registers["windows/observed_stream_time"] for registers in before}) > 1
        for lanes in (5, 1, 2):
            if is_lost:
                shutil.rmtree(app.lane_directory(0).parent)
            app.start(lanes)
            assert app.all_registers() == before

    def test_registers_are_logged_in_the_partition_of_their_shard(self, app: Application) -> None:
        for shard, registers in enumerate(map(app.registers, range(SHARDS))):
            assert Decoder(dict[str, int]).decode(app.topics.content(lanes_topic(ID), shard)[b"registers"]) == registers

    def test_what_is_not_committed_leaves_no_trace_in_registers(self, app: Application) -> None:
        before = app.all_registers()
        app.run([Raw(record.key, record.value, 10**9) for record in RECORDS[120:150]])
        assert app.all_registers() != before
        app.start(5)
        assert app.all_registers() == before

    def test_a_shard_without_registers_starts_without_them(self, tmp_path: Path) -> None:
        app = Application(tmp_path / "state")
        app.start(2)
        app.step([Raw(b"a", b"x", 5_000)])
        clocks = [name for name in app.registers(shard_of(b"a", SHARDS)) if name.startswith("clock ")]
        assert len(clocks) > 1
        app.start(5)
        for shard in range(SHARDS):
            known = [app.registers(shard).get(name) for name in clocks]
            assert known == [5_000 if shard == shard_of(b"a", SHARDS) else None] * len(clocks)


def test_progress_is_reported_as_offsets_left(app: Application) -> None:
    shutil.rmtree(app.lane_directory(0))
    program = app.take_over(2)
    told: list[int] = []
    restored = restore_lane(program, 0, app.committed(), app.topics.read, told.append, is_retry=False)
    assert told[0] >= restored.rows
    assert told == sorted(told, reverse=True)
    assert told[-1] == 0


def test_restoring_works_on_rocksdb_too(tmp_path: Path) -> None:
    app = Application(tmp_path / "state", a_table, EngineKind.ROCKSDB)
    app.start(1)
    app.step([Raw(b"a", b"1", 0), Raw(b"b", b"1", 0)])
    kept = copy_of(app, tmp_path)
    app.step([Raw(b"a", b"2", 1), Raw(b"b", None, 1)])
    app.send([Raw(b"a", b"3", 2)])
    app.send([Raw(b"a", b"4", 2)])
    assert found(app.start(1)) == ["up to date"]
    app.check()
    put_back(app, kept)
    assert found(app.start(1)) == ["behind"]
    app.check()


def a_table() -> Topology:
    builder = StreamsBuilder()
    builder.table("in", value=str, store="table").to_stream().to("out", value=str)
    return builder.build()
