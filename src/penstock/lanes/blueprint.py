"""What a lane is built from: the nodes of a topology or of one of its stages, the same for every shard and epoch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from penstock.errors import TopologyError
from penstock.lanes.columnar import ColumnarPath, columnar_paths
from penstock.state import StoreSpec
from penstock.topology.nodes import Node, ProcessorNode


@dataclass(frozen=True)
class Blueprint:
    """Some nodes of a topology, and what they need to know about it.

    A lane of one stage also receives the other nodes of the topology as `tables`, for joins that read what another stage writes.
    `watermarked` are the nodes below sources that declare a watermark; the watermark is their time. `sub_topologies` says which
    nodes share a stream time; without it, all do, as in Kafka Streams' test driver. With `columns`, what consists of expressions
    is computed in columns.
    """

    nodes: Sequence[Node]
    specs: Mapping[str, StoreSpec]
    tables: Mapping[str, Node] = field(default_factory=dict)
    global_stores: Collection[str] = ()
    watermarked: Collection[str] = ()
    sub_topologies: Mapping[str, str] = field(default_factory=dict)
    columns: bool = False

    @cached_property
    def topology(self) -> Mapping[str, Node]:
        """All known nodes, including those of other stages."""
        return {**self.tables, **{node.name: node for node in self.nodes}}

    @cached_property
    def children(self) -> Mapping[str, Sequence[str]]:
        """The children of each node. A parent may belong to another stage."""
        children: dict[str, list[str]] = {node.name: [] for node in self.nodes}
        for node in self.nodes:
            for parent in node.parents:
                if parent in children:
                    children[parent].append(node.name)
        return children

    @cached_property
    def stores(self) -> Collection[str]:
        """Stores, ordered by the first node that uses them: the order in which caches are flushed."""
        names: dict[str, None] = {}
        for node in self.nodes:
            if isinstance(node, ProcessorNode):
                names.update(dict.fromkeys(node.stores))
        return names.keys()

    @cached_property
    def columnar_paths(self) -> Mapping[str, ColumnarPath]:
        """The paths that can be computed in columns, by the name of their source."""
        return columnar_paths(self.nodes, self.children) if self.columns else {}

    @cached_property
    def watermarked_stores(self) -> Collection[str]:
        """The stores of nodes whose time is the watermark."""
        nodes = [node for node in self.nodes if isinstance(node, ProcessorNode) and node.name in self.watermarked]
        return {store for node in nodes for store in node.stores}

    @cached_property
    def follows_stream_time(self) -> bool:
        """Whether stream time can be observed at any record: by a processor, or by a store whose entries expire.

        These may be in another stage of the same sub-topology, as the stages share its stream time.
        """
        groups = {self.sub_topology_of(node.name) for node in self.nodes}
        return any(
            isinstance(node, ProcessorNode)
            and self.sub_topology_of(node.name) in groups
            and (node.operator.runs_user_objects or bool(self.expiring_stores(node)))
            for node in self.topology.values()
        )

    def expiring_stores(self, node: ProcessorNode) -> list[str]:
        """Return the stores of a node whose entries expire."""
        return [store for store in node.stores if self.specs[store].ttl_ms is not None]

    def sub_topology_of(self, node: str) -> str:
        """Return the sub-topology that a node belongs to."""
        return self.sub_topologies.get(node, "")

    def spec(self, name: str) -> StoreSpec:
        """Return the declaration of a store."""
        try:
            return self.specs[name]
        except KeyError:
            raise TopologyError(f"Unknown store {name!r}. Stores of the topology: {', '.join(self.specs) or 'none'}.") from None
