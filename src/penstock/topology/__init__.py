"""The logical graph: frozen nodes, the `Topology` that collects them, and its descriptions and drawings."""

from penstock.topology.graph import Topology
from penstock.topology.groups import watermarked_nodes
from penstock.topology.nodes import Exchange, Line, Node, ProcessorNode, SinkNode, SourceNode, user_line

__all__ = ["Exchange", "Line", "Node", "ProcessorNode", "SinkNode", "SourceNode", "Topology", "user_line", "watermarked_nodes"]
