"""Operators on streams that the generator can add: stateless steps, processors and joins."""

from __future__ import annotations

from dataclasses import replace

from verification.conformance.draft import Draft, Handle
from verification.conformance.spec import Args

VALUE_TYPES = {"length": "long", "half": "double", "utf8": "bytes"}


def stateless(draft: Draft, verb: str, *, keyed: bool = False) -> None:
    """filter, map and the like."""
    source = draft.some_stream()
    if verb in {"filter", "filter_not"}:
        fn = draft.choice(
            ("any", "value", "most", "not_x") if verb == "filter" else ("even", "fine") if draft.chance(0.1) else ("even",)
        )
        draft.step(f"stream_{verb}", (source,), source, fn=fn, name=draft.name())
    elif verb == "select_key":
        fn = draft.choice(("by_head", "by_key_head", "by_value", "by_key", "by_length", "null_x_key"))
        result = replace(source, key="long" if fn == "by_length" else "string", key_known=False, windows=None)
        draft.step("stream_select_key", (source,), result, fn=fn, name=draft.name())
    elif verb in {"map", "flat_map"}:
        fn = draft.choice(("swap", "head_tag", "keep_tag") if verb == "map" else ("fan", "fan_chars"))
        draft.step(f"stream_{verb}", (source,), Handle("", "stream"), fn=fn, name=draft.name())
    else:
        _values(draft, source, verb, keyed=keyed)


def _values(draft: Draft, source: Handle, verb: str, *, keyed: bool) -> None:
    if verb == "map_values":
        plain = ("tag", "tag_null", "null_x", "length", "half", "utf8") if draft.chance(0.5) else ("tag", "tag_null", "null_x")
        fn = draft.choice(("keyed", "keyed_null_x") if keyed else plain)
    else:
        fn = "keyed_twice" if keyed else draft.choice(("twice", "chars", "null_too"))
    result = replace(source, value=VALUE_TYPES.get(fn, "string"), value_known=False)
    draft.step(f"stream_{verb}", (source,), result, fn=fn, with_key=keyed or None, name=draft.name())


def peek(draft: Draft) -> None:
    """Observe the stream without changing it."""
    source = draft.some_stream()
    draft.step("stream_peek", (source,), source, name=draft.name())


def merge(draft: Draft) -> None:
    """Two streams of the same types."""
    left = draft.some_stream(plain=True)
    fits = [other for other in draft.handles if other.kind == "stream" and (other.key, other.value) == (left.key, left.value)]
    right = draft.choice(fits) if len(fits) > 1 and draft.chance(0.5) else draft.new_stream(left.key, left.value)
    draft.step("stream_merge", (left, right), replace(left, key_known=False, value_known=False), name=draft.name())


def split(draft: Draft) -> None:
    """Two or three branches, sometimes with a default; one of them ends here."""
    source = draft.some_stream()
    branches = [draft.choice(("even", "most", "not_x", "value")) for _ in range(draft.choice((1, 2)))]
    otherwise = draft.chance(0.6) or len(branches) == 1
    count = len(branches) + otherwise
    named = draft.chance(0.4)
    op = draft.add(
        "stream_split",
        (source,),
        branches=branches,
        otherwise=otherwise or None,
        names=[f"b{i}" for i in range(count)] if named else None,
        name=draft.fresh("split") + "-" if named else None,
    )
    for index in range(count):
        draft.keep(replace(source, id=f"{op}.{index}"))


def repartition(draft: Draft) -> None:
    """An explicit repartition."""
    source = draft.some_stream()
    # Kafka Streams passes on the value serde it knows, but not the key's.
    key, value = draft.key_serde(replace(source, key_known=False)), draft.value_serde(source)
    result = replace(source, key_known=source.key_known or key is not None, value_known=source.value_known or value is not None)
    partitions = 1 if draft.chance(0.2) else None
    draft.step("stream_repartition", (source,), result, key=key, value=value, partitions=partitions, name=draft.name())


def to_table(draft: Draft) -> None:
    """A stream read as a table."""
    source = draft.some_stream()
    store = draft.store(source, source.value, known=source.value_known, history=source.key == "string")
    if store is not None:
        # If any option of the store is given, it inherits neither serde.
        store |= {side: serde for side, serde in (("key", source.key), ("value", source.value)) if serde != "string"}
    draft.step(
        "stream_to_table",
        (source,),
        replace(
            source,
            kind="table",
            key_known=source.key_known or bool(store and "key" in store),
            value_known=source.value_known or bool(store and "value" in store),
            versioned=draft.is_versioned(store),
        ),
        store=store,
        name=draft.name(),
    )


