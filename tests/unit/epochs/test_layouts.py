"""Lanes composed of stores for other numbers of lanes have what a rebuild from the changelogs has."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from penstock.epochs.restore import Restored
from penstock.epochs.shards import lane_of, shards_of
from penstock.epochs.state_directory import StateDirectory, open_lane
from penstock.errors import TopicError
from penstock.records import ChangelogRows
from penstock.state import EPOCH, EngineKind
from tests.unit.epochs.application import ID, SHARDS, Application, Place, Raw, by_key, driven, far_future, some_records
from tests.unit.epochs.test_restoring_model import flip_in_values

RECORDS = some_records(seed=9, count=2_000)


def found(restored: list[Restored]) -> list[str]:
    return [lane.found for lane in restored]


def no_reader(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[ChangelogRows]:
    assert all(positions[place] == end for place, end in ends.items()), "nothing is to be read"
    return iter(())


Shards = list[tuple[dict[str, dict[bytes, bytes]], dict[str, int]]]


def shards_in(app: Application) -> Shards:
    """The stores of each shard as its changelogs would have them, and its registers."""
    contents = {store: app.contents_by_shard(store) for store in app.running.logged_stores}
    registers = [{name: value for name, value in app.registers(shard).items() if name != EPOCH} for shard in range(SHARDS)]
    return [({store: contents[store][shard] for store in contents}, registers[shard]) for shard in range(SHARDS)]


@pytest.fixture
def app(tmp_path: Path) -> Application:
    """Three lanes, four epochs, and a mark in the third."""
    application = Application(tmp_path / "state")
    application.start(3)
    application.step(RECORDS[:60])
    application.step(RECORDS[60:120])
    application.note_mark()
    application.step(RECORDS[120:180])
    application.step(RECORDS[180:240])
    return application


class TestAnotherNumberOfLanes:
    @pytest.mark.parametrize("lanes", [1, 2, 4, 5, 8])
    def test_nothing_is_read(self, app: Application, lanes: int) -> None:
        before = shards_in(app)
        program = app.take_over(lanes)
        assert found([app.restore(program, lane, no_reader) for lane in range(lanes)]) == ["composed"] * lanes
        app.check()
        assert shards_in(app) == before

    def test_epochs_in_flight_are_left_behind(self, app: Application) -> None:
        app.send(RECORDS[240:300])
        app.send(RECORDS[300:360])
        app.commit_oldest()
        program = app.take_over(2)
        assert found([app.restore(program, lane, no_reader) for lane in range(2)]) == ["composed"] * 2
        app.check()

    def test_stores_of_an_earlier_start_catch_up_from_their_marks(self, app: Application, tmp_path: Path) -> None:
        shutil.copytree(app.lane_directory(0).parent, tmp_path / "kept")
        app.step(RECORDS[240:300])
        app.start(3)
        app.step(RECORDS[300:360])
        shutil.rmtree(app.lane_directory(0).parent)
        shutil.copytree(tmp_path / "kept", app.lane_directory(0).parent)
        composed = app.start(2)
        assert found(composed) == ["composed"] * 2
        app.check()
        registers = app.all_registers()
        rebuilt = app.start(2, is_retry=True)
        assert 0 < sum(lane.rows for lane in composed) < sum(lane.rows for lane in rebuilt)
        assert app.all_registers() == registers

    def test_shards_of_a_store_that_is_missing_are_read(self, app: Application) -> None:
        shutil.rmtree(app.lane_directory(1))
        read: dict[int, int] = {}

        def reader(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[ChangelogRows]:
            for rows in app.topics.read(positions, ends):
                read[rows.partition] = read.get(rows.partition, 0) + len(rows.keys)
                yield rows

        program = app.take_over(1)
        assert app.restore(program, 0, reader).found == "composed"
        assert set(read) == set(shards_of(1, SHARDS, 3))
        app.check()

    def test_an_interrupted_catch_up_of_a_part_begins_again(self, app: Application) -> None:
        shutil.rmtree(app.lane_directory(1))

        class GoneError(Exception):
            """The process is killed while it reads."""

        def dying(positions: Mapping[Place, int], ends: Mapping[Place, int]) -> Iterator[ChangelogRows]:
            yield next(app.topics.read(positions, ends))
            raise GoneError

        program = app.take_over(1)
        with pytest.raises(GoneError):
            app.restore(program, 0, dying)
        app.start(1)
        app.check()

    @pytest.mark.security(26)
    @pytest.mark.parametrize("place", range(0, 1_000, 97))
    def test_a_damaged_store_is_not_used(self, app: Application, place: int) -> None:
        flip_in_values(app.lane_directory(1), 3, place)
        restored = app.start(4)
        app.check()
        touched = {lane_of(shard, SHARDS, 4) for shard in shards_of(1, SHARDS, 3)}
        assert all(lane.found == "composed" for lane in restored if lane.lane not in touched)

    def test_a_file_that_is_no_store_is_not_used(self, app: Application) -> None:
        for lane in range(3):
            (app.lane_directory(lane) / "data.mdb").write_bytes(b"not a store" * 1_000)
        assert found(app.start(2)) == ["rebuilt"] * 2
        app.check()

    def test_lost_records_of_a_changelog_are_noticed(self, app: Application) -> None:
        for log in app.topics.logs.values():
            del log[1:]
        with pytest.raises(TopicError, match="lost records"):
            app.start(2)

    def test_directories_that_are_no_layout_are_ignored(self, app: Application) -> None:
        root = StateDirectory(str(app.directory), ID).root
        for name in ("lanes-", "lanes-x", "lanes-0", "lanes-9999"):
            (root / name / "0000").mkdir(parents=True)
        assert found(app.start(2)) == ["composed"] * 2
        app.check()

    def test_on_rocksdb_too(self, tmp_path: Path) -> None:
        app = Application(tmp_path / "state", engine=EngineKind.ROCKSDB)
        app.start(3)
        app.step(RECORDS[:60])
        app.send(RECORDS[60:120])
        assert found(app.start(2)) == ["composed"] * 2
        app.check()


changes = st.fixed_dictionaries(
    {
        "lanes": st.integers(1, SHARDS),
        "epochs": st.lists(st.tuples(st.integers(0, 30), st.booleans()), max_size=3),
        "in_flight": st.integers(0, 2),
        "committed": st.integers(0, 2),
        "lost": st.sets(st.integers(0, SHARDS - 1), max_size=3),
        "hours": st.sampled_from([0, 0, 0, 7, 13]),
        "is_tidy": st.booleans(),
    }
)


@pytest.mark.slow  # each example is a whole application, in several layouts
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(story=st.lists(changes, min_size=2, max_size=5))
def test_any_layout_is_composed_of_any_others(story: list[dict[str, Any]]) -> None:
    """Starts with any numbers of lanes, of which some leave their stores behind, have what a rebuild has."""
    with TemporaryDirectory() as temporary:
        app, records = Application(Path(temporary) / "state"), iter(RECORDS)
        for part in story:
            live(app, records, part)
        app.start(story[-1]["lanes"])
        app.step(far_future())
        assert by_key(app.sent) == by_key(driven(app))


def live(app: Application, records: Iterator[Raw], part: Mapping[str, Any]) -> None:
    """Start, compare the lanes with rebuilt ones, run epochs, and stop in the middle of some."""
    app.start(part["lanes"])
    app.check()
    composed = shards_in(app)
    kept = Path(app.directory).parent / "kept"
    shutil.copytree(app.directory, kept)
    app.start(part["lanes"], is_retry=True)
    assert shards_in(app) == composed
    shutil.rmtree(app.directory)
    kept.rename(app.directory)
    if part["is_tidy"]:
        StateDirectory(str(app.directory), ID).forget_others(app.lanes)
    app.start(part["lanes"])
    for count, is_marked in part["epochs"]:
        if is_marked:
            app.note_mark()
        app.step([next(records) for _ in range(count)])
    sent = [[next(records)] for _ in range(part["in_flight"])]
    for each in sent:
        app.send(each)
    for _ in sent[: part["committed"]]:
        app.commit_oldest()
    for lane in part["lost"]:
        shutil.rmtree(app.lane_directory(lane), ignore_errors=True)
    app.now_ms += part["hours"] * 3_600_000


def test_a_composed_lane_has_no_trace_of_its_sources_epochs(app: Application) -> None:
    app.send(RECORDS[240:300])
    app.start(2)
    for lane in range(2):
        with open_lane(app.running, lane) as state:
            assert (state.epoch, state.earliest, state.head.incarnation) == (app.epoch, app.epoch, app.running.incarnation)
