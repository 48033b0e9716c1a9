"""`reports/conformance-epochs.json`: the report of the sessions of the epoch oracle."""

from __future__ import annotations

import json
from typing import Any

from verification.harness.processes import ROOT

REPORT = ROOT / "reports" / "conformance-epochs.json"


def write(figures: dict[str, Any]) -> None:
    """Begin a new report."""
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def add(figures: dict[str, Any]) -> None:
    """Add figures to the report."""
    write({**(json.loads(REPORT.read_text(encoding="utf-8")) if REPORT.exists() else {}), **figures})
