"""Fixed cases about aggregations and windows: every window type, on both sides of every edge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from verification.conformance.regressions.notation import fixed, out_table, stream
from verification.conformance.spec import Case

GROUPED = [stream(key="string", value="string"), ("g", "stream_group_by_key", "s")]
EDGES = [
    ("in", "a", value, at) for value, at in (("1", 0), ("2", 9), ("3", 10), ("4", 5), ("5", 15), ("6", 9), ("7", 14), ("8", 16))
]
LATE = [("in", "a", "9", 4), ("in", "b", "10", 30), ("in", "a", "11", 20), ("in", "a", "12", 19), ("in", "a", "13", 61)]


def _windowed(name: str, windows: dict[str, Any], *, emit: str | None = None, caching: bool = False, steps: Any = None) -> Case:
    by = {"windows": windows} | ({"emit": emit} if emit else {})
    session = windows["type"] == "session"
    args = {"fn": "concat", "init": "empty"} | ({"merger": "merge"} if session else {})
    verb = "sessions_aggregate" if session else "windowed_aggregate"
    ops = [*GROUPED, ("w", "grouped_windowed_by", "g", by), ("t", verb, "w", args), *out_table("t")]
    return fixed(name, ops, steps or [*EDGES, *LATE], caching=caching)


def windowed() -> Iterator[Case]:
    """Every type of window, with and without grace, on update and on close."""
    yield _windowed("tumbling windows end before their end", {"type": "tumbling", "size": 10})
    yield _windowed("tumbling windows within grace", {"type": "tumbling", "size": 10, "grace": 5})
    yield _windowed("hopping windows overlap", {"type": "hopping", "size": 10, "advance": 4, "grace": 3})
    yield _windowed("sliding windows left and right", {"type": "sliding", "size": 10, "grace": 20})
    early = [("in", "a", value, at) for value, at in (("1", 3), ("2", 0), ("3", 10), ("4", 11), ("5", 7), ("6", 7))]
    yield _windowed("sliding windows near time zero", {"type": "sliding", "size": 10, "grace": 50}, steps=early)
    yield _windowed("sliding windows without grace", {"type": "sliding", "size": 5})
    yield _windowed("sessions merge within the gap", {"type": "session", "size": 5, "grace": 20})
    yield _windowed("sessions expire without grace", {"type": "session", "size": 5})
    yield _windowed("sessions with a cache", {"type": "session", "size": 5, "grace": 20}, caching=True)
    yield _windowed("unlimited windows from a start", {"type": "unlimited", "start": 5})
    waiting = [*EDGES, 1000, *LATE, 1000, ("in", "c", "14", 100), 2000, ("in", "c", "15", 200)]
    for kind in ("tumbling", "sliding", "session"):
        windows = {"type": kind, "size": 10, "grace": 5}
        yield _windowed(f"{kind} windows emit on close", windows, emit="close", steps=waiting)
    yield _windowed("hopping windows with a cache", {"type": "hopping", "size": 10, "advance": 4, "grace": 3}, caching=True)
    scattered = [GROUPED[0], ("p", "stream_process_values", "s", {"fn": "fixed_scatter"}), ("g", "stream_group_by_key", "p")]
    by = ("w", "grouped_windowed_by", "g", {"windows": {"type": "tumbling", "size": 10, "grace": 20}})
    reduced = ("t", "windowed_reduce", "w", {"fn": "glue"})
    name = "a cache emits in the order of the last writes"
    yield fixed(name, [*scattered, by, reduced, *out_table("t", key="time:string:10")], EDGES, caching=True)
    twice = [
        GROUPED[0],
        ("p", "stream_flat_map_values", "s", {"fn": "keyed_twice", "with_key": True}),
        ("g", "stream_group_by_key", "p"),
    ]
    again = [
        ("t", "windowed_aggregate", "w", {"fn": "concat", "init": "empty", "store": {"value": "string"}}),
        ("h", "table_group_by", "t", {"fn": "keep_tag", "key": "string", "value": "string"}),
        ("n", "regrouped_aggregate", "h", {"fn": "concat", "subtract": "minus", "init": "empty"}),
        *out_table("n"),
    ]
    yield fixed("a cache sends the value before the first of several changes", [*twice, by, *again], EDGES, caching=True)


def plain() -> Iterator[Case]:
    """Aggregations without windows."""
    steps = [
        ("in", "a", "1", 5),
        ("in", "b", "x", 1),
        ("in", "a", "2", 3),
        ("in", "a", None, 9),
        ("in", None, "3", 9),
        ("in", "b", "x", 7),
    ]
    count = [*GROUPED, ("t", "grouped_count", "g", {"store": {"name": "n"}}), *out_table("t", value="long")]
    yield fixed("count skips nulls", count, steps)
    reduce = [*GROUPED, ("t", "grouped_reduce", "g", {"fn": "null_on_x"}), *out_table("t")]
    yield fixed("reduce to null deletes", reduce, steps)
    drop = [*GROUPED, ("t", "grouped_aggregate", "g", {"fn": "drop_x", "init": "empty"}), *out_table("t")]
    yield fixed("aggregate to null deletes", drop, steps)
    by = [
        stream(),
        ("g", "stream_group_by", "s", {"fn": "null_x_key"}),
        ("t", "grouped_count", "g"),
        *out_table("t", value="long"),
    ]
    yield fixed("group_by drops null keys", by, steps)
    both = [stream(), stream("r", "in2"), ("g", "stream_group_by_key", "s"), ("h", "stream_group_by_key", "r")]
    both += [("c", "grouped_cogroup", "g", {"fn": "concat"}), ("d", "cogrouped_cogroup", "c", "h", {"fn": "minus"})]
    second = [*steps, ("in2", "a", "z", 4), ("in", "a", "4", 6)]
    yield fixed("cogroup of two streams", [*both, ("t", "cogrouped_aggregate", "d", {"init": "empty"}), *out_table("t")], second)
    windows = {"windows": {"type": "session", "size": 3, "grace": 5}}
    sessions = [
        ("w", "cogrouped_windowed_by", "d", windows),
        ("t", "sessions_aggregate", "w", {"init": "empty", "merger": "merge"}),
    ]
    yield fixed("cogroup in sessions", [*both, *sessions, *out_table("t", key="session:string")], second)


def suppressed() -> Iterator[Case]:
    """What is suppressed, and in which order it is emitted."""
    windows = [*GROUPED, ("w", "grouped_windowed_by", "g", {"windows": {"type": "tumbling", "size": 10, "grace": 5}})]
    windows += [("c", "windowed_count", "w", {"store": {"value": "long", "key": "string"}})]
    close = ("t", "table_suppress", "c", {"until": "window_closes"})
    tied = [
        ("in", key, "1", at) for key, at in (("b", 3), ("a", 7), ("c", 1), ("b", 14), ("a", 15), ("a", 24), ("a", 25), ("a", 60))
    ]
    yield fixed("suppress until the window closes", [*windows, close, *out_table("t", value="long")], tied)
    gap = {"windows": {"type": "session", "size": 5, "grace": 3}}
    sessions = [*GROUPED, ("w", "grouped_windowed_by", "g", gap), ("c", "sessions_count", "w")]
    yield fixed("suppress merged sessions", [*sessions, close, *out_table("t", value="long")], [*tied, ("in", "a", "1", 90)])
    full = {"until": "time_limit", "limit": 10, "buffer": {"records": 2, "full": "emit"}}
    table: list[Any] = [("c", "builder_table", {"topic": "in", "store": {"name": "kept", "caching": False}})]
    steps = [
        ("in", "a", "1", 1),
        ("in", "b", "1", 0),
        ("in", "a", "2", 2),
        ("in", "c", "1", 3),
        ("in", "b", None, 4),
        ("in", "c", "2", 30),
    ]
    yield fixed("suppress emits early when full", [*table, ("t", "table_suppress", "c", full), *out_table("t")], steps)
    limit = {"until": "time_limit", "limit": 2}
    yield fixed("suppress until a time limit", [*table, ("t", "table_suppress", "c", limit), *out_table("t")], steps)
    stop = {"until": "time_limit", "limit": 10, "buffer": {"records": 2, "full": "stop"}}
    yield fixed("suppress stops when full", [*table, ("t", "table_suppress", "c", stop), *out_table("t")], steps)
