"""Where records that are replayed into one node enter a lane: the path to that node is bound a second time, separately.

The path ends at the lane's own node, or at the lane's own sink of the exchange through which the path continues.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import TopologyError
from penstock.lanes.circuit import Circuit
from penstock.lanes.host import NodeHost
from penstock.lanes.sources import Intake
from penstock.letters import REPLAY_NODE, replayed_into, without_replay_node
from penstock.records import Headers, Process
from penstock.topology.nodes import Node, ProcessorNode, SinkNode
from penstock.topology.ways import way_to


class Entrances:
    """The entrances of a lane; a path is bound when the first record takes it."""

    __slots__ = ("_circuit", "_host_of", "_ways")

    def __init__(self, circuit: Circuit, host_of: Callable[[Node], NodeHost]) -> None:
        self._circuit = circuit
        self._host_of = host_of
        self._ways: dict[tuple[str, str], Process] = {}

    def of(self, intake: Intake) -> Process:
        """Return the function through which records of a source enter, according to their headers."""

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            goal = replayed_into(headers)
            enter = intake.process if goal is None else self._way(intake, goal)
            enter(key, value, timestamp, headers)

        return process

    def _way(self, intake: Intake, goal: str) -> Process:
        found = self._ways.get((intake.node.name, goal))
        if found is None:
            found = self._ways[intake.node.name, goal] = self._bound(intake, goal)
        return found

    def _bound(self, intake: Intake, goal: str) -> Process:
        """Return the path as a function; if there is none, a function with which each record fails at its source."""
        circuit = self._circuit
        try:
            way = way_to(circuit.blueprint.topology, intake.node.name, goal)
        except TopologyError as error:
            why = f"header {REPLAY_NODE} says to replay the record into {goal!r} only: {error}"
            return lambda key, *_: circuit.failures.processing(intake.node, TopologyError(why), key)
        bound: dict[str, Process] = {}
        for name in circuit.bound:  # children before parents
            if name in way:
                bound[name] = self._bind(name, goal, bound)
        circuit.start()
        return bound[intake.node.name]

    def _bind(self, name: str, goal: str, bound: dict[str, Process]) -> Process:
        circuit = self._circuit
        node, whole = circuit.blueprint.topology[name], circuit.bound[name]
        if name == goal:
            return lambda key, value, timestamp, headers: whole(key, value, timestamp, without_replay_node(headers))
        if isinstance(node, SinkNode):
            return whole
        below = {child: bound.get(child, _nowhere) for child in circuit.blueprint.children[name]}
        outputs = dict(node.side_outputs) if isinstance(node, ProcessorNode) else {}
        ahead = [child for child in below if child in bound and child not in outputs.values()]
        forward = below[ahead[0]] if ahead else _nowhere  # at most one, except below a branch, which chooses by name
        if not isinstance(node, ProcessorNode):
            return forward
        host = self._host_of(node)
        host.way = f"to {goal} "
        host.children = below
        host.side_outputs = {output: below[child] for output, child in outputs.items()}
        return circuit.failures.retrying(node).bind(host, forward)


def has_replays(headers: pa.ChunkedArray) -> bool:
    """Whether any of these headers says to replay its record into one node only."""
    if headers.null_count == len(headers):
        return False
    names = pc.struct_field(pc.list_flatten(headers), "name")
    return pc.any(pc.equal(names, REPLAY_NODE)).as_py() is True


def _nowhere(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
    """Discard a record: this child is not on the path."""
