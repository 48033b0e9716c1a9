"""Operators on tables that the generator can add."""

from __future__ import annotations

from dataclasses import replace

from verification.conformance.aggregations import AGGREGATIONS, windowed
from verification.conformance.draft import Draft, Handle
from verification.conformance.spec import Args
from verification.conformance.streams import VALUE_TYPES, declare_store


def _kept(source: Handle, store: Args | None, draft: Draft) -> Handle:
    named = store or {}
    return replace(
        source,
        key_known=source.key_known or "key" in named,
        value_known=source.value_known or "value" in named,
        versioned=draft.is_versioned(store) if store and "name" in store else source.versioned,
    )


def _store(draft: Draft, source: Handle, value: str, *, history: bool = True) -> Args | None:
    """A table's own operations pass no serdes to the store of their result: serdes other than text must be named."""
    return draft.store(replace(source, key_known=False), value, known=False, history=history and source.key == "string")


def table_filter(draft: Draft, verb: str) -> None:
    """Filter or filter_not of a table."""
    source = draft.some_table()
    fn = draft.choice(("any", "most", "not_x") if verb == "filter" else ("even",))
    store = _store(draft, source, source.value)
    draft.step(f"table_{verb}", (source,), _kept(source, store, draft), fn=fn, store=store, name=draft.name())


def map_values(draft: Draft, *, keyed: bool) -> None:
    """The values of a table, mapped with or without their keys."""
    source = draft.some_table()
    plain = ("tag_null", "null_x", "length", "utf8") if draft.chance(0.4) else ("tag_null", "null_x")
    fn = draft.choice(("keyed", "keyed_null_x") if keyed else plain)
    value = VALUE_TYPES.get(fn, "string")
    store = _store(draft, source, value)
    result = _kept(replace(source, value=value, value_known=False), store, draft)
    draft.step("table_map_values", (source,), result, fn=fn, with_key=keyed or None, store=store, name=draft.name())


def transform_values(draft: Draft, transformer: str) -> None:
    """transform_values of a table, stateless or with its own store."""
    source = draft.some_table()
    uses = declare_store(draft, transformer)
    store = _store(draft, source, "string", history=False)
    if uses is not None:
        # A join that reads an unmaterialised transformation would need its stores, and has no access to them.
        store = {**(store or {"key": source.key}), "name": draft.fresh("store")}
    result = _kept(replace(source, value="string", value_known=False, key_known=False), store, draft)
    stores = [uses] if uses else None
    draft.step(
        "table_transform_values", (source,), result, fn=transformer, uses=uses, stores=stores, store=store, name=draft.name()
    )


def to_stream(draft: Draft) -> Handle:
    """A table's changes as a stream, sometimes under another key."""
    source = draft.some_table()
    return changes(draft, source, fn=draft.choice(("by_key", "by_head")) if draft.chance(0.25) else None)


def changes(draft: Draft, source: Handle, fn: str | None = None) -> Handle:
    """The table's changes as a stream."""
    result = replace(source, kind="stream", versioned=False)
    if fn is not None:
        result = replace(result, key="string", key_known=False, windows=None)
    return draft.step("table_to_stream", (source,), result, fn=fn, name=draft.name())


def suppress_limit(draft: Draft) -> None:
    """Updates suppressed for a while, or until the buffer is full."""
    fits = [handle for handle in draft.handles if handle.kind == "table" and handle.carried and not handle.versioned]
    source = draft.choice(fits) if fits else draft.new_table("string", "string")
    if source.versioned:
        source = windowed(draft, "tumbling", "count", on_close=False, explicit=True)
    buffer: Args | None = None
    if draft.chance(0.5):
        buffer = {"records": draft.choice((1, 2, 3)), "full": "emit"} if draft.chance(0.8) else {"bytes": 1, "full": "emit"}
    elif draft.chance(0.1):
        buffer = {"records": draft.choice((2, 100)), "full": "stop"}
    limit = draft.choice((0, 1, 5, 20))
    draft.step("table_suppress", (source,), source, until="time_limit", limit=limit, buffer=buffer, name=draft.name())


def suppress_close(draft: Draft) -> None:
    """Only the final result of each window."""
    fits = [
        handle
        for handle in draft.handles
        if handle.kind == "table" and handle.carried and handle.windows and "size" in handle.windows
    ]
    if fits and draft.chance(0.5):
        source = draft.choice(fits)
    else:
        kind = draft.choice(("tumbling", "hopping", "sliding", "session"))
        source = windowed(draft, kind, draft.choice(AGGREGATIONS), on_close=False, explicit=True)
    buffer = {"records": draft.choice((3, 1000)), "full": "stop"} if draft.chance(0.15) else None
    draft.step("table_suppress", (source,), source, until="window_closes", buffer=buffer, name=draft.name())


def join_table(draft: Draft, kind: str) -> None:
    """Two tables on their common key."""
    left = draft.some_table()
    right = draft.other("table", left) or left
    if not (left.readable and right.readable):
        left, right = draft.new_table(), draft.new_table()
    store = _store(draft, left, "string")
    fn = draft.choice(("pair", "pair", "pair_null_x"))
    named = store or {}
    result = Handle(
        "",
        "table",
        left.key,
        key_known=(left.key_known and right.key_known) or "key" in named,
        value_known="value" in named,
        windows=left.windows if right.windows == left.windows else None,
        versioned=draft.is_versioned(store) if "name" in named else left.versioned and right.versioned,
    )
    draft.step("table_join_table", (left, right), result, kind=kind, fn=fn, store=store, name=draft.name())


def join_foreign(draft: Draft, kind: str) -> None:
    """A table refers to another by a foreign key in its value."""
    plain = [handle for handle in draft.handles if handle.kind == "table" and handle.plain_key and handle.carried]
    left = draft.choice(plain) if plain and draft.chance(0.7) else draft.new_table()
    right = draft.pick("table", key="string")
    if right is None or not right.carried or right.id == left.id or draft.chance(0.4):
        right = draft.new_table()
    keyed = draft.chance(0.5)
    on = "fk_either" if keyed else draft.choice(("fk_head", "fk_last"))
    store = _store(draft, left, "string", history=False)
    named = store or {}
    result = Handle("", "table", left.key, key_known=left.key_known or "key" in named, value_known="value" in named)
    fn = draft.choice(("pair", "pair", "pair_null_x"))
    draft.step(
        "table_join_foreign",
        (left, right),
        result,
        kind=kind,
        fn=fn,
        on=on,
        with_key=keyed or None,
        store=store,
        name=draft.name(),
    )
