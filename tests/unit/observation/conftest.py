"""A recorder, and the metrics of an application that it records."""

from __future__ import annotations

import pytest

from penstock.observation import Recorder
from penstock.observation.metrics import Metrics


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def metrics(recorder: Recorder) -> Metrics:
    return Metrics("a", recorder, lambda: "running", epoch_timeout_s=60)
