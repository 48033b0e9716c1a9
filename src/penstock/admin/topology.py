"""`/topology`: the graph as JSON, and in the forms that people read (`?format=text`, `?format=mermaid`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.admin.answers import Json, refuse
from penstock.running.running import Running
from penstock.topology import Topology
from penstock.topology.nodes import Node, SinkNode, SourceNode

_FORMS: dict[str, tuple[Callable[[Topology], str], str]] = {
    "text": (Topology.describe, "text/plain"),
    "mermaid": (Topology.mermaid, "text/plain"),
}


def routes(running: Running) -> list[Route]:
    """The routes of this module."""

    async def topology(request: Request) -> Response:
        form = request.query_params.get("format", "json")
        if form == "json":
            return Json(graph(running.topology))
        if form not in _FORMS:
            refuse(f"format is json, {' or '.join(_FORMS)}")
        draw, media_type = _FORMS[form]
        return Response(draw(running.topology), media_type=media_type)

    return [Route("/topology", topology)]


def graph(topology: Topology) -> dict[str, Any]:
    """Nodes with their parents, stores and topics, in topological order; stores; exchanges."""
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
