"""Names that become paths and topics, and the state directory."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import App, Store, StreamsBuilder, Topology, dead_letter, log_and_continue
from penstock.epochs.state_directory import StateDirectory
from penstock.errors import ConfigError, PenstockError, StateError, TopologyError
from penstock.records import is_name
from penstock.state import EngineKind
from penstock.testing import TopologyTestDriver
from tests.unit.epochs.application import ID, Application, Raw

HOSTILE = [
    "../../etc/x",
    "a/b",
    "/etc",
    "x" * 300,
    ".",
    "..",
    "",
    " ",
    "a b",
    "a\n",
    "a\0b",
    "💥",
    "k\u0430fka",
    "__consumer_offsets",
    "__transaction_state",
    "a;b",
    "a:b",
    "$(id)",
]


def stored(name: str) -> object:
    builder = StreamsBuilder()
    builder.stream("in", value=str).group_by_key().count(store=Store(name))
    return builder.build()


def streamed(name: str) -> object:
    builder = StreamsBuilder()
    builder.stream(name)
    return builder.build()


MAKERS: dict[str, Callable[[str], object]] = {
    "an application": lambda name: App(name, Topology()),
    "a source": lambda name: Topology().add_source("in", name),
    "a source of the DSL": streamed,
    "a sink": lambda name: Topology().add_source("in", "x").add_sink("out", name, "in"),
    "a store": stored,
    "a dead letter topic": dead_letter,
}


@pytest.mark.security(17)
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
@pytest.mark.parametrize("what", MAKERS)
def test_a_hostile_name_is_refused(what: str, name: str) -> None:
    with pytest.raises((TopologyError, ConfigError, StateError)) as error:
        MAKERS[what](name)
    assert len(str(error.value)) < 500


@pytest.mark.security(17)
@given(st.text())
def test_a_valid_name_stays_within_its_directory(name: str) -> None:
    """Any accepted name is a single file below its directory."""
    if is_name(name):
        path = Path("/state") / name
        assert path.parent == Path("/state")
        assert os.path.normpath(path) == str(path)


@pytest.mark.security(17)
@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_a_hostile_topic_chosen_by_a_record_is_a_failure(name: str) -> None:
    """A function may choose the topic from data: such a record fails, and nothing is written to Kafka's own topics."""
    builder = StreamsBuilder()
    builder.stream("in", value=str).to(lambda key, value, context: value, value=str)
    with TopologyTestDriver(builder.build(), production_errors=log_and_continue()) as driver:
        lines = driver.input("in", key=str, value=str)
        lines.pipe(name, key="k")
        lines.pipe("fine", key="k")
        assert driver.produced_topic_names() == {"fine"}


class TestStateDirectory:
    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        return tmp_path / "state"

    def take_over(self, root: Path) -> None:
        StateDirectory(str(root), "app").take_over("one")

    @pytest.mark.security(17)
    def test_a_link_is_refused(self, root: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        root.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StateError, match="is a symbolic link"):
            self.take_over(root)
        assert not list((tmp_path / "elsewhere").iterdir())

    @pytest.mark.security(17)
    def test_a_link_within_the_directory_is_refused(self, root: Path, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        root.mkdir()
        (root / "app").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(StateError, match="is a symbolic link"):
            self.take_over(root)
        assert not list((tmp_path / "elsewhere").iterdir())

    @pytest.mark.security(17)
    @pytest.mark.parametrize("inner", [False, True])
    def test_a_world_writable_directory_is_refused(self, root: Path, inner: bool) -> None:
        (root / "app").mkdir(parents=True)
        (root / "app" if inner else root).chmod(0o777)
        with pytest.raises(StateError, match="is writable for all users"):
            self.take_over(root)
        assert not list((root / "app").iterdir())

    @pytest.mark.security(17)
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
    def test_a_directory_of_another_user_is_refused(self, root: Path) -> None:
        (root / "app").mkdir(parents=True)
        os.chown(root / "app", 12_345, 12_345)
        with pytest.raises(StateError, match="belongs to another user"):
            self.take_over(root)

    @pytest.mark.security(17)
    @pytest.mark.parametrize("engine", [EngineKind.LMDB, EngineKind.ROCKSDB])
    def test_only_the_owner_can_access_its_content(self, root: Path, engine: EngineKind) -> None:
        before = os.umask(0o022)
        try:
            (root / ID).mkdir(parents=True)  # readable by others, as an older version left it
            app = Application(root, engine=engine)
            app.start(1)
            app.step([Raw(b"k", b"to be", 1)])
        finally:
            os.umask(before)
        assert mode(root / ID) == 0o700
        files = [path for path in (root / ID).rglob("*") if path.is_file()]
        assert files
        if engine is EngineKind.LMDB:  # RocksDB's files follow the umask; the directory keeps others out
            assert {mode(path) for path in files} == {0o600}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.security(17)
def test_names_are_refused_before_anything_is_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for make in MAKERS.values():
        for name in HOSTILE:
            with pytest.raises(PenstockError):
                make(name)
    assert not list(tmp_path.iterdir())
