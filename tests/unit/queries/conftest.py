"""The process that writes lanes, shared by all tests because it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.queries import CommittedState
from penstock.state import EngineKind
from tests.unit.epochs.application import Raw
from tests.unit.queries.lanes import Lanes, Writer


@pytest.fixture(scope="session")
def writer() -> Iterator[Writer]:
    running = Writer()
    yield running
    running.close()


ENGINES = [EngineKind.LMDB, EngineKind.ROCKSDB]


@pytest.fixture(scope="module", params=ENGINES, ids=lambda engine: engine.value)
def thirty_keys(
    request: pytest.FixtureRequest, writer: Writer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CommittedState]:
    """A read-only state: two values of each of 30 keys, a second apart, and an uncommitted epoch that no query may see."""
    lanes = writer.lanes(tmp_path_factory.mktemp("lanes"), request.param)
    lanes.step([Raw(b"k%02d" % number, b"old w%02d" % number, 1_000 + number) for number in range(30)])
    lanes.step([Raw(b"k%02d" % number, b"new w%02d" % number, 2_000 + number) for number in range(30)])
    lanes.run([Raw(b"k%02d" % number, b"never", 3_000_000) for number in range(40)])
    state = lanes.state()
    yield state
    state.close()


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.value)
def lanes(request: pytest.FixtureRequest, writer: Writer, tmp_path: Path) -> Lanes:
    return writer.lanes(tmp_path, request.param)


@pytest.fixture
def on_lmdb(writer: Writer, tmp_path: Path) -> Lanes:
    return writer.lanes(tmp_path, EngineKind.LMDB)
