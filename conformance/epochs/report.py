"""`reports/conformance-epochs.json`: what the sessions of the epoch oracle leave behind."""

from __future__ import annotations

import json
from typing import Any

from conformance.oracle_process import ROOT

REPORT = ROOT / "reports" / "conformance-epochs.json"


def write(figures: dict[str, Any]) -> None:
    """A new report."""
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def add(figures: dict[str, Any]) -> None:
    """More figures for the report."""
    write({**(json.loads(REPORT.read_text(encoding="utf-8")) if REPORT.exists() else {}), **figures})
