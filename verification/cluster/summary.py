"""`python -m verification.cluster.summary`: the figures of `make cluster` in one report, reports/cluster.json."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

REPORTS = Path("reports")
CHAOS, INTEGRATION, GENERATED = "cluster-chaos.json", "cluster-integration.json", "generated-cluster.json"
WRITERS, MOVED, TAKEOVER = "writers.json", "moved-lanes.json", "takeover.json"
ZOMBIES = "zombies"


def main() -> int:
    """Write the report and print it; return 1 if there is a violation, or a guard that changes nothing."""
    report = summary(REPORTS)
    (REPORTS / "cluster.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    for name, value in report.items():
        print(f"{name}: {'not measured' if value is None else value}")
    guards = report["guards_off"]
    return 1 if report["violations"] or report["differences"] or not all(guards.values()) else 0


def summary(directory: Path) -> dict[str, Any]:
    """Return the figures of the reports in a directory; None for those that are not there."""
    chaos = _read(directory / CHAOS)
    compared = [found for name in (INTEGRATION, GENERATED) if (found := _read(directory / name))]
    writers = _read(directory / WRITERS)
    rows = chaos.get("rows", [])
    by_guard = {guard["name"]: guard["went_red"] for guard in chaos.get("guards_off", [])}
    by_guard |= {name: bool(found["differences"]) for name, found in writers.get("guards_off", {}).items()}
    lost = [difference for found in writers.get("faults", {}).values() for difference in found["differences"]]
    return {
        "kills": sum(row["kills"] for row in rows) if rows else None,
        "violations": chaos.get("violations", 0) + len(lost),
        "topologies": sum(found["topologies"] for found in compared) if compared else None,
        "differences": sum(found["differences"] for found in compared) if compared else None,
        "zombies": sum(row["fired"] for row in rows if row["name"].startswith(ZOMBIES)) if rows else None,
        "writer_faults": {name: found["fired"] for name, found in writers.get("faults", {}).items()} or None,
        "moved_lane_s": _read(directory / MOVED) or None,
        "takeover_s": _read(directory / TAKEOVER).get("takeover_s"),
        "writers": writers.get("rows_per_s"),
        "commits": writers.get("commits"),
        "guards_off": by_guard,
    }


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


if __name__ == "__main__":
    sys.exit(main())
