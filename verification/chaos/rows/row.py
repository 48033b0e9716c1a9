"""A row: faults of an application under load."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from verification.chaos.trial import Conditions, Trial

NORMAL = Conditions()


FULL, QUICK, LOCAL = "full", "quick", "local"
"""The campaigns."""


@dataclass(frozen=True, slots=True)
class Row:
    """A name, what is done to the application, and the campaigns that do it.

    `run` receives a trial of the row's type. Most rows end with `trial.finish()`, which checks everything; those whose
    application must refuse to start do not.
    """

    name: str
    run: Callable[[Any], None]
    conditions: Conditions = NORMAL
    campaigns: tuple[str, ...] = (FULL,)
    trial: type[Trial] = Trial
