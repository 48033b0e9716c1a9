"""What tests of epochs are given: a clock moved by hand, and jobs that only note what is asked of them."""

from __future__ import annotations

import pytest

from penstock.running import epochs as epochs_module
from tests.unit.running.noting import Clock, Noted


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(epochs_module, "time", clock)
    return clock


@pytest.fixture
def noted() -> Noted:
    return Noted()
