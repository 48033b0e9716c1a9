"""Topologies of the Processor API that the generator can write."""

from __future__ import annotations

from verification.conformance.draft import Draft
from verification.conformance.streams import STORES_OF

PROCESSORS = (*(name for name in STORES_OF if not name.startswith(("fixed", "value"))), "add_header", "retime", "metadata")


def _source(draft: Draft) -> str:
    name = draft.fresh("source")
    timestamp = draft.choice(("shift", "stuck_x", "negative_x")) if draft.chance(0.1) else None
    text = {"key": "string", "value": "string"} if draft.chance(0.5) else {}
    if draft.chance(0.15):
        stem = draft.fresh("p")
        for suffix in ("x", "y"):
            draft.topics[f"{stem}-{suffix}"] = ("string", "string")
        draft.add("topology_add_source", (), name=name, pattern=f"{stem}-.*", timestamp=timestamp, **text)
    else:
        topics = [draft.topic("string", "string") for _ in range(draft.choice((1, 1, 2)))]
        draft.add("topology_add_source", (), name=name, topics=topics, timestamp=timestamp, **text)
    return name


def _parents(draft: Draft, nodes: list[str]) -> list[str]:
    first = nodes[-1] if draft.chance(0.7) else draft.choice(nodes)
    second = draft.choice(nodes)
    return [first, second] if second != first and draft.chance(0.25) else [first]


def _processor(draft: Draft, fn: str, nodes: list[str]) -> str:
    name = draft.fresh("processor")
    store = draft.fresh("store") if fn in STORES_OF else None
    intervals = {"stream_timer": (1, 5, 10), "wall_timer": (1, 10, 1000)}
    interval = draft.choice(intervals[fn]) if fn in intervals else None
    draft.add("topology_add_processor", (), name=name, fn=fn, parents=_parents(draft, nodes), uses=store, interval=interval)
    if store:
        connected = draft.chance(0.5)
        spec = STORES_OF[fn]
        processors = None if connected else [name]
        draft.add("topology_add_state_store", (), name=store, key="string", processors=processors, **spec)
        if connected:
            draft.add("topology_connect", (), processor=name, stores=[store])
    return name


def _global(draft: Draft, nodes: list[str], *, read_only: bool) -> str:
    """A store that is filled from a topic and read by a processor."""
    store = draft.fresh("lookup-store")
    topic = draft.topic("string", "string", table=True)
    spec = {"name": store, "kind": "key_value", "key": "string", "value": "string"}
    verb = "topology_add_read_only_store" if read_only else "topology_add_global_store"
    source, filler = draft.fresh("filling"), draft.fresh("filler")
    draft.add(
        verb,
        (),
        name=source,
        topic=topic,
        processor=filler,
        uses=store,
        key="string",
        value="string",
        **{"global": {"args": spec}},
    )
    name = draft.fresh("processor")
    draft.add("topology_add_processor", (), name=name, fn="lookup", parents=_parents(draft, nodes), uses=store)
    if read_only:
        draft.add("topology_connect", (), processor=name, stores=[store])
    return name


def _sink(draft: Draft, parents: list[str]) -> None:
    topic = draft.fresh("out")
    fn = draft.choice(("by_mix", "by_time")) if draft.chance(0.2) else None
    text = {"key": "string", "value": "string"} if draft.chance(0.5) else {}
    draft.add("topology_add_sink", (), name=draft.fresh("sink"), topic=topic, fn=fn, parents=parents, **text)


def _router(draft: Draft, nodes: list[str]) -> list[str]:
    children = [draft.fresh("child"), draft.fresh("child")]
    draft.add(
        "topology_add_processor", (), name=(name := draft.fresh("router")), fn="router", parents=[nodes[-1]], children=children
    )
    for child in children:
        draft.add("topology_add_processor", (), name=child, fn=draft.choice(("add_header", "retime", "metadata")), parents=[name])
    return children


def compose(draft: Draft, focus: str) -> None:
    """One or two sources, up to four processors, a sink under every leaf."""
    nodes = [_source(draft) for _ in range(draft.choice((1, 1, 2)))]
    sources = set(nodes)
    for index in range(draft.choice((1, 2, 3))):
        kind = focus if index == 0 else draft.choice(("processor", "processor", "router", "global", "read_only"))
        if kind == "router":
            nodes.extend(_router(draft, nodes))
        elif kind in {"global", "read_only"}:
            nodes.append(_global(draft, nodes, read_only=kind == "read_only"))
        else:
            nodes.append(_processor(draft, kind if kind in PROCESSORS else draft.choice(PROCESSORS), nodes))
    used = {parent for op in draft.ops for parent in op.args.get("parents", ())}
    leaves = [node for node in nodes if node not in used]
    for leaf in leaves:
        _sink(draft, [leaf])
    inner = [node for node in nodes if node in used and node not in sources]
    if inner and draft.chance(0.3):
        _sink(draft, [draft.choice(inner)])
