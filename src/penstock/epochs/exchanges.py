"""What exchanges carry: not the values of records that are only counted, since nobody reads those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from penstock.operators.counts import one_more
from penstock.serdes.presence import Presence
from penstock.topology import Node, ProcessorNode, SinkNode, SourceNode


def without_unread_values(nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Return the nodes with exchanges that leave out the values of records that are only counted."""
    sources = [node for node in nodes.values() if isinstance(node, SourceNode) and node.internal]
    counted = {topic for source in sources if _is_counted(nodes, source) for topic in source.topics}
    return {name: _lightened(node, counted) for name, node in nodes.items()}


def _is_counted(nodes: Mapping[str, Node], source: SourceNode) -> bool:
    below = [node for node in nodes.values() if source.name in getattr(node, "parents", ())]
    return bool(below) and all(
        isinstance(node, ProcessorNode) and getattr(node.operator, "aggregator", None) is one_more for node in below
    )


def _lightened(node: Node, counted: set[str]) -> Node:
    if isinstance(node, SourceNode) and node.internal and counted.issuperset(node.topics):
        return replace(node, value=Presence())
    if isinstance(node, SinkNode) and node.internal and node.topic in counted:
        return replace(node, value=Presence())
    return node
