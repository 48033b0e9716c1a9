"""The logical graph: frozen nodes, the `Topology` that collects them, and its descriptions and drawings."""

from penstock.errors.lines import Line, user_line
from penstock.topology.backfill import Backfill, Contents
from penstock.topology.expected import checked_topology
from penstock.topology.graph import Topology
from penstock.topology.groups import watermarked_nodes
from penstock.topology.nodes import Exchange, Node, ProcessorNode, SinkNode, SourceNode

__all__ = [
    "Backfill",
    "Contents",
    "Exchange",
    "Line",
    "Node",
    "ProcessorNode",
    "SinkNode",
    "SourceNode",
    "Topology",
    "checked_topology",
    "user_line",
    "watermarked_nodes",
]