STORES_OF: dict[str, Args] = {
    "counting": {"kind": "key_value", "value": "long"},
    "stream_timer": {"kind": "key_value", "value": "string"},
    "wall_timer": {"kind": "key_value", "value": "string"},
    "windowing": {"kind": "window", "value": "string", "retention": 60, "size": 10},
    "sessions": {"kind": "session", "value": "string", "retention": 60},
    "versions": {"kind": "versioned", "value": "string", "history": 20},
    "timestamped": {"kind": "timestamped", "value": "string"},
    "ranges": {"kind": "key_value", "value": "string"},
    "fixed_counting": {"kind": "key_value", "value": "long"},
    "value_counting": {"kind": "key_value", "value": "long"},
}
"""The store that a processor of the library needs."""


def declare_store(draft: Draft, processor: str, verb: str = "builder_add_state_store", **more: object) -> str | None:
    """Declare the store that the processor needs."""
    spec = STORES_OF.get(processor)
    if spec is None:
        return None
    name = draft.fresh("store")
    duplicates = True if spec["kind"] == "window" and draft.chance(0.3) else None
    draft.add(verb, (), name=name, key="string", duplicates=duplicates, **spec, **more)
    return name


def process(draft: Draft, processor: str) -> None:
    """A processor of the library. Its result has no serdes, so the key must be plain."""
    source = draft.some_stream(plain=True)
    store = declare_store(draft, processor)
    text_keys = processor in {"stream_timer", "wall_timer"}
    changes_value = processor not in {"add_header", "retime"}
    result = Handle("", "stream", "string" if text_keys else source.key, "string" if changes_value else source.value)
    interval = draft.choice((1, 5, 10, 50)) if text_keys else None
    if processor == "wall_timer":
        interval = draft.choice((1, 10, 1000))
    stores = [store] if store else None
    draft.step("stream_process", (source,), result, fn=processor, uses=store, stores=stores, interval=interval, name=draft.name())


def process_values(draft: Draft, processor: str) -> None:
    """A fixed-key processor of the library."""
    source = draft.some_stream()
    store = declare_store(draft, processor)
    result = replace(source, value="string", value_known=False)
    stores = [store] if store else None
    draft.step("stream_process_values", (source,), result, fn=processor, uses=store, stores=stores, name=draft.name())


def lookup(draft: Draft) -> None:
    """A global store with its own processor, read by another processor."""
    source = draft.some_stream(plain=True)
    topic = draft.topic("string", "string", table=True)
    name = draft.fresh("global")
    kind = {"name": name, "kind": "key_value", "key": "string", "value": "string"}
    draft.add("builder_add_global_store", (), topic=topic, uses=name, key="string", value="string", **{"global": {"args": kind}})
    draft.step("stream_process", (source,), Handle("", "stream", source.key), fn="lookup", uses=name)


def _joiner(draft: Draft) -> tuple[str, bool | None]:
    if draft.chance(0.4):
        return "keyed_pair", True
    return draft.choice(("pair", "pair", "pair_null_x")), None


def join_stream(draft: Draft, kind: str) -> None:
    """Two streams within a window."""
    left = draft.some_stream()
    right = draft.other("stream", left) or left
    fn, with_key = _joiner(draft)
    before = draft.choice((0, 1, 5, 10))
    after = before if draft.chance(0.6) else draft.choice((0, 2, 7, 20))
    key = left.key if left.key != "string" or draft.chance(0.5) else None
    draft.step(
        "stream_join_stream",
        (left, right),
        Handle("", "stream", left.key, key_known=key is not None),
        kind=kind,
        fn=fn,
        with_key=with_key,
        within=[before, after],
        grace=draft.choice((0, 3, 10, 30)) if draft.chance(0.6) else None,
        key=key,
        value=left.value if left.value != "string" or draft.chance(0.3) else None,
        other_value=right.value if right.value != "string" or draft.chance(0.3) else None,
        name=draft.name(),
        store_name=draft.fresh("join-store") if draft.chance(0.15) else None,
    )


def join_table(draft: Draft, kind: str, *, graced: bool = False) -> None:
    """A stream joins a table."""
    left = draft.some_stream(key="string" if graced else None)
    right = draft.new_table(left.key, versioned=True) if graced else draft.other("table", left)
    if right is None or not right.readable:
        left = draft.new_stream()
        right = draft.new_table()
    fn, with_key = _joiner(draft)
    draft.step(
        "stream_join_table",
        (left, right),
        replace(left, value="string", value_known=False, key_known=left.key_known and left.key == "string"),
        kind=kind,
        fn=fn,
        with_key=with_key,
        grace=draft.choice((0, 1, 3, 5)) if graced else None,
        key=draft.key_serde(left),
        value=draft.value_serde(left),
        other_value=draft.value_serde(right),
        name=draft.name(),
    )


def join_global(draft: Draft, kind: str) -> None:
    """A stream joins a global table by any key."""
    left = draft.some_stream()
    right = draft.pick("global") or draft.new_global()
    fn, with_key = _joiner(draft)
    on = draft.choice(("by_head", "by_key", "by_key_head", "null_x_key"))
    result = replace(left, value="string", value_known=False)
    draft.step("stream_join_global", (left, right), result, kind=kind, fn=fn, with_key=with_key, on=on, name=draft.name())
