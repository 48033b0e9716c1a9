"""The path from a source to one node, on which a record is replayed to that node and no other.

All nodes on the path must be repeatable: they produce at most one record from each, from that record alone. Nodes with state
have already processed the record, and where one record became several, only one of them may have failed.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import TopologyError
from penstock.operators.stateless import Branch
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode


def source_of(nodes: Mapping[str, Node], topic: str) -> SourceNode:
    """Return the source that reads a topic."""
    for node in nodes.values():
        if isinstance(node, SourceNode) and not node.internal and node.reads(topic):
            return node
    raise TopologyError(f"the topology does not read {topic!r}")


def way_to(nodes: Mapping[str, Node], source: str, goal: str) -> frozenset[str]:
    """Return the names of all nodes on the path, both ends included; raise if the record cannot be replayed."""
    if goal not in nodes:
        raise TopologyError(f"the topology has no node {goal!r}")
    following = _following(nodes)
    way = _reached(following, source) & _reached(_reversed(following), goal)
    if not way:
        raise TopologyError(f"{goal!r} cannot be reached from {source!r}")
    for name in nodes:
        node = nodes[name]
        if name not in way or name == goal:
            continue
        if isinstance(node, ProcessorNode) and not node.operator.is_repeatable:
            raise TopologyError(
                f"{name!r}, between {source!r} and {goal!r} ({node.line}), has already processed the record: "
                f"it keeps state, or may produce several records from one"
            )
        ways = [child for child in following[name] if child in way]
        if len(ways) > 1 and not (isinstance(node, ProcessorNode) and isinstance(node.operator, Branch)):
            raise TopologyError(f"several paths lead from {name!r} to {goal!r}, through {', '.join(ways)}")
    return way


def _following(nodes: Mapping[str, Node]) -> dict[str, list[str]]:
    """Return where a record goes from each node: to its children, and from an internal sink to the sources of its exchange."""
    following: dict[str, list[str]] = {name: [] for name in nodes}
    for node in nodes.values():
        for parent in node.parents:
            following[parent].append(node.name)
        if isinstance(node, SinkNode) and node.internal:
            readers = (other for other in nodes.values() if isinstance(other, SourceNode) and other.internal)
            following[node.name] += [reader.name for reader in readers if node.topic in reader.topics]
    return following


def _reversed(following: Mapping[str, list[str]]) -> dict[str, list[str]]:
    before: dict[str, list[str]] = {name: [] for name in following}
    for name, others in following.items():
        for other in others:
            before[other].append(name)
    return before


def _reached(following: Mapping[str, list[str]], start: str) -> frozenset[str]:
    found, waiting = {start}, [start]
    while waiting:
        new = [name for name in following[waiting.pop()] if name not in found]
        found.update(new)
        waiting += new
    return frozenset(found)
