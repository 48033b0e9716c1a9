"""Fixed cases about streams without windows: stateless verbs, sinks, sources, processors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from verification.conformance.regressions.notation import Step, fixed, out, out_table, stream, table
from verification.conformance.spec import Case

MIXED: list[Step] = [
    ("in", "a", "a", 1),
    ("in", "b", "xb", 3, ("h", "1")),
    ("in", None, "c", 2),
    ("in", "a", None, 2),
    ("in", "c", "", 9),
]


def _one(name: str, verb: str, /, **args: Any) -> Case:
    return fixed(name, [stream(), ("n", verb, "s", args), out("n")], MIXED)


def stateless() -> Iterator[Case]:
    """One case per stateless verb."""
    yield _one("filter keeps by predicate", "stream_filter", fn="not_x")
    yield _one("filter_not drops by predicate", "stream_filter_not", fn="not_x")
    yield _one("select_key may give null keys", "stream_select_key", fn="null_x_key")
    yield _one("map swaps key and value", "stream_map", fn="swap")
    yield _one("map_values sees null values", "stream_map_values", fn="tag")
    yield _one("map_values with the key", "stream_map_values", fn="keyed", with_key=True)
    yield _one("flat_map fans out in order", "stream_flat_map", fn="fan")
    yield _one("flat_map_values of the empty text", "stream_flat_map_values", fn="chars")
    yield _one("flat_map_values gives null", "stream_flat_map_values", fn="null_too")
    yield _one("flat_map_values with the key", "stream_flat_map_values", fn="keyed_twice", with_key=True)
    yield _one("peek sees every record", "stream_peek")
    yield _one("repartition drops nothing", "stream_repartition", name="again")
    yield fixed("foreach ends a stream", [stream(), ("n", "stream_foreach", "s")], MIXED)
    yield fixed("print with a label", [stream(), ("n", "stream_print", "s", {"label": "said"})], MIXED)
    yield fixed("print with a mapper", [stream(), ("n", "stream_print", "s", {"mapper": True})], MIXED)
    two = [stream(), stream("r", "in2"), ("n", "stream_merge", "s", "r"), out("n")]
    yield fixed("merge keeps arrival order", two, [*MIXED, ("in2", "a", "z", 0)])
    branches = {"branches": ["not_x", "value"], "otherwise": True}
    split = [stream(), ("n", "stream_split", "s", branches), out("n.0", "one"), out("n.1", "two"), out("n.2", "rest")]
    yield fixed("split sends to the first match", split, MIXED)
    named = {"branches": ["not_x"], "otherwise": True, "names": ["good", "bad"], "name": "sorted-"}
    split = [stream(), ("n", "stream_split", "s", named), out("n.0", "one"), out("n.1", "two")]
    yield fixed("split by name", split, MIXED)


def doors() -> Iterator[Case]:
    """Sources and sinks."""
    dynamic = ("n", "stream_to_dynamic", "s", {"topic": "out", "fn": "by_time"})
    yield fixed("to a topic by timestamp", [stream(), dynamic], MIXED)
    yield fixed("a negative timestamp drops the record", [stream(timestamp="negative_x"), out("s")], MIXED)
    yield fixed("an extractor sees partition time", [stream(timestamp="stuck_x"), out("s")], [*MIXED, ("in", "a", "x", 20)])
    several = ("s", "builder_stream_topics", {"topics": ["in", "in2"]})
    yield fixed("several topics in one stream", [several, out("s")], [*MIXED, ("in2", "a", "b", 5)])
    pattern = ("s", "builder_stream_pattern", {"pattern": "in.*"})
    yield fixed("topics by pattern", [pattern, out("s")], [*MIXED, ("in2", "a", "b", 5)])
    where = [pattern, ("n", "stream_process", "s", {"fn": "metadata"}), out("n")]
    yield fixed("metadata names the real topic of a pattern", where, [("in1", "a", "a", 1), ("in2", "a", "b", 2)])
    loop = [stream(), out("s", "middle"), stream("m", "middle"), ("n", "stream_map_values", "m", {"fn": "tag"}), out("n")]
    yield fixed("a topic both written and read", loop, MIXED)
    failing = [stream(), ("n", "stream_map_values", "s", {"fn": "fail"}), out("n")]
    yield fixed("a failing function stops at its record", failing, [*MIXED, ("in", "a", "boom", 5), ("in", "a", "a", 6)])
    long_keys = [stream(key="long", value="double"), ("n", "stream_group_by_key", "s", {"key": "long", "value": "double"})]
    long_keys += [("r", "grouped_reduce", "n", {"fn": "sum"}), *out_table("r", key="long", value="double")]
    steps = [("in", 1, 0.5, 1), ("in", -1, 1.25, 2), ("in", 1, 2.0, 3)]
    yield fixed("numbers are sorted as their bytes", long_keys, steps, topics={"in": ("long", "double")})


def _processing(name: str, fn: str, kind: dict[str, Any] | None, steps: list[Any], **args: Any) -> Case:
    ops: list[Any] = [stream()]
    if kind is not None:
        ops.append(("d", "builder_add_state_store", {"name": "kept", "key": "string", "value": "string", **kind}))
        args |= {"uses": "kept", "stores": ["kept"]}
    return fixed(name, [*ops, ("n", "stream_process", "s", {"fn": fn, **args}), out("n")], steps)


def processors() -> Iterator[Case]:
    """Processors with stores and timers."""
    plain = {"kind": "key_value"}
    yield _processing("a processor counts", "counting", {**plain, "value": "long"}, [*MIXED])
    yield _processing("stream-time timers", "stream_timer", plain, [*MIXED, ("in", "b", "b", 47)], interval=10)
    yield _processing(
        "wall-clock timers, cancelled", "wall_timer", plain, [*MIXED, 25, 10, ("in", "b", "c", 9), 10, 50], interval=10
    )
    yield _processing("window store of a processor", "windowing", {"kind": "window", "retention": 60, "size": 10}, [*MIXED])
    expiring = [("in", "a", "a", 0), ("in", "a", "b", 60), ("in", "a", "c", 1), ("in", "a", "d", 130_000), ("in", "a", "e", 10)]
    yield _processing("a window store expires", "windowing", {"kind": "window", "retention": 60, "size": 10}, [*expiring])
    duplicates = {"kind": "window", "retention": 60, "size": 10, "duplicates": True}
    yield _processing("a window store with duplicates", "windowing", duplicates, [*MIXED, ("in", "a", "b", 1)])
    yield _processing("session store of a processor", "sessions", {"kind": "session", "retention": 60}, [*MIXED])
    versions = [("in", "a", "1", 10), ("in", "a", "2", 5), ("in", "a", None, 7), ("in", "a", "3", 40), ("in", "a", "4", 19)]
    yield _processing("versioned store of a processor", "versions", {"kind": "versioned", "history": 20}, [*versions])
    yield _processing("timestamped store of a processor", "timestamped", {"kind": "timestamped"}, [*MIXED])
    yield _processing("ranges of a store", "ranges", plain, [*MIXED, ("in", "ab", "b", 1), ("in", "b", None, 1)])
    yield _processing("a processor adds a header", "add_header", None, [*MIXED])
    yield _processing("a processor changes time", "retime", None, [*MIXED])
    values = [stream(), ("n", "stream_process_values", "s", {"fn": "fixed_retime"}), ("g", "stream_group_by_key", "n")]
    yield fixed("process_values keeps the key", [*values, ("c", "grouped_count", "g"), *out_table("c", value="long")], MIXED)
    kept = ("d", "builder_add_state_store", {"name": "kept", "kind": "key_value", "key": "string", "value": "long"})
    transform = {"fn": "value_counting", "uses": "kept", "stores": ["kept"], "store": {"name": "result"}}
    yield fixed(
        "transform_values with a store", [table(), kept, ("n", "table_transform_values", "t", transform), *out_table("n")], MIXED
    )
    spec = {"args": {"name": "all", "kind": "key_value", "key": "string", "value": "string"}}
    fill = ("g", "builder_add_global_store", {"topic": "fill", "uses": "all", "key": "string", "value": "string", "global": spec})
    lookup = [stream(), fill, ("n", "stream_process", "s", {"fn": "lookup", "uses": "all"}), out("n")]
    yield fixed("a global store is filled and read", lookup, [("fill", "a", "A", 1), *MIXED, ("fill", "a", None, 2), *MIXED])


def topology() -> Iterator[Case]:
    """The Processor API without the DSL."""
    source = ("s", "topology_add_source", {"name": "source", "topics": ["in"]})
    route = {"name": "router", "fn": "router", "parents": ["source"], "children": ["left", "right"]}
    routed = [
        source,
        ("r", "topology_add_processor", route),
        ("a", "topology_add_processor", {"name": "left", "fn": "add_header", "parents": ["router"]}),
        ("b", "topology_add_processor", {"name": "right", "fn": "retime", "parents": ["router"]}),
        ("x", "topology_add_sink", {"name": "sink", "topic": "out", "parents": ["left", "right"]}),
    ]
    yield fixed("forwarding to one child", routed, MIXED, kind="topology")
    counted = [
        source,
        ("p", "topology_add_processor", {"name": "count", "fn": "counting", "uses": "n", "parents": ["source"]}),
        ("d", "topology_add_state_store", {"name": "n", "kind": "key_value", "key": "string", "value": "long"}),
        ("c", "topology_connect", {"processor": "count", "stores": ["n"]}),
        ("x", "topology_add_sink", {"name": "sink", "topic": "out", "fn": "by_mix", "parents": ["count"]}),
    ]
    yield fixed("connecting a store afterwards", counted, MIXED, kind="topology")
    spec = {"args": {"name": "all", "kind": "key_value", "key": "string", "value": "string"}}
    for verb, name in (("global", "a global store of a topology"), ("read_only", "a read-only store of a topology")):
        fill = {"name": "filling", "topic": "fill", "processor": "filler", "uses": "all", "key": "string", "value": "string"}
        ops = [
            source,
            ("g", f"topology_add_{verb}_store", {**fill, "global": spec}),
            ("p", "topology_add_processor", {"name": "look", "fn": "lookup", "uses": "all", "parents": ["source"]}),
            *([("c", "topology_connect", {"processor": "look", "stores": ["all"]})] if verb == "read_only" else []),
            ("x", "topology_add_sink", {"name": "sink", "topic": "out", "parents": ["look"]}),
        ]
        yield fixed(name, ops, [("fill", "a", "A", 1), *MIXED, ("fill", "a", None, 2), *MIXED], kind="topology")
