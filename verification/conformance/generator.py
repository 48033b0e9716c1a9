"""Seeded composition of cases: the same seed and index always give the same case, whatever else was generated.

Each case has a focus, taken in turn, so that every verb, window and join comes up often; up to five random operators
follow, on whatever the case has so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import Random

from verification.conformance import aggregations, streams, tables, topologies
from verification.conformance.draft import KEYS, Draft, Handle
from verification.conformance.inputs import Script
from verification.conformance.scale import scaled
from verification.conformance.spec import Advance, Case, Op, Settings, durations

Operator = Callable[[Draft], object]

STREAM_PROCESSORS = tuple(topologies.PROCESSORS)
FIXED = ("fixed_tag", "fixed_retime", "fixed_scatter", "fixed_counting")
TRANSFORMERS = ("value_tag", "value_counting")

_STATELESS = ("filter", "filter_not", "select_key", "map", "map_values", "flat_map", "flat_map_values")

OPERATORS: dict[str, Operator] = {
    **{f"stream_{verb}": partial(streams.stateless, verb=verb) for verb in _STATELESS},
    "stream_map_values_with_key": partial(streams.stateless, verb="map_values", keyed=True),
    "stream_flat_map_values_with_key": partial(streams.stateless, verb="flat_map_values", keyed=True),
    "peek": streams.peek,
    "merge": streams.merge,
    "split": streams.split,
    "repartition": streams.repartition,
    "to_table": streams.to_table,
    "lookup": streams.lookup,
    **{f"process_{name}": partial(streams.process, processor=name) for name in STREAM_PROCESSORS},
    **{f"process_values_{name}": partial(streams.process_values, processor=name) for name in FIXED},
    **{f"join_stream_{kind}": partial(streams.join_stream, kind=kind) for kind in ("inner", "left", "outer")},
    **{f"join_table_{kind}": partial(streams.join_table, kind=kind) for kind in ("inner", "left")},
    **{f"join_table_graced_{kind}": partial(streams.join_table, kind=kind, graced=True) for kind in ("inner", "left")},
    **{f"join_global_{kind}": partial(streams.join_global, kind=kind) for kind in ("inner", "left")},
    **{how: partial(aggregations.aggregate, how=how) for how in aggregations.AGGREGATIONS},
    **{
        f"{kind}_{how}": partial(aggregations.windowed, kind=kind, how=how)
        for kind in aggregations.WINDOWS
        for how in aggregations.AGGREGATIONS
    },
    **{
        f"{kind}_on_close": partial(aggregations.windowed, kind=kind, how="aggregate", on_close=True)
        for kind in aggregations.WINDOWS
        if kind != "unlimited"
    },
    "cogroup": partial(aggregations.cogroup, kind=None),
    **{f"cogroup_{kind}": partial(aggregations.cogroup, kind=kind) for kind in aggregations.WINDOWS},
    **{f"regroup_{how}": partial(aggregations.regroup, how=how) for how in aggregations.AGGREGATIONS},
    **{f"table_{verb}": partial(tables.table_filter, verb=verb) for verb in ("filter", "filter_not")},
    "table_map_values": partial(tables.map_values, keyed=False),
    "table_map_values_with_key": partial(tables.map_values, keyed=True),
    **{f"transform_{name}": partial(tables.transform_values, transformer=name) for name in TRANSFORMERS},
    "to_stream": tables.to_stream,
    "suppress_limit": tables.suppress_limit,
    "suppress_close": tables.suppress_close,
    **{f"table_join_{kind}": partial(tables.join_table, kind=kind) for kind in ("inner", "left", "outer")},
    **{f"foreign_join_{kind}": partial(tables.join_foreign, kind=kind) for kind in ("inner", "left")},
}

TOPOLOGIES = ("router", "global", "read_only", "processor", *topologies.PROCESSORS)

SELDOM = (
    "suppress_close",
    "suppress_limit",
    "join_stream_inner",
    "join_global_inner",
    "join_table_inner",
    "join_table_graced_left",
    "table_join_inner",
    "foreign_join_inner",
    "foreign_join_left",
    "peek",
    "merge",
    "repartition",
    "count",
    "reduce",
)
"""Operators that are rarest by chance, or whose records are often dropped upstream: they are in focus more often."""

SCALED = 0.25
"""The part of cases with durations so long that their windows cross segments of stores."""

FOCI = (*OPERATORS, *SELDOM, *(f"topology:{name}" for name in TOPOLOGIES), "sink:foreach", "sink:print", "sink:dynamic")


def generate(seed: int, count: int) -> Iterator[Case]:
    """The first `count` cases of a seed."""
    for index in range(count):
        yield case(seed, index)


def case(seed: int, index: int) -> Case:
    """One case of a seed."""
    dice = Random(f"{seed}/{index}")
    focus = FOCI[index % len(FOCI)]
    draft = Draft(dice)
    kind = "topology" if focus.startswith("topology:") else "dsl"
    if kind == "topology":
        topologies.compose(draft, focus.removeprefix("topology:"))
    else:
        compose(draft, focus)
    drafted = _with_input(Case(f"{seed}/{index}", tuple(draft.ops), (), draft.topics, kind), draft)
    return scaled(drafted) if Random(f"scaled/{seed}/{index}").random() < SCALED else drafted


def compose(draft: Draft, focus: str, operators: Mapping[str, Operator] = OPERATORS) -> None:
    """A topology of the DSL around its focus."""
    names = list(operators)
    if draft.chance(0.3):
        operators[draft.choice(names)](draft)
    if focus in operators:
        operators[focus](draft)
    for _ in range(draft.choice((0, 0, 1, 1, 2, 3, 4, 5))):
        operators[draft.choice(names)](draft)
    if not any(handle.kind in {"stream", "table"} for handle in draft.handles):
        draft.new_stream()
    _sinks(draft, focus.removeprefix("sink:") if focus.startswith("sink:") else None)


def _sinks(draft: Draft, focus: str | None) -> None:
    """A sink under every leaf, and under some inner nodes."""
    used = {name for op in draft.ops for name in op.inputs}
    for handle in list(draft.handles):
        if handle.kind == "global" or (handle.id in used and not draft.chance(0.15)):
            continue
        stream = tables.changes(draft, handle) if handle.kind == "table" else handle
        _sink(draft, stream, focus)
        focus = None


def _sink(draft: Draft, stream: Handle, how: str | None) -> None:
    roll = draft.dice.random()
    if how == "foreach" or (how is None and roll < 0.05):
        draft.add("stream_foreach", (stream,), name=draft.name())
    elif how == "print" or (how is None and roll < 0.1):
        # Java prints an array as its address, a window by its class, a document as JSON: print these only through the mapper.
        plain = stream.plain_key and stream.value not in {"bytes", "json"}
        mapper = True if not plain or draft.chance(0.4) else None
        draft.add("stream_print", (stream,), label="said" if draft.chance(0.5) else None, mapper=mapper, name=draft.name())
    else:
        dynamic = how == "dynamic" or roll < 0.18
        draft.add(
            "stream_to_dynamic" if dynamic else "stream_to",
            (stream,),
            topic=draft.fresh("out"),
            fn=draft.choice(("by_mix", "by_time")) if dynamic else None,
            key=draft.key_serde(stream),
            value=draft.value_serde(stream),
            partitioner=True if draft.chance(0.05) else None,
            name=draft.name(),
        )


def _with_input(drafted: Case, draft: Draft) -> Case:
    dice = draft.dice
    script = Script(dice, draft.topics, draft.tables, durations(drafted))
    walls = 0.2 if waits_for_the_clock(drafted) else 0.04
    fails = any(op.args.get("fn") in {"fail", "fine"} for op in drafted.ops)
    steps = script.steps(dice.randrange(12, 45), walls=walls, boom=fails and draft.chance(0.5))
    times = sorted({step.at for step in steps if not isinstance(step, Advance)})
    settings = Settings(
        caching=draft.chance(0.4),
        engine="rocksdb" if draft.chance(0.1) else "mixed",
        wall_clock=dice.choice((0, 0, 1_000, 86_400_000)),
    )
    return replace(
        drafted,
        steps=steps,
        settings=settings,
        probe_keys=(*KEYS, "ab", "d", ""),
        probe_times=tuple(times[:: len(times) // 8 + 1]),
    )


def waits_for_the_clock(case: Case) -> bool:
    """Whether an operation waits for the wall clock."""
    return any(_by_wall_clock(op) for op in case.ops)


def _by_wall_clock(op: Op) -> bool:
    """Outer joins, windows that emit on close and wall-clock timers wait for the wall clock."""
    return op.args.get("kind") in {"left", "outer"} or op.args.get("emit") == "close" or op.args.get("fn") == "wall_timer"
