"""The process that writes lanes, one for all tests: it takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.state import EngineKind
from tests.unit.queries.lanes import Lanes, Writer


@pytest.fixture(scope="session")
def writer() -> Iterator[Writer]:
    running = Writer()
    yield running
    running.close()


@pytest.fixture(params=[EngineKind.LMDB, EngineKind.ROCKSDB], ids=lambda engine: engine.value)
def lanes(request: pytest.FixtureRequest, writer: Writer, tmp_path: Path) -> Lanes:
    return writer.lanes(tmp_path, request.param)


@pytest.fixture
def on_lmdb(writer: Writer, tmp_path: Path) -> Lanes:
    return writer.lanes(tmp_path, EngineKind.LMDB)
