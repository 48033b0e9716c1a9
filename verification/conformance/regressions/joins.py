"""Fixed cases about tables and joins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from verification.conformance.regressions.notation import Step, fixed, out, out_table, stream, table
from verification.conformance.spec import Case

BOTH: list[Step] = [
    ("left", "a", "1", 10), ("right", "a", "A", 15), ("right", "a", "B", 16), ("left", "a", "2", 5), ("left", "b", "3", 12),
    ("left", None, "n", 12), ("right", "b", None, 14), ("left", "a", None, 14), ("right", "b", "C", 40), 1000,
    ("left", "a", "4", 60), 1000, ("left", "a", "5", 61), ("right", "c", "D", 62), ("left", "c", "6", 30), 1001,
    ("left", "z", "7", 200),
]  # fmt: skip


def stream_stream() -> Iterator[Case]:
    """Streams within a window."""
    sides = [stream("l", "left"), stream("r", "right")]
    for kind in ("inner", "left", "outer"):
        for name, args in (("", {"within": [5, 5], "grace": 20}), (" with an asymmetric window", {"within": [0, 10]})):
            join = ("j", "stream_join_stream", "l", "r", {"kind": kind, "fn": "pair", **args})
            yield fixed(f"{kind} join of streams{name}", [*sides, join, out("j")], [*BOTH])
    own = [
        stream("l", "left"),
        ("j", "stream_join_stream", "l", "l", {"kind": "inner", "fn": "pair", "within": [5, 5]}),
        out("j"),
    ]
    yield fixed("a stream joined with itself", own, [step for step in BOTH if isinstance(step, int) or step[0] == "left"])


def stream_table() -> Iterator[Case]:
    """A stream looks up a table or a global table."""
    sides = [stream("l", "left"), table("r", "right")]
    for kind in ("inner", "left"):
        join = ("j", "stream_join_table", "l", "r", {"kind": kind, "fn": "keyed_pair", "with_key": True})
        yield fixed(f"{kind} join of a stream with a table", [*sides, join, out("j")], [*BOTH])
        versioned = table("r", "right", store={"name": "kept", "history": 100})
        graced = ("j", "stream_join_table", "l", "r", {"kind": kind, "fn": "pair", "grace": 5})
        steps = [step for step in BOTH if isinstance(step, int) or step[1] is not None]
        yield fixed(f"{kind} join with grace over a versioned table", [stream("l", "left"), versioned, graced, out("j")], steps)
        lookup = ("g", "builder_global_table", {"topic": "right", "store": {"name": "all"}})
        by = ("j", "stream_join_global", "l", "g", {"kind": kind, "fn": "pair", "on": "null_x_key"})
        yield fixed(
            f"{kind} join with a global table", [stream("l", "left"), lookup, by, out("j")], [*BOTH, ("left", "a", "x", 7)]
        )
    out_of_order = [sides[0], table("r", "right", store={"name": "kept", "history": 100})]
    join = ("j", "stream_join_table", "l", "r", {"kind": "left", "fn": "pair"})
    steps = [
        ("right", "a", "new", 20),
        ("right", "a", "old", 10),
        ("left", "a", "1", 12),
        ("left", "a", "2", 25),
        ("left", "a", "3", 5),
    ]
    yield fixed("a versioned table is read as of the stream's time", [*out_of_order, join, out("j")], steps)


UPDATES: list[tuple[Any, ...]] = [
    ("left", "a", "b1", 10), ("right", "a", "A", 5), ("right", "b", "B", 7), ("left", "a", "a2", 3), ("left", "b", "b3", 20),
    ("right", "b", None, 30), ("left", "a", "x", 31), ("left", "a", None, 32), ("right", "b", "B2", 33), ("left", None, "n", 34),
    ("left", "b", "a5", 35), ("right", "a", "A", 36), ("left", "c", None, 37), ("left", "b", "a5", 1),
]  # fmt: skip


def table_table() -> Iterator[Case]:
    """Tables joined by key and by foreign key."""
    sides = [table("l", "left"), table("r", "right")]
    for kind in ("inner", "left", "outer"):
        for caching in (False, True):
            join = ("j", "table_join_table", "l", "r", {"kind": kind, "fn": "pair", "store": {"name": "joined"}})
            name = f"{kind} join of tables" + (" with a cache" if caching else "")
            yield fixed(name, [*sides, join, *out_table("j")], [*UPDATES], caching=caching)
    for kind in ("inner", "left"):
        join = ("j", "table_join_foreign", "l", "r", {"kind": kind, "fn": "pair", "on": "fk_head", "store": {"name": "joined"}})
        yield fixed(f"{kind} join by foreign key", [*sides, join, *out_table("j")], [*UPDATES])
    twice = [stream("s", "left"), ("f", "stream_flat_map_values", "s", {"fn": "twice"}), table("r", "right")]
    kept = ("l", "stream_to_table", "f", {"store": {"name": "kept", "caching": False}})
    for kind in ("inner", "left"):
        join = ("j", "table_join_foreign", "l", "r", {"kind": kind, "fn": "pair", "on": "fk_head"})
        name = f"{kind} join by foreign key drops answers to rows that have changed since"
        yield fixed(name, [*twice, kept, join, *out_table("j")], [*UPDATES])
    either = {"kind": "left", "fn": "pair", "on": "fk_either", "with_key": True}
    yield fixed(
        "a foreign key of key and value", [*sides, ("j", "table_join_foreign", "l", "r", either), *out_table("j")], [*UPDATES]
    )
    versioned = [
        table(name, topic, store={"name": f"{topic}-kept", "history": 100}) for name, topic in (("l", "left"), ("r", "right"))
    ]
    join = ("j", "table_join_table", "l", "r", {"kind": "outer", "fn": "pair"})
    yield fixed("versioned tables ignore what is out of order", [*versioned, join, *out_table("j")], [*UPDATES])


def tables() -> Iterator[Case]:
    """What a table's own verbs emit."""
    steps: list[Any] = [("in", key, value, at) for _, key, value, at in UPDATES]
    for store in (None, {"name": "kept"}, {"name": "kept", "history": 20}):
        how = "" if store is None else " into a versioned store" if "history" in store else " into a store"
        args = {"fn": "not_x"} | ({"store": store} if store else {})
        yield fixed(f"filter of a table{how}", [table(), ("n", "table_filter", "t", args), *out_table("n")], steps)
    values = ("n", "table_map_values", "t", {"fn": "null_x"})
    yield fixed("map_values of a table", [table(), values, *out_table("n")], steps)
    yield fixed("to_stream under another key", [table(), ("n", "table_to_stream", "t", {"fn": "by_head"}), out("n")], steps)
    to_table = [stream(), ("t", "stream_to_table", "s", {"store": {"name": "kept"}}), *out_table("t")]
    yield fixed("to_table of a stream", to_table, steps)
    regroup = [table(), ("g", "table_group_by", "t", {"fn": "head_tag"})]
    add = {"fn": "concat", "subtract": "minus", "init": "empty"}
    yield fixed("a table aggregated again", [*regroup, ("n", "regrouped_aggregate", "g", add), *out_table("n")], steps)
    yield fixed("a table counted", [*regroup, ("n", "regrouped_count", "g"), *out_table("n", value="long")], steps)
    reduce = {"fn": "glue", "subtract": "unglue"}
    yield fixed("a table reduced", [*regroup, ("n", "regrouped_reduce", "g", reduce), *out_table("n")], steps, caching=True)
    keep = [table(), ("g", "table_group_by", "t", {"fn": "keep_tag"}), ("n", "regrouped_aggregate", "g", add), *out_table("n")]
    yield fixed("a table aggregated under the same key", keep, steps)
