"""Groups of nodes: sub-topologies, nodes below sources with watermarks, sources above a processor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import TopologyError
from penstock.errors.lines import Line
from penstock.serdes import Serde
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode


def node_groups(nodes: Mapping[str, Node], global_stores: Mapping[str, str]) -> list[list[str]]:
    """Return the sub-topologies, ordered by their first node, each in topological order.

    An exchange separates them: its internal sink and internal source share no edge.
    """
    leader: dict[str, str] = {}

    def find(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    users: dict[str, str] = {}
    for node in nodes.values():
        leader[node.name] = node.name
        for parent in node.parents:
            leader[find(node.name)] = find(parent)
        if isinstance(node, ProcessorNode):
            for store in node.stores:
                if store not in global_stores:
                    leader[find(node.name)] = find(users.setdefault(store, node.name))
    groups: dict[str, list[str]] = {}
    for name in nodes:
        groups.setdefault(find(name), []).append(name)
    return list(groups.values())


def watermarked_nodes(nodes: Mapping[str, Node]) -> frozenset[str]:
    """Return the nodes that records of a source with a watermark can reach, through exchanges too."""
    reached: set[str] = set()
    exchanges: set[str] = set()
    before = -1
    while len(reached) > before:  # an exchange may lead back to nodes already visited
        before = len(reached)
        for node in nodes.values():
            if isinstance(node, SourceNode):
                is_below = node.watermark is not None or (node.internal and not exchanges.isdisjoint(node.topics))
            else:
                is_below = not reached.isdisjoint(node.parents)
            if is_below:
                reached.add(node.name)
                if isinstance(node, SinkNode) and node.internal:
                    exchanges.add(str(node.topic))
    return frozenset(reached)


def key_above(nodes: Mapping[str, Node], name: str, line: Line) -> Serde[Any]:
    """Return the key serde of the sources above a processor."""
    above, waiting = [], list(nodes[name].parents)
    while waiting:
        node = nodes[waiting.pop()]
        if isinstance(node, SourceNode):
            above.append(node)
        waiting += node.parents
    if any(source.key != above[0].key for source in above):
        known = ", ".join(f"{source.name}: {source.key!r}" for source in above)
        raise TopologyError(
            f"Timers of {name!r} are kept by key, but its sources have different key serdes ({known}; {line}). "
            f"Use one processor per key serde."
        )
    return above[0].key
