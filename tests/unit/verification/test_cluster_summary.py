"""The report of `make cluster` has the figures of its parts, and says what was not measured."""

from __future__ import annotations

import json
from pathlib import Path

from verification.cluster import summary


def test_what_was_not_measured_is_none(tmp_path: Path) -> None:
    found = summary.summary(tmp_path)
    assert found["kills"] is None
    assert (found["violations"], found["guards_off"]) == (0, {})


def test_figures_come_from_the_parts(tmp_path: Path) -> None:
    rows = [{"name": "zombies", "kills": 0, "fired": 4}, {"name": "executors", "kills": 3, "fired": 3}]
    guards = [{"name": "write_ids", "went_red": True}]
    parts = {
        summary.CHAOS: {"violations": 1, "rows": rows, "guards_off": guards},
        summary.INTEGRATION: {"topologies": 38, "differences": 2},
        summary.GENERATED: {"topologies": 60, "differences": 1},
        summary.WRITERS: {
            "faults": {"late-writers": {"fired": 5, "differences": ["a row is missing"]}},
            "guards_off": {"repeated-writes": {"fired": 1, "differences": []}},
            "rows_per_s": {"driver": 1.0},
        },
        summary.TAKEOVER: {"takeover_s": 2.5},
    }
    for name, content in parts.items():
        (tmp_path / name).write_text(json.dumps(content), encoding="utf-8")
    found = summary.summary(tmp_path)
    assert (found["kills"], found["zombies"], found["violations"], found["differences"]) == (3, 4, 2, 3)
    assert found["topologies"] == 98
    assert found["guards_off"] == {"write_ids": True, "repeated-writes": False}
    assert (found["takeover_s"], found["writers"]) == (2.5, {"driver": 1.0})
    assert found["writer_faults"] == {"late-writers": 5}
