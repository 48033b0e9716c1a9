"""Operators that the generator can add around groups: aggregations, windows, cogroups."""

from __future__ import annotations

from dataclasses import replace

from verification.conformance.draft import Draft, Handle
from verification.conformance.spec import Args

WINDOWS = ("tumbling", "hopping", "sliding", "session", "unlimited")
AGGREGATIONS = ("count", "reduce", "aggregate", "agg")


def windows(draft: Draft, kind: str) -> Args:
    """Windows small enough for a few dozen records to cross several of them."""
    if kind == "unlimited":
        return {"type": kind, "start": draft.choice((0, 0, 5, 20))}
    size = draft.choice((1, 5, 10, 10, 20))
    grace = draft.choice((0, 1, 5, 15, 40)) if draft.chance(0.65) else None
    spec: Args = {"type": kind, "size": size}
    if kind == "hopping":
        spec["size"] = draft.choice((5, 10, 12))
        spec["advance"] = draft.choice((1, 3, 5))
    if grace is not None:
        spec["grace"] = grace
    return spec


def windowed_key(key: str, spec: Args) -> str:
    """The serde of a windowed key."""
    if spec["type"] == "session":
        return f"session:{key}"
    return f"time:{key}:{spec.get('size', 2**63 - 1)}"


def group(draft: Draft, source: Handle, *, by_key: bool | None = None, named: bool = False, explicit: bool = False) -> Handle:
    """Group by the current key, or by another.

    If any serde of the grouping is given, Kafka Streams inherits neither: give both, or none.
    """
    name = draft.fresh("named") if named else draft.name()
    same_key = draft.chance(0.5) if by_key is None else by_key
    fn = None if same_key else draft.choice(("by_head", "by_key", "by_key_head", "null_x_key"))
    keyed = source if same_key else replace(source, key="string", key_known=False)
    if name is None and keyed.carried and not explicit and draft.chance(0.5):
        key = value = None
    else:
        keyed = replace(keyed, key_known=False, value_known=False)
        key = keyed.key if explicit else draft.key_serde(keyed)
        value = keyed.value if explicit else draft.value_serde(keyed)
    known = replace(
        keyed, kind="grouped", key_known=keyed.key_known or key is not None, value_known=keyed.value_known or value is not None
    )
    verb = "stream_group_by_key" if same_key else "stream_group_by"
    return replace(known, id=draft.add(verb, (source,), fn=fn, key=key, value=value, name=name))


def _functions(draft: Draft, how: str, value: str) -> tuple[Args, str]:
    """The functions of an aggregation and the type of its result."""
    if how == "count":
        return {}, "long"
    if how == "reduce":
        names = {"string": ("glue", "last", "first", "null_on_x"), "bytes": ("last", "first"), "json": ("last", "first")}
        return {"fn": draft.choice(names.get(value, ("sum", "last")))}, value
    if how == "agg":
        return {"fields": _fields(draft, value)}, "json"
    kind = draft.choice(("concat", "concat", "concat", "drop_x", "keyed_concat", "add_length", "add_half"))
    if kind == "add_length":
        return {"fn": kind, "init": draft.choice(("zero", "nothing"))}, "long"
    if kind == "add_half":
        return {"fn": kind, "init": "zero_double"}, "double"
    return {"fn": kind, "init": draft.choice(("empty", "empty", "nothing"))}, "string"


def _fields(draft: Draft, value: str, *, of_table: bool = False) -> Args:
    """Some named aggregates of values of a type."""
    counts, numbers = ("all", "count"), ("all", "count", "sum")
    known = {"string": (*counts, "min", "max", "first", "last"), "bytes": counts, "json": counts}
    functions = numbers if of_table else known.get(value, (*numbers, "min", "max", "first", "last"))
    return {f"f{number}": draft.choice(functions) for number in range(draft.choice((1, 2, 3)))}


def _merger(functions: Args) -> str:
    return {"add_length": "merge_long", "add_half": "merge_double"}.get(functions["fn"], "merge")


def _result(grouped: Handle, value: str, store: Args | None, how: str) -> Handle:
    named = store or {}
    known = how == "count" or (how == "reduce" and grouped.value_known) or "value" in named
    return replace(
        grouped, kind="table", value=value, value_known=known, key_known=grouped.key_known or "key" in named,
        versioned="history" in named,
    )  # fmt: skip


def _inherits(grouped: Handle, how: str) -> bool:
    return how == "count" or (how == "reduce" and grouped.value_known)


def aggregate(draft: Draft, how: str) -> Handle:
    """An aggregation without windows."""
    grouped = group(draft, draft.some_stream())
    functions, value = _functions(draft, how, grouped.value)
    store = draft.store(grouped, value, known=_inherits(grouped, how), history=grouped.key == "string")
    result = _result(grouped, value, store, how)
    return draft.step(f"grouped_{how}", (grouped,), result, **functions, store=store, name=draft.name())


