"""A topology for programs: nodes, stores and exchanges as plain values for JSON."""

from __future__ import annotations

from typing import Any

from penstock.topology.graph import Topology
from penstock.topology.nodes import Node, SinkNode, SourceNode


def json_view(topology: Topology) -> dict[str, Any]:
    """Return the nodes with their parents, stores and topics, in topological order; the stores; the exchanges."""
    groups = {name: number for number, group in enumerate(topology.groups()) for name in group}
    return {
        "nodes": [{"name": name, "sub_topology": groups[name], **_node(node)} for name, node in topology.nodes.items()],
        "stores": [
            {"name": name, "kind": spec.kind.value, "global": name in topology.global_stores, "logged": spec.logged}
            for name, spec in topology.stores.items()
        ],
        "exchanges": list(topology.exchanges),
    }


def _node(node: Node) -> dict[str, Any]:
    if isinstance(node, SourceNode):
        pattern = None if node.pattern is None else node.pattern.pattern
        schedule = None if node.schedule is None else str(node.schedule)
        about = {"topics": node.topics, "pattern": pattern, "schedule": schedule, "internal": node.internal}
        return {"kind": "source", "parents": (), **about, "line": str(node.line)}
    if isinstance(node, SinkNode):
        topic = node.topic if isinstance(node.topic, str) else None  # a function chooses it per record
        return {"kind": "sink", "parents": node.parents, "topic": topic, "internal": node.internal, "line": str(node.line)}
    return {
        "kind": "processor",
        "parents": node.parents,
        "operator": type(node.operator).__name__,
        "stores": (*node.stores, *(store for store, _ in node.shared)),
        "side_outputs": dict(node.side_outputs),
        "line": str(node.line),
    }
