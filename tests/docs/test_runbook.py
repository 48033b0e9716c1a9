"""The runbook and the page of errors have every exit code, error and alert of the code, and no other."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import penstock
from penstock.cli.plan_report import LOST
from penstock.errors import PenstockError

DOCS = Path(__file__).parents[2] / "docs"
ERRORS = (DOCS / "errors.md").read_text(encoding="utf-8")
RUNBOOK = (DOCS / "runbook.md").read_text(encoding="utf-8")
ALERTS = (DOCS / "monitoring" / "alerts.yml").read_text(encoding="utf-8")
METRICS = (DOCS / "metrics.md").read_text(encoding="utf-8")
NO_ERROR = {0, LOST}
"""Exit codes that no error has."""


def all_errors() -> list[type[PenstockError]]:
    """Every class of the product that derives from `PenstockError`, wherever it is defined."""
    for module in pkgutil.walk_packages(penstock.__path__, "penstock."):
        importlib.import_module(module.name)
    found, waiting = [], [PenstockError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__.startswith("penstock."):
            found.append(kind)
        waiting += kind.__subclasses__()
    return found


CLASSES = sorted(all_errors(), key=lambda kind: kind.__name__)
INSIDE = {"SlotLostError", "TaskFailedError", "LateError"}
"""Errors that lead to another attempt, and end no process."""


def sections(page: str) -> dict[str, str]:
    """The text of every section by its heading."""
    parts = re.split(r"^##+ (.+)\n", page, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_has_a_section_with_its_codes_its_cause_and_its_cure(kind: type[PenstockError]) -> None:
    section = sections(ERRORS)[kind.__name__]
    assert section.strip().startswith(f"Code `{kind.code}`, exit code {kind.exit_code}"), "its codes are wrong"
    assert "- **Cause**: " in section
    assert "- **Cure**: " in section


def test_no_section_is_about_an_error_that_does_not_exist() -> None:
    named = {heading for heading in sections(ERRORS) if re.fullmatch(r"\w+Error", heading)}
    assert named == {kind.__name__ for kind in CLASSES}


def exit_code_rows() -> dict[int, str]:
    return {int(code): row for code, row in re.findall(r"^\| (\d+) \|(.*)$", RUNBOOK, re.MULTILINE)}


def test_the_runbook_has_every_exit_code_and_no_other() -> None:
    assert set(exit_code_rows()) == {kind.exit_code for kind in CLASSES} | NO_ERROR


@pytest.mark.parametrize("kind", [kind for kind in CLASSES if kind.__name__ not in INSIDE], ids=lambda kind: kind.__name__)
def test_the_row_of_an_exit_code_has_the_errors_that_end_with_it(kind: type[PenstockError]) -> None:
    link = f"[`{kind.__name__}`](errors.md#{kind.__name__.lower()}) (`{kind.code}`)"
    assert link in exit_code_rows()[kind.exit_code]


def test_the_runbook_has_every_alert_with_cause_and_cure_and_no_other() -> None:
    alerts = re.findall(r"^ *- alert: (\w+)$", ALERTS, re.MULTILINE)
    assert alerts
    found = {heading: text for heading, text in sections(RUNBOOK).items() if heading.startswith("Penstock")}
    assert list(found) == alerts
    severities = re.findall(r"^ *severity: (\w+)$", ALERTS, re.MULTILINE)
    for text, severity in zip(found.values(), severities, strict=True):
        assert text.strip().startswith(f"{severity.capitalize()}. ")
        assert "- **Cause**: " in text
        assert "- **Cure**: " in text


def test_the_metrics_that_the_runbook_names_exist() -> None:
    named = set(re.findall(r"`(penstock_\w+)`", RUNBOOK))
    assert named
    assert named <= set(re.findall(r"^\| `(penstock_\w+)` ", METRICS, re.MULTILINE))
