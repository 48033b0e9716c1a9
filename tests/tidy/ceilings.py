"""The ceilings of the house: the goals, and by name what exceeds them today.

A name that exceeds its figure here fails, and so does a listed one that has reached the goal. Lower a figure when its name has
shrunk; never raise one.
"""

from __future__ import annotations

LINES_GOAL = 400
LINES: dict[str, int] = {
    "penstock.dsl.handles": 1393,  # the handles name each other in their types, so they share a module
}

PARAMETERS_GOAL = 8
PARAMETERS: dict[str, int] = {
    "penstock.cli.commands.reset": 10,
    "penstock.cli.letter_commands.replay": 15,
    "penstock.dsl.builder.StreamsBuilder.table": 9,
    "penstock.dsl.handles.AsyncVerbs.map_async": 13,
    "penstock.dsl.handles.AsyncVerbs.map_values_async": 13,
    "penstock.dsl.handles.AsyncVerbs.process_async": 11,
    "penstock.dsl.handles.KStream.join": 12,
    "penstock.dsl.handles.KStream.left_join": 12,
    "penstock.dsl.handles.KStream.outer_join": 11,
    "penstock.operators.joins.join_store_specs": 9,
}

METHODS_GOAL = 20
METHODS: dict[str, int] = {
    "penstock.admin.protocol.LimitedProtocol": 22,
    "penstock.dsl.handles.KStream": 26,
    "penstock.epochs.program.Program": 22,
    "penstock.expressions.expression.Expression": 32,  # each operator of Python is a method, and most are two
    "penstock.state.lane.LaneState": 29,
    "penstock.state.sessions.SessionStore": 22,
    "penstock.state.timestamped.CachedKeyValueStore": 21,
    "penstock.testing.driver.TopologyTestDriver": 30,
    "penstock.topology.graph.Topology": 31,
}

CIRCLES: tuple[tuple[str, ...], ...] = ()
"""Modules that import each other; the goal is none."""

TYPE_IGNORES = 65  # two of them: == and != of expressions build comparisons
NOQAS = 105  # three of them: agg.sum, agg.min and agg.max have the names of built-in functions
"""Comments that disable a check, in all Python files of the repository."""
