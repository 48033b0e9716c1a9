"""The ceilings of the house: the goals, and by name what exceeds them today.

A name that exceeds its figure here fails, and so does a listed one that has reached the goal. Lower a figure when its name has
shrunk; never raise one.
"""

from __future__ import annotations

LINES_GOAL = 400
LINES: dict[str, int] = {
    "penstock.dsl.handles": 1419,  # the handles name each other in their types, so they share a module: a new verb may raise this
}

ROOMS_GOAL = 20
"""A new room replaces another one."""

IMPORTS_GOAL = 25
IMPORTS: dict[str, int] = {
    "penstock.dsl.handles": 27,
    "penstock.testing.driver": 27,
}

ATTRIBUTES_GOAL = 15
ATTRIBUTES: dict[str, int] = {
    "penstock.calls.work.Work": 16,
    "penstock.epochs.global_tables.GlobalTables": 19,
    "penstock.epochs.stage_run.StageRun": 19,
    "penstock.observation.recorder.Recorder": 35,
    "penstock.runtime.beyond.deliveries._Delivery": 20,
    "penstock.testing.driver.TopologyTestDriver": 26,
    "penstock.testing.shards._Queried": 16,
}

CIRCLES: tuple[tuple[str, ...], ...] = ()
"""Modules that import each other; the goal is none."""

TYPE_IGNORES = 65  # two of them: == and != of expressions build comparisons
NOQAS = 105  # three of them: agg.sum, agg.min and agg.max have the names of built-in functions
"""Comments that disable a check, in all Python files of the repository."""
