"""A finding of `penstock doctor`: what was checked, the result, and how to fix it if there is a problem."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class Level(Enum):
    """How serious a finding is."""

    OK = "ok"
    WARN = "warn"
    """It works, but may fail under load or after a fault."""
    FAIL = "fail"
    """The application would not run."""


class Finding(NamedTuple):
    """One line of the report."""

    what: str
    level: Level
    found: str
    cure: str = ""


def ok(what: str, found: str) -> Finding:
    """Return a finding that all is well."""
    return Finding(what, Level.OK, found)


def warn(what: str, found: str, cure: str) -> Finding:
    """Return a finding that may hurt under load or after a fault."""
    return Finding(what, Level.WARN, found, cure)


def fail(what: str, found: str, cure: str) -> Finding:
    """Return a finding that would prevent the application from running."""
    return Finding(what, Level.FAIL, found, cure)
