"""A topology in the forms that `penstock describe` knows."""

from __future__ import annotations

import importlib
import json
from typing import Any

from penstock.app import App
from penstock.errors import ConfigError
from penstock.plan import layout, plan
from penstock.topology import Node, ProcessorNode, SinkNode, SourceNode


def description(app: App, form: str) -> str:
    """The application's topology as `text`, `mermaid`, `json` or `svg`."""
    if form == "mermaid":
        return app.topology.mermaid()
    if form == "json":
        return json.dumps(_as_json(app), indent=2) + "\n"
    if form == "svg":
        return _as_svg(app)
    return app.topology.describe()


def _as_json(app: App) -> dict[str, Any]:
    topology = app.topology
    return {
        "application_id": app.application_id,
        "fingerprint": plan(topology).fingerprint,
        "nodes": [_node(node) for node in topology.nodes.values()],
        "stores": [
            {"name": name, **layout(spec), "logged": spec.logged, "global": name in topology.global_stores}
            for name, spec in topology.stores.items()
        ],
        "subtopologies": topology.groups(),
    }


def _node(node: Node) -> dict[str, Any]:
    found: dict[str, Any] = {"name": node.name, "parents": list(node.parents), "line": str(node.line)}
    if isinstance(node, SourceNode):
        return {**found, "kind": "source", "topics": list(node.topics), "pattern": node.pattern.pattern if node.pattern else None}
    if isinstance(node, SinkNode):
        return {**found, "kind": "sink", "topic": node.topic if isinstance(node.topic, str) else None}
    assert isinstance(node, ProcessorNode)
    operation = type(node.operator).__name__
    return {**found, "kind": "processor", "operation": operation, "stores": [*node.stores, *dict(node.shared)]}


def _as_svg(app: App) -> str:
    try:
        drawing, placing = (importlib.import_module(f"penstock.topology.{name}") for name in ("drawing", "layout"))
    except ModuleNotFoundError:
        raise ConfigError("describe: this version draws no SVG; use --format mermaid") from None
    return str(drawing.svg(placing.layout(app.topology)))
