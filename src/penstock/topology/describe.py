"""A topology as text for people: Kafka Streams' description, and Mermaid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.state import StoreSpec
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode


def describe(nodes: Mapping[str, Node], global_stores: Mapping[str, str], groups: Sequence[Sequence[str]]) -> str:
    """Return the text that Kafka Streams' `Topology.describe()` prints for the same topology.

    Nodes with more nodes below them come first, then by name.
    """
    global_sources = set(global_stores.values())
    parts = ["Topologies:\n "]
    for number, group in enumerate(groups):
        is_global = bool(global_sources.intersection(group))
        parts.append(f"  Sub-topology: {number}{' for global store (will not generate tasks)' if is_global else ''}\n")
        parts.extend(f"    {text}\n" for text in _texts([nodes[name] for name in group]))
        parts.append("" if is_global else "\n")
    return "".join(parts)


def _texts(members: Sequence[Node]) -> list[str]:
    sizes, successors = _sizes(members), _successors(members)

    def order(name: str) -> tuple[int, str]:
        return -sizes[name], name

    def listed(names: Iterable[str]) -> str:
        return ", ".join(sorted(names, key=order)) or "none"

    ordered = sorted(members, key=lambda node: order(node.name))
    return [_text(node, listed(successors[node.name]), listed(node.parents)) for node in ordered]


def _text(node: Node, below: str, above: str) -> str:
    if isinstance(node, SourceNode) and node.schedule is not None:
        return f"Source: {node.name} (schedule: {node.schedule})\n      --> {below}"
    if isinstance(node, SourceNode):
        topics = node.pattern.pattern if node.pattern else f"[{', '.join(node.topics)}]"
        return f"Source: {node.name} (topics: {topics})\n      --> {below}"
    if isinstance(node, ProcessorNode):
        return f"Processor: {node.name} ({_stores(node)})\n      --> {below}\n      <-- {above}"
    where = f"topic: {node.topic}" if isinstance(node.topic, str) else f"extractor class: {_function_name(node.topic)}"
    return f"Sink: {node.name} ({where})\n      <-- {above}"


def _stores(node: ProcessorNode) -> str:
    """Return a node's stores as Kafka Streams writes them, plus shared stores and serial nodes, which it does not have."""
    parts = [f"stores: [{', '.join(node.stores)}]"]
    if node.shared:
        parts.append(f"shared: [{', '.join(store for store, _ in node.shared)}]")
    if node.operator.runs_serially:
        parts.append("serially")
    return ", ".join(parts)


def _function_name(function: object) -> str:
    """Return a name that is the same in every process, unlike `repr`."""
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _successors(members: Sequence[Node]) -> dict[str, list[str]]:
    successors: dict[str, list[str]] = {node.name: [] for node in members}
    for node in members:
        for parent in node.parents:
            successors[parent].append(node.name)
    return successors


def _sizes(members: Sequence[Node]) -> dict[str, int]:
    """Return the number of nodes below each node, itself included; shared children count once per path."""
    sizes: dict[str, int] = {}
    successors = _successors(members)
    for node in reversed(members):
        sizes[node.name] = 1 + sum(sizes[child] for child in successors[node.name])
    return sizes


def mermaid(nodes: Mapping[str, Node], stores: Mapping[str, StoreSpec], groups: Sequence[Sequence[str]]) -> str:
    """A Mermaid flow chart: topics as pills, stores as cylinders, side outputs with their names.

    Exchanges and the use of shared stores are dotted lines.
    """
    lines = ["flowchart TD"]
    ids = {name: f"n{number}" for number, name in enumerate(nodes)}
    for number, group in enumerate(groups):
        lines.append(f'  subgraph s{number}["Sub-topology {number}"]')
        lines.extend(f'    {ids[name]}["{name}"]' for name in group)
        lines.append("  end")
    processors = [node for node in nodes.values() if isinstance(node, ProcessorNode)]
    used = {store for node in processors for store in (*node.stores, *dict(node.shared))}
    for number, store in enumerate(name for name in stores if name in used):
        ids[f"store {store}"] = f"d{number}"
        lines.append(f'  d{number}[("{store}")]')
    topics: dict[str, str] = {}
    for node in nodes.values():
        for topic in _topics(node):
            if topic not in topics:
                topics[topic] = f"t{len(topics)}"
                lines.append(f'  {topics[topic]}(["{topic}"])')
    aside = {child: output for node in processors for output, child in node.side_outputs}
    for node in nodes.values():
        lines.extend(_edges(node, ids, topics, aside.get(node.name)))
    return "\n".join(lines) + "\n"


def _topics(node: Node) -> tuple[str, ...]:
    if isinstance(node, SourceNode) and node.schedule is not None:
        return (str(node.schedule),)
    if isinstance(node, SourceNode):
        return (node.pattern.pattern,) if node.pattern else node.topics
    if isinstance(node, SinkNode):
        return (node.topic,) if isinstance(node.topic, str) else (f"{node.name} chooses",)
    return ()


def _edges(node: Node, ids: Mapping[str, str], topics: Mapping[str, str], side_output: str | None) -> list[str]:
    me = ids[node.name]
    label = "" if side_output is None else f'|"{side_output}"|'
    edges = [f"  {ids[parent]} -->{label} {me}" for parent in node.parents]
    if isinstance(node, ProcessorNode):
        edges += [f"  {me} --- {ids[f'store {store}']}" for store in node.stores]
        edges += [f"  {me} -.- {ids[f'store {store}']}" for store, _ in node.shared]
    else:
        arrow = "-.->" if node.internal else "-->"
        for topic in _topics(node):
            edges.append(f"  {topics[topic]} {arrow} {me}" if isinstance(node, SourceNode) else f"  {me} {arrow} {topics[topic]}")
    return edges
