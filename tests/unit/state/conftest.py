"""A lane's home on each engine, which can be closed and opened again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.state import EngineKind
from tests.unit.state.homes import Home


@pytest.fixture(params=list(EngineKind), ids=lambda kind: kind.value)
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Home]:
    lived_in = Home(request.param, tmp_path)
    yield lived_in
    lived_in.leave()
