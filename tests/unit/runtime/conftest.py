"""Fixtures of the tests of epochs: a clock moved by hand, and jobs that only record their calls."""

from __future__ import annotations

import pytest

from tests.unit.runtime.noting import Clock, Noted


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock.standing_still(monkeypatch)


@pytest.fixture
def noted() -> Noted:
    return Noted()
