"""The topology while it is being declared.

Verbs add draft nodes; later verbs may still require something of earlier ones (old values, a store). `Draft.write` resolves
all that and writes the frozen nodes in the order of Kafka Streams, because it is the order of siblings.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import TopologyError
from penstock.errors.lines import declared_at
from penstock.processor import Operator
from penstock.serdes import Serde
from penstock.state import StoreSpec
from penstock.topology import Line, ProcessorNode, SourceNode, Topology

Write = Callable[[Topology, tuple[str, ...]], None]
"""Writes the frozen nodes of a draft node below parents, given by name."""


def one_processor(
    name: str, line: Line, operator: Callable[[], Operator], *specs: StoreSpec, stores: Sequence[str] = ()
) -> Write:
    """Return what writes a single processor, with stores of its own and others that it is connected to.

    `operator` is called only then: verbs further down may have required something of it.
    """

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(ProcessorNode(name, parents, operator(), (), line))
        for spec in specs:
            topology.add_state_store(spec, name)
        if stores:
            topology.connect_processor_and_state_stores(name, *stores)

    return write


@dataclass(eq=False, slots=True)
class DraftNode:
    """A verb in the graph; it may become several nodes of the topology."""

    name: str
    line: Line
    write: Write
    parents: list[DraftNode] = field(default_factory=list)
    children: list[DraftNode] = field(default_factory=list)
    priority: int = 0
    output_versioned: bool | None = None
    grace_ms: int | None = None
    relaxed_null_key_join: bool = False
    drops_null_keys: bool | None = None
    """For a repartition: whether it drops records without a key. None for all other nodes."""
    on_versioned_parent: Callable[[str], None] | None = None
    refuses_versioned: bool = False
    topics: frozenset[str] | None = None
    source: SourceNode | None = None
    """For a stream: the node that reads those topics."""
    written: bool = False


class Draft:
    """The growing graph behind one `StreamsBuilder`, and its counter for generated names."""

    def __init__(self, key: Serde[Any], value: Serde[Any]) -> None:
        self.default_key = key
        self.default_value = value
        self.root: DraftNode = DraftNode("root", Line("", 0, ""), lambda topology, parents: None)
        self.copartitioned: list[frozenset[str]] = []
        self._index = 0
        self._priority = 0

    def name(self, prefix: str, given: str | None = None, suffix: str = "") -> str:
        """Return the next generated name, or the given one with its suffix; the counter advances either way."""
        generated = f"{prefix}{self._index:010d}"
        self._index += 1
        return generated if given is None else given + suffix

    def store_name(self, prefix: str) -> str:
        """Return the next generated store name."""
        return self.name(f"{prefix}STATE-STORE-")

    def add(self, node: DraftNode, *parents: DraftNode) -> DraftNode:
        """Put a node below its parents; a second call adds parents."""
        for parent in parents or (self.root,):
            if node not in parent.children:
                parent.children.append(node)
            if parent not in node.parents:
                node.parents.append(parent)
            node.priority = self._priority
            self._priority += 1
        return node

    def write(self) -> Topology:
        """Return the frozen topology."""
        self._merge_equal_sources()
        self._drop_null_keys_before_repartitions()
        self._settle_versioned_semantics()
        topology = Topology()
        for node in _walk(self.root):
            node.written = False
        queue = [(self.root.priority, 0, self.root)]
        ticket = 0
        while queue:
            node = heapq.heappop(queue)[2]
            if node.written or not all(parent.written for parent in node.parents):
                continue  # it is visited again below its last parent
            with declared_at(node.line):
                node.write(topology, tuple(parent.name for parent in node.parents))
            node.written = True
            for child in node.children:
                ticket += 1
                heapq.heappush(queue, (child.priority, ticket, child))
        for sources in self.copartitioned:
            topology.copartition(sources)
        return topology.freeze()

    def _merge_equal_sources(self) -> None:
        """Let streams of the same topics share one source node, the first; reject streams whose topics overlap."""
        seen: dict[str, DraftNode] = {}
        for node in list(self.root.children):
            for topic in sorted(node.topics or ()):
                main = seen.setdefault(topic, node)
                if main is node:
                    continue
                _check_same_source(topic, main, node)
                self.root.children.remove(node)
                for child in node.children:
                    child.parents = list(dict.fromkeys(main if parent is node else parent for parent in child.parents))
                    if child not in main.children:
                        main.children.append(child)
                node.children = []
                break

    def _drop_null_keys_before_repartitions(self) -> None:
        """Let records without a key through a repartition only if a join below accepts them."""
        relaxed: dict[int, bool] = {}

        def is_relaxed(node: DraftNode) -> bool:
            known = relaxed.get(id(node))
            if known is None:
                below = [child.relaxed_null_key_join or is_relaxed(child) for child in node.children]
                known = relaxed[id(node)] = any(below)
            return known

        for node in _walk(self.root):
            if node.drops_null_keys is not None:
                node.drops_null_keys = not is_relaxed(node)

    def _settle_versioned_semantics(self) -> None:
        for node in _walk(self.root):
            if node.on_versioned_parent is not None:
                for parent in node.parents:
                    if self._is_versioned(parent):
                        node.on_versioned_parent(parent.name)
            if node.refuses_versioned and all(self._is_versioned(parent) for parent in node.parents):
                raise TopologyError(
                    f"suppress() cannot be used on a versioned table ({node.line}): remove it, or the table's history=."
                )

    def _is_versioned(self, node: DraftNode) -> bool:
        if node.output_versioned is not None:
            return node.output_versioned
        return node is not self.root and all(self._is_versioned(parent) for parent in node.parents)


def _check_same_source(topic: str, main: DraftNode, node: DraftNode) -> None:
    if main.topics != node.topics:
        raise TopologyError(
            f"Topic {topic!r} is read at {main.line} and at {node.line}, but together with different topics. "
            "Read exactly the same topics in both places, or each topic only once."
        )
    assert main.source is not None
    assert node.source is not None
    for option in ("key", "value", "timestamp", "watermark", "reset"):
        if getattr(main.source, option) != getattr(node.source, option):
            raise TopologyError(
                f"The same topics are read with different {option}= at {main.line} and at {node.line}, but by one source. "
                f"Pass the same {option}= in both places, or read them once and use that stream twice."
            )


def window_grace_ms(node: DraftNode, line: Line, chain: Sequence[str] = ()) -> int:
    """Return the grace period of the windows above a node, for which `until_window_closes` waits."""
    if node.grace_ms is not None:
        return node.grace_ms
    if not node.parents:
        raise TopologyError(
            f"until_window_closes() needs a windowed table, but there is no window above {chain[0]!r} ({line}): "
            "call windowed_by(...) before the aggregation, or use until_time_limit(...)."
        )
    return max(window_grace_ms(parent, line, (*chain, node.name)) for parent in node.parents)


def _walk(root: DraftNode) -> list[DraftNode]:
    """Return all nodes, each once, in the order in which they were added."""
    seen: dict[int, DraftNode] = {}
    stack = [root]
    while stack:
        node = stack.pop()
        if id(node) not in seen:
            seen[id(node)] = node
            stack.extend(node.children)
    return sorted(seen.values(), key=lambda node: node.priority)
