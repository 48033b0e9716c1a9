"""The logical graph: frozen nodes, the `Topology` that collects them, and how it is shown to people."""

from penstock.topology.graph import Topology
from penstock.topology.groups import watermarked_nodes
from penstock.topology.nodes import Exchange, Line, Node, ProcessorNode, SinkNode, SourceNode, user_line

__all__ = ["Exchange", "Line", "Node", "ProcessorNode", "SinkNode", "SourceNode", "Topology", "user_line", "watermarked_nodes"]
