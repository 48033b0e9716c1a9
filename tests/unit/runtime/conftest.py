"""What tests of epochs are given: a clock moved by hand, and jobs that only note what is asked of them."""

from __future__ import annotations

import pytest

from tests.unit.runtime.noting import Clock, Noted


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock.standing_still(monkeypatch)


@pytest.fixture
def noted() -> Noted:
    return Noted()
