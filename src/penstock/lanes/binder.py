"""Binds the nodes of a circuit, children before parents, so that each node closes over its children."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.lanes.circuit import Circuit
from penstock.lanes.host import NodeHost
from penstock.lanes.outbox import Outbox
from penstock.lanes.samples import Samples
from penstock.lanes.sinks import bind_sink
from penstock.lanes.sources import Intake
from penstock.lanes.traces import Traces
from penstock.records import Headers, Process
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode


@dataclass(frozen=True, slots=True)
class Binder:
    """Binds nodes to their hosts and to each other.

    `partitions` returns the number of partitions of a topic, for partitioners. With `samples` every node is measured; with
    `traces` it is recorded which traced records lead to which results.
    """

    host_of: Callable[[Node], NodeHost]
    outbox: Outbox
    partitions: Callable[[str], int]
    samples: Samples | None = None
    traces: Traces | None = None

    def bind(self, circuit: Circuit) -> dict[str, Intake]:
        """Bind all nodes; return where the records of each source enter."""
        nodes, bound = circuit.blueprint.nodes, circuit.bound
        hosts = {node.name: self.host_of(node) for node in nodes if isinstance(node, ProcessorNode)}
        circuit.hosts.update(hosts)
        intakes: dict[str, Intake] = {}
        for node in reversed(nodes):
            below = {name: bound[name] for name in circuit.blueprint.children[node.name]}
            if isinstance(node, SinkNode):
                process = bind_sink(node, self.outbox, circuit.failures, self.partitions)
            elif isinstance(node, ProcessorNode):
                process = self._bind_processor(circuit, node, hosts[node.name], below)
            else:
                process = fan_out(list(below.values()))
            if self.samples is not None:
                process = self.samples.watched(node.name, process)
            bound[node.name] = process
            if isinstance(node, SourceNode):
                intakes[node.name] = Intake(node, process)
        return intakes

    def _bind_processor(self, circuit: Circuit, node: ProcessorNode, host: NodeHost, below: dict[str, Process]) -> Process:
        host.children = below
        if node.side_outputs or node.shared:
            host.side_outputs = {output: below[child] for output, child in node.side_outputs}
            host.shared_writes = {store: below.pop(sink) for store, sink in node.shared if sink is not None}
        aside = {child for _, child in node.side_outputs}
        forward = fan_out([process for name, process in below.items() if name not in aside])
        traces = self.traces
        if traces is not None:
            forward = traces.linking(node, forward)
        process = circuit.failures.retrying(node).bind(host, forward)
        return process if traces is None else traces.noting(node, process)


def fan_out(children: Sequence[Process]) -> Process:
    """Return one function that passes a record to all children, in order."""
    if len(children) == 1:
        return children[0]
    if not children:
        return _nowhere
    if len(children) == 2:
        first, second = children

        def both(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            first(key, value, timestamp, headers)
            second(key, value, timestamp, headers)

        return both

    def each(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        for child in children:
            child(key, value, timestamp, headers)

    return each


def _nowhere(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """Discard a record: the last node has no children."""
