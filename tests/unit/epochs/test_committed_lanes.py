"""Stores of lanes on other hosts are read like those of lanes on this machine: as of one barrier, or not at all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.epochs import store_reader
from penstock.epochs.committed_lanes import CommittedLanes, LocalLanes
from penstock.epochs.program import Program
from penstock.epochs.store_reader import read_store, schema_of
from penstock.errors import NotReadyError
from penstock.state import Engine, EngineKind, LaneState, memory_engine
from penstock.state.remote import visits
from penstock.state.remote.client import Address
from penstock.state.remote.protocol import Get, Located, Measure, Page
from tests.unit.epochs.application import Application, Raw, program_of
from tests.unit.epochs.served import moved_to_hosts, remote_lanes
from tests.unit.epochs.test_global_tables import topology as with_a_global_table
from tests.unit.queries.lanes import topology as every_kind_of_query

STORES = ("words", "windows", "sessions", "brief", "last", "versions")
NOWHERE = (("127.0.0.1", 1),)


@pytest.fixture(autouse=True, scope="module")
def small_parts() -> Iterator[None]:
    """Pages and batches of a few rows, so that every store has several."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(visits, "PAGE_ROWS", 2)
        patch.setattr(store_reader, "_ROWS", 3)
        patch.setattr(store_reader, "_PAUSE_S", 0)
        yield


def table(program: Program, store: str, lanes: CommittedLanes) -> pa.Table:
    return pa.Table.from_batches(list(read_store(program, store, lanes)), schema_of(program.specs[store]))


def tables(program: Program, lanes: CommittedLanes) -> dict[str, list[dict[str, object]]]:
    return {store: table(program, store, lanes).to_pylist() for store in STORES}


RECORDS = st.builds(
    Raw,
    st.sampled_from([b"", b"k", b"key", b"other"]),
    st.sampled_from([b"a", b"a b", b"b c d"]),
    st.integers(0, 5_000),
)
EPOCHS = st.lists(st.lists(RECORDS, max_size=6), max_size=3)


@pytest.mark.slow  # a server starts for each example
@settings(max_examples=12, deadline=None)
@given(lanes=st.integers(1, 5), committed=EPOCHS, in_flight=EPOCHS, engine=st.sampled_from([EngineKind.LMDB, EngineKind.ROCKSDB]))
def test_remote_lanes_have_what_local_ones_had_at_the_barrier(
    lanes: int, committed: list[list[Raw]], in_flight: list[list[Raw]], engine: EngineKind
) -> None:
    with TemporaryDirectory() as directory:
        app = Application(Path(directory), every_kind_of_query, engine)
        app.start(lanes)
        for records in committed:
            app.step(records)
        local = LocalLanes(program=app.running, committed=lambda: app.epoch)
        at_barrier = tables(app.running, local)
        for records in in_flight:
            app.send(records)
        assert tables(app.running, local) == at_barrier
        with moved_to_hosts(app.running) as servers, remote_lanes(app.running, lambda: Located(app.epoch, servers)) as remote:
            assert tables(app.running, remote) == at_barrier


@pytest.fixture
def app(tmp_path: Path) -> Application:
    app = Application(tmp_path, every_kind_of_query)
    app.start(4)
    return app


def test_several_batches_come_from_every_host(app: Application) -> None:
    words = " ".join(f"w{number}" for number in range(30))
    app.step([Raw(b"k", words.encode(), 1)])
    with moved_to_hosts(app.running) as servers, remote_lanes(app.running, lambda: Located(0, servers)) as remote:
        batches = list(read_store(app.running, "words", remote))
    assert {row["key"] for batch in batches for row in batch.to_pylist()} == set(words.split())
    assert [batch.num_rows for batch in batches] == [3] * 10


