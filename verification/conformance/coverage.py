"""Which verbs, windows and joins a case exercises: those whose records reach an output, an effect or a store."""

from __future__ import annotations

from typing import Any

from verification.conformance.spec import Case, Op

WINDOW_VERBS = {"grouped_windowed_by", "cogrouped_windowed_by"}


def features(op: Op) -> set[str]:
    """The names under which an operation is counted."""
    args = op.args
    found = {op.verb}
    if args.get("with_key"):
        found.add(f"{op.verb}(with_key)")
    if "_join_" in op.verb:
        graced = "+grace" if op.verb == "stream_join_table" and "grace" in args else ""
        found.add(f"{op.verb}:{args['kind']}{graced}")
    if op.verb in WINDOW_VERBS:
        found.add(f"windows:{args['windows']['type']}")
        if args.get("emit") == "close":
            found.add(f"emit on close:{args['windows']['type']}")
    if op.verb == "table_suppress":
        found.add(f"suppress:{args['until']}")
    if "process" in op.verb and "fn" in args:
        found.add(f"processor:{args['fn']}")
    if "history" in args.get("store", {}):
        found.add("versioned table")
    return found


def exercised(case: Case, result: dict[str, Any]) -> set[str]:
    """The features of all operations with a visible effect in the oracle's result."""
    if "error" in result:
        return set()
    alive = _evident(case, result)
    below = _edges(case)
    changed = True
    while changed:
        reached = {upper for upper, lower in below if lower in alive} - alive
        alive |= reached
        changed = bool(reached)
    return {feature for op in case.ops if op.id in alive for feature in features(op)}


def _evident(case: Case, result: dict[str, Any]) -> set[str]:
    """Operations that themselves wrote a record, had an effect or filled a store."""
    stores = {name for name, content in result["stores"].items() if content.get("entries")}
    topics = {topic for topic, rows in result["outputs"].items() if rows}
    found = set()
    for op in case.ops:
        named = op.args.get("store", {}).get("name") if isinstance(op.args.get("store"), dict) else None
        declared = op.args.get("name") if op.verb.endswith("_state_store") else op.args.get("uses")
        topic = op.args.get("topic") if op.verb in {"stream_to", "stream_to_dynamic", "topology_add_sink"} else None
        wrote = topic is not None and any(name == topic or name.startswith(f"{topic}-") for name in topics)
        if wrote or result["effects"].get(op.id) or stores & {named, declared}:
            found.add(op.id)
    return found


def _edges(case: Case) -> set[tuple[str, str]]:
    """Pairs of operations where records of the first go to the second."""
    edges = {(name.split(".")[0], op.id) for op in case.ops for name in op.inputs}
    by_name = {op.args["name"]: op.id for op in case.ops if op.verb.startswith("topology_") and "name" in op.args}
    for op in case.ops:
        edges |= {(by_name[parent], op.id) for parent in op.args.get("parents", ()) if parent in by_name}
        if op.verb == "topology_connect":
            edges.add((op.id, by_name[op.args["processor"]]))
    return edges
