"""The ceilings of the house: the goals, and by name what exceeds them today.

A name that exceeds its figure here fails, and so does a listed one that has reached the goal. Lower a figure when its name has
shrunk; never raise one.
"""

from __future__ import annotations

LINES_GOAL = 400
LINES: dict[str, int] = {
    "penstock.config": 487,
    "penstock.dsl.streams": 761,
}

PARAMETERS_GOAL = 8
PARAMETERS: dict[str, int] = {
    "penstock.cli.commands.reset": 10,
    "penstock.cli.letter_commands.replay": 15,
    "penstock.dsl.asynchronous.AsyncVerbs.map_async": 13,
    "penstock.dsl.asynchronous.AsyncVerbs.map_values_async": 13,
    "penstock.dsl.asynchronous.AsyncVerbs.process_async": 11,
    "penstock.dsl.asynchronous.call_of": 14,
    "penstock.dsl.builder.StreamsBuilder.table": 9,
    "penstock.dsl.repartitions.write_exchange": 9,
    "penstock.dsl.stream_joins._with_stream": 10,
    "penstock.dsl.stream_joins._with_table": 9,
    "penstock.dsl.stream_joins.join": 15,
    "penstock.dsl.streams.KStream.join": 12,
    "penstock.dsl.streams.KStream.left_join": 12,
    "penstock.dsl.streams.KStream.outer_join": 11,
    "penstock.dsl.table_joins._by_foreign_key": 9,
    "penstock.dsl.table_joins.join": 10,
    "penstock.operators.joins.join_store_specs": 9,
    "penstock.operators.sliding_windows._Windows._add_to": 9,
}

METHODS_GOAL = 20
METHODS: dict[str, int] = {
    "penstock.admin.protocol.LimitedProtocol": 22,
    "penstock.dsl.streams.KStream": 29,
    "penstock.epochs.program.Program": 22,
    "penstock.runtime.application.RunningApplication": 23,
    "penstock.state.lane.LaneState": 29,
    "penstock.state.sessions.SessionStore": 24,
    "penstock.state.timestamped.CachedKeyValueStore": 21,
    "penstock.state.versioned.VersionedKeyValueStore": 21,
    "penstock.testing.driver.TopologyTestDriver": 30,
    "penstock.topology.graph.Topology": 31,
}

CIRCLES: tuple[tuple[str, ...], ...] = (
    (
        "penstock.dsl.aggregations",
        "penstock.dsl.asynchronous",
        "penstock.dsl.cogrouped",
        "penstock.dsl.draft",
        "penstock.dsl.grouped",
        "penstock.dsl.grouped_tables",
        "penstock.dsl.handles",
        "penstock.dsl.place",
        "penstock.dsl.repartitions",
        "penstock.dsl.side_outputs",
        "penstock.dsl.stores",
        "penstock.dsl.stream_joins",
        "penstock.dsl.streams",
        "penstock.dsl.table_drafts",
        "penstock.dsl.table_joins",
        "penstock.dsl.tables",
    ),
)
"""Modules that import each other; the goal is none."""

TYPE_IGNORES = 63
NOQAS = 96
"""Comments that disable a check, in all Python files of the repository."""
