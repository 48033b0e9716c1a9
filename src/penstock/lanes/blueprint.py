"""What a lane is built from: the nodes of a topology, or of one stage of it; the same for every shard and epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from penstock.errors import TopologyError
from penstock.state import StoreSpec
from penstock.topology.nodes import Node, ProcessorNode


@dataclass(frozen=True)
class Blueprint:
    """Some nodes of a topology, and what they have to know of it.

    A lane of one stage is also given the topology's other nodes as `tables`, for joins that read what another stage writes.
    `watermarked` are the nodes below sources that tell a watermark, for which it is the time. `sub_topologies` tells which nodes
    have a stream time together; without it all have, as in Kafka Streams' test driver.
    """

    nodes: Sequence[Node]
    specs: Mapping[str, StoreSpec]
    tables: Mapping[str, Node] = field(default_factory=dict)
    global_stores: Collection[str] = ()
    watermarked: Collection[str] = ()
    sub_topologies: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def topology(self) -> Mapping[str, Node]:
        """All nodes that are known, those of other stages included."""
        return {**self.tables, **{node.name: node for node in self.nodes}}

    @cached_property
    def children(self) -> Mapping[str, Sequence[str]]:
        """What each node forwards to. A parent may belong to another stage."""
        children: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            for parent in node.parents:
                if parent in children:
                    children[parent].append(node.name)
        return children

    @cached_property
    def stores(self) -> Collection[str]:
        """Stores by their first user: the order in which caches are flushed."""
        names: dict[str, None] = {}
        for node in self.nodes:
            if isinstance(node, ProcessorNode):
                names.update(dict.fromkeys(node.stores))
        return names.keys()

    @cached_property
    def watermarked_stores(self) -> Collection[str]:
        """The stores of nodes for which the watermark is the time."""
        nodes = [node for node in self.nodes if isinstance(node, ProcessorNode) and node.name in self.watermarked]
        return {store for node in nodes for store in node.stores}

    @cached_property
    def follows_stream_time(self) -> bool:
        """Whether somebody can tell the stream time at any record: a processor, or a store in which entries expire.

        Another stage of the same sub-topology may have them: the stream time is that of both.
        """
        groups = {self.sub_topology_of(node.name) for node in self.nodes}
        return any(
            isinstance(node, ProcessorNode)
            and self.sub_topology_of(node.name) in groups
            and (node.operator.runs_user_objects or bool(self.expiring_stores(node)))
            for node in self.topology.values()
        )

    def expiring_stores(self, node: ProcessorNode) -> list[str]:
        """The stores of a node in which entries expire."""
        return [store for store in node.stores if self.specs[store].ttl_ms is not None]

    def sub_topology_of(self, node: str) -> str:
        """The sub-topology that a node belongs to."""
        return self.sub_topologies.get(node, "")

    def spec(self, name: str) -> StoreSpec:
        """What a store was declared as."""
        try:
            return self.specs[name]
        except KeyError:
            raise TopologyError(f"there is no store {name!r}; the topology has {', '.join(self.specs) or 'none'}") from None
