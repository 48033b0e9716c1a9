"""Sub-topologies: nodes that must run together because an edge or a shared store connects them."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.topology.nodes import Node, ProcessorNode


def node_groups(nodes: Mapping[str, Node], global_stores: Mapping[str, str]) -> list[list[str]]:
    """Groups in the order of their first node, each in topological order.

    Exchanges cut by themselves: an internal sink and the internal source behind it share no edge.
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
