"""Epochs of any size on any number of lanes give what the test driver gives, record by record."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.epochs.application import Application, by_key, driven, far_future, some_records


@pytest.mark.parametrize("lanes", [1, 3, 8])
@pytest.mark.parametrize("size", [3, 29, 120])
def test_how_input_is_cut_and_spread_makes_no_difference(tmp_path: Path, size: int, lanes: int) -> None:
    app = Application(tmp_path)
    app.start(lanes)
    records = some_records(seed=3, count=min(120, 10 * size))
    for first in range(0, len(records), size):
        app.step(records[first : first + size])
    app.check()
    app.step(far_future())
    assert by_key(app.sent) == by_key(driven(app))