def test_before_the_first_commit_no_lane_is_asked(app: Application) -> None:
    app.send([Raw(b"k", b"a", 1)])
    with remote_lanes(app.running, lambda: Located(-1, list(NOWHERE * 4))) as remote:
        assert table(app.running, "words", remote).num_rows == 0


def test_lanes_that_have_gone_on_are_read_as_of_a_later_barrier(app: Application) -> None:
    for number in range(3):
        app.step([Raw(b"k", b"a", number)])
    told = iter([0, 0, 2])
    with moved_to_hosts(app.running) as servers, remote_lanes(app.running, lambda: Located(next(told), servers)) as remote:
        assert table(app.running, "words", remote).to_pylist() == [{"key": "a", "value": 3, "timestamp": 2}]
    assert next(told, None) is None


def test_lanes_that_have_moved_are_read_where_they_are(app: Application) -> None:
    app.step([Raw(b"k", b"a", 1)])
    with moved_to_hosts(app.running) as servers:
        told: Iterator[list[Address]] = iter([[*servers[:3], *NOWHERE], [servers[1], *servers[1:]], servers])
        with remote_lanes(app.running, lambda: Located(0, next(told))) as remote:
            assert table(app.running, "words", remote).num_rows == 1
        assert next(told, None) is None


class TestFailures:
    """No rows instead of some rows, and a reason to retry."""

    RETRY = "A lane is moving to another host, or its host is lost. Retry."

    def test_a_host_that_does_not_answer(self, app: Application) -> None:
        app.step([Raw(b"k", b"a", 1)])
        asked = []
        with moved_to_hosts(app.running) as servers:

            def located() -> Located:
                asked.append(True)
                return Located(0, [*servers[:3], *NOWHERE])

            with remote_lanes(app.running, located) as remote, pytest.raises(NotReadyError, match=re.escape(self.RETRY)):
                table(app.running, "words", remote)
        assert len(asked) == store_reader._ATTEMPTS

    def test_a_host_that_hangs_is_asked_once(self, app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store_reader, "_LONGEST_S", -1.0)
        asked = []

        def located() -> Located:
            asked.append(True)
            return Located(0, list(NOWHERE * 4))

        with remote_lanes(app.running, located) as remote, pytest.raises(NotReadyError):
            table(app.running, "words", remote)
        assert len(asked) == 1

    def test_a_driver_that_does_not_know_where_lanes_are(self, app: Application) -> None:
        def located() -> Located:
            raise KeyError(0)

        with remote_lanes(app.running, located) as remote, pytest.raises(NotReadyError, match=re.escape(self.RETRY)):
            table(app.running, "words", remote)

    def test_a_host_that_is_lost_between_two_pages(self, app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
        app.step([Raw(b"k", " ".join(f"w{number}" for number in range(30)).encode(), 1)])
        pages = []
        read = visits._read

        def lost_after_ten_pages(engine: Engine, request: Get | Page | Measure) -> object:
            if isinstance(request, Page):
                pages.append(request)
                if len(pages) > 10:
                    raise EOFError  # ends the connection
            return read(engine, request)

        monkeypatch.setattr(visits, "_read", lost_after_ten_pages)
        with moved_to_hosts(app.running) as servers, remote_lanes(app.running, lambda: Located(0, servers)) as remote:
            batches = read_store(app.running, "words", remote)
            assert next(batches).num_rows == 3
            with pytest.raises(NotReadyError, match=re.escape(self.RETRY)):
                list(batches)
        assert len(pages) == 11


def test_global_tables_are_those_of_the_driver(tmp_path: Path) -> None:
    program = program_of(with_a_global_table(), directory=str(tmp_path))
    kept = memory_engine()
    state = LaneState(kept)
    state.store(program.specs["names"]).put("a", 1, 5)
    state.commit(7)
    with remote_lanes(program, lambda: Located(-1, []), kept.snapshot) as remote:
        found = table(program, "names", remote)
    assert found.to_pylist() == [{"key": "a", "value": 1, "timestamp": 5}]