def windowed(draft: Draft, kind: str, how: str, *, on_close: bool | None = None, explicit: bool = False) -> Handle:
    """An aggregation per window."""
    grouped = group(draft, draft.some_stream(plain=True), explicit=explicit)
    spec = windows(draft, kind)
    strict = kind != "unlimited" and (draft.chance(0.2) if on_close is None else on_close)
    emit = "close" if strict else ("update" if draft.chance(0.1) else None)
    by = replace(grouped, id=draft.add("grouped_windowed_by", (grouped,), windows=spec, emit=emit))
    functions, value = _functions(draft, how, grouped.value)
    if kind == "session" and how == "aggregate":
        functions["merger"] = _merger(functions)
    spare = spec["size"] + spec.get("grace", 0) if kind != "unlimited" else None
    store = draft.store(
        grouped, value, known=_inherits(grouped, how) and not explicit, spare=spare if kind != "sliding" else spare and spare * 2
    )
    verb = f"sessions_{how}" if kind == "session" else f"windowed_{how}"
    result = replace(_result(grouped, value, store, how), key=windowed_key(grouped.key, spec), windows=spec)
    return draft.step(verb, (by,), result, **functions, store=store, name=draft.name())


def cogroup(draft: Draft, kind: str | None) -> Handle:
    """Two or three streams aggregated into one table, with or without windows."""
    first = group(draft, draft.some_stream(plain=True))
    cogrouped = replace(first, id=draft.add("grouped_cogroup", (first,), fn="concat"))
    # Kafka Streams refuses two unnamed repartitions in one cogroup: all but the first have a name.
    alone = True
    for _ in range(draft.choice((0, 1, 1, 2))):
        source = draft.other("stream", replace(first, kind="stream"))
        if source is None:
            break
        another = group(draft, source, by_key=True if first.key != "string" else None, named=True)
        alone = False
        fn = draft.choice(("minus", "keyed_concat", "drop_x"))
        cogrouped = replace(cogrouped, id=draft.add("cogrouped_cogroup", (cogrouped, another), fn=fn))
    # A cogroup inherits no serde from its groups.
    first = replace(first, key_known=False, value_known=False)
    if kind is None:
        store = draft.store(first, "string", known=False, history=first.key == "string")
        result = _result(first, "string", store, "aggregate")
        return draft.step("cogrouped_aggregate", (cogrouped,), result, init="empty", store=store, name=draft.name())
    spec = windows(draft, kind)
    by = replace(cogrouped, id=draft.add("cogrouped_windowed_by", (cogrouped,), windows=spec))
    store = draft.store(first, "string", known=False)
    if not alone:  # see left_out: which windows a cache shows if they are closed for one stream and not for another
        store = {**(store or {}), "caching": False}
    result = _result(first, "string", store, "aggregate")
    result = replace(result, key=windowed_key(first.key, spec), windows=spec, readable=False)
    session = kind == "session"
    return draft.step(
        "sessions_aggregate" if session else "windowed_aggregate",
        (by,),
        result,
        init="empty",
        merger="merge" if session else None,
        store=store,
        name=draft.name(),
    )


def regroup(draft: Draft, how: str) -> Handle:
    """A table grouped by something else and aggregated again, with a subtractor."""
    source = draft.some_table()
    fn = "head_length" if how == "agg" else draft.choice(("head_tag", "swap", "keep_tag"))
    key = "string" if draft.chance(0.5) else None
    value = "long" if how == "agg" else "string" if draft.chance(0.5) else None
    grouped = Handle("", "regrouped", key_known=key is not None, value_known=value is not None)
    grouped = replace(grouped, id=draft.add("table_group_by", (source,), fn=fn, key=key, value=value, name=draft.name()))
    functions, result_type = _table_functions(draft, how)
    store = draft.store(grouped, result_type, known=_inherits(grouped, how), history=grouped.key == "string")
    result = _result(grouped, result_type, store, how)
    return draft.step(f"regrouped_{how}", (grouped,), result, **functions, store=store, name=draft.name())


def _table_functions(draft: Draft, how: str) -> tuple[Args, str]:
    if how == "count":
        return {}, "long"
    if how == "reduce":
        return {"fn": draft.choice(("glue", "null_on_x", "last")), "subtract": draft.choice(("unglue", "first"))}, "string"
    if how == "agg":
        return {"fields": _fields(draft, "long", of_table=True)}, "json"
    fn, subtract, init, value = draft.choice(
        (
            ("concat", "minus", "empty", "string"),
            ("concat", "minus", "nothing", "string"),
            ("drop_x", "minus", "empty", "string"),
            ("add_length", "take_length", "zero", "long"),
            ("add_half", "take_half", "zero_double", "double"),
        )
    )
    return {"fn": fn, "subtract": subtract, "init": init}, value
