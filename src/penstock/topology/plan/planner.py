"""`plan(topology)`: cuts the graph into stages at its exchanges.

All inputs of a sub-topology enter in the same stage, so that a lane can merge them by time: the earliest stage in which every
exchange that feeds the sub-topology is full. A foreign-key join subscribes and gets responses, so its sub-topologies feed each
other: there a response enters in a later stage than its subscription. An atomic section has its own stage, after everything
that does not depend on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from penstock.expressions.functions import computed_in
from penstock.topology import Node, ProcessorNode, SinkNode, SourceNode, Topology
from penstock.topology.plan.layouts import printed_layout
from penstock.topology.plan.stages import Plan, Stage


def plan(topology: Topology) -> Plan:
    """Return the plan of a topology."""
    nodes = topology.nodes
    below = _reachable(nodes)
    global_sources = set(topology.global_stores.values())
    depths = _depths(topology, below)
    stages = []
    for depth in sorted(set(depths.values())):
        sources = [name for name, own in depths.items() if own == depth]
        reached = {name for source in sources for name in below[source]}
        stages.append(_stage(nodes, depth, sources, [name for name in nodes if name in reached]))
    topics = tuple(topic for name in nodes if name in global_sources for topic in _source(nodes, name).topics)
    return Plan(tuple(stages), topics, fingerprint(topology))


def fingerprint(topology: Topology) -> str:
    """Return a hash of what state depends on: the nodes with their stores and expressions, and the layout of each store."""
    digest = hashlib.sha256(topology.describe().encode())
    for name, spec in sorted(topology.stores.items()):
        digest.update(f"{name}={printed_layout(spec)}".encode())
    for node in topology.nodes.values():
        if isinstance(node, ProcessorNode):
            for computed in computed_in(node.operator):
                digest.update(f"{node.name}: {computed.describe()}".encode())
    return digest.hexdigest()[:16]


def _stage(nodes: Mapping[str, Node], depth: int, sources: list[str], reached: list[str]) -> Stage:
    members = [nodes[name] for name in reached]
    reads = [topic for name in sources if _source(nodes, name).internal for topic in _source(nodes, name).topics]
    topics = [_topics(_source(nodes, name)) for name in sources if not _source(nodes, name).internal]
    sinks = [node for node in members if isinstance(node, SinkNode)]
    processors = [node for node in members if isinstance(node, ProcessorNode)]
    stores = [store for node in processors for store in node.stores]
    shared = [store for node in processors for store, _ in node.shared]
    return Stage(
        depth,
        tuple(sources),
        tuple(reached),
        tuple(topic for names in topics for topic in names),
        tuple(reads),
        tuple(str(node.topic) for node in sinks if node.internal),
        tuple(dict.fromkeys(stores)),
        tuple(node.topic if isinstance(node.topic, str) else f"({node.name} chooses)" for node in sinks if not node.internal),
        tuple(dict.fromkeys(shared)),
        any(node.operator.runs_serially for node in processors),
    )


def _source(nodes: Mapping[str, Node], name: str) -> SourceNode:
    node = nodes[name]
    assert isinstance(node, SourceNode)
    return node


def _topics(source: SourceNode) -> tuple[str, ...]:
    return source.topics if source.pattern is None else (source.pattern.pattern,)


def _reachable(nodes: Mapping[str, Node]) -> dict[str, set[str]]:
    """Return every source with all nodes that its records can reach, itself included."""
    children: dict[str, list[str]] = {name: [] for name in nodes}
    for node in nodes.values():
        for parent in node.parents:
            children[parent].append(node.name)
    reached: dict[str, set[str]] = {}
    for name in reversed(list(nodes)):
        reached[name] = {name}.union(*(reached[child] for child in children[name]))
    return {name: reached[name] for name, node in nodes.items() if isinstance(node, SourceNode)}


def _depths(topology: Topology, below: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the stage in which each source's records enter."""
    nodes = topology.nodes
    group_of = {name: number for number, group in enumerate(topology.groups()) for name in group}
    global_sources = set(topology.global_stores.values())
    sources = [name for name in below if name not in global_sources]
    feeders = {name: _feeders(nodes, name, below) for name in sources}
    feeds: dict[int, set[int]] = {}
    for name, above in feeders.items():
        for feeder in above:
            feeds.setdefault(group_of[feeder], set()).add(group_of[name])
    serial = [name for name in sources if _is_serial(nodes, below[name])]
    waits = {name: [*feeders[name], *_to_wait_for(name, serial, sources, group_of, feeds)] for name in sources}
    depths = dict.fromkeys(sources, 0)
    changed = True
    while changed:
        changed = False
        base: dict[int, int] = {}
        for name in sources:
            if not any(_feeds(feeds, group_of[name], group_of[feeder]) for feeder in feeders[name]):
                base[group_of[name]] = max(base.get(group_of[name], 0), depths[name])
        for name in sources:
            depth = max([base.get(group_of[name], 0), *(depths[other] + 1 for other in waits[name])])
            if depth > depths[name]:
                depths[name] = depth
                changed = True
    return _apart(depths, serial) if serial else depths


def _is_serial(nodes: Mapping[str, Node], reached: set[str]) -> bool:
    below = [nodes[name] for name in reached]
    return any(isinstance(node, ProcessorNode) and node.operator.runs_serially for node in below)


def _to_wait_for(
    name: str, serial: list[str], sources: list[str], group_of: Mapping[str, int], feeds: Mapping[int, set[int]]
) -> list[str]:
    """Return what an atomic section waits for besides its feeders: sources that neither it nor a later section feeds."""
    if name not in serial:
        return []
    sections = [group_of[later] for later in serial[serial.index(name) :]]
    return [other for other in sources if not any(_feeds(feeds, section, group_of[other]) for section in sections)]


def _apart(depths: Mapping[str, int], serial: list[str]) -> dict[str, int]:
    """Return the same order of stages, with a separate one for each atomic section, after the others of its depth."""
    steps = sorted({(depth, name if name in serial else "") for name, depth in depths.items()})
    return {name: steps.index((depth, name if name in serial else "")) for name, depth in depths.items()}


def _feeders(nodes: Mapping[str, Node], source: str, below: Mapping[str, set[str]]) -> list[str]:
    """Return the sources whose records can reach this internal source through its exchange."""
    node = _source(nodes, source)
    if not node.internal:
        return []
    sinks = {
        other.name for other in nodes.values() if isinstance(other, SinkNode) and other.internal and other.topic in node.topics
    }
    return [name for name, reached in below.items() if reached & sinks]


def _feeds(feeds: Mapping[int, set[int]], start: int, goal: int) -> bool:
    """Return whether one sub-topology feeds another, directly or through others."""
    seen: set[int] = set()
    stack = [start]
    while stack:
        group = stack.pop()
        for following in feeds.get(group, ()):
            if following == goal:
                return True
            if following not in seen:
                seen.add(following)
                stack.append(following)
    return start == goal
