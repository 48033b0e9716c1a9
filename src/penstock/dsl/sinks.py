"""Sinks in a draft: where a stream is written to topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.dsl.draft import DraftNode
from penstock.dsl.place import Place, given_serde
from penstock.errors import TopologyError
from penstock.serdes import SessionWindowed, TimeWindowed
from penstock.topology import Line, SinkNode, Topology
from penstock.topology.functions import checked
from penstock.topology.nodes import Partitioner, TopicExtractor

if TYPE_CHECKING:
    from penstock.delivery.target import Target


def write_to(
    here: Place,
    topic: str | TopicExtractor,
    key: Any,
    value: Any,
    partitioner: Partitioner | None,
    target: Target | None,
    name: str | None,
    line: Line,
) -> None:
    """Put a sink below a stream."""
    if target is not None and not isinstance(topic, str):
        raise TopologyError(f"deliver_to= needs the name of a topic, not a function that chooses one ({line}).")
    if not isinstance(topic, str):
        checked(topic, "key, value, context", "to", line)
    if partitioner is not None:
        checked(partitioner, "topic, key, value, partitions", "partitioner=", line)
    sink = here.draft.name("KSTREAM-SINK-", name)
    key_serde = given_serde(key) or here.key or here.draft.default_key
    value_serde = given_serde(value) or here.value or here.draft.default_value
    tail = 0
    if partitioner is None and isinstance(key_serde, (TimeWindowed, SessionWindowed)):
        tail = key_serde.times_size

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        node = SinkNode(sink, parents, topic, key_serde, value_serde, line, partitioner, target=target, partition_tail=tail)
        topology.add_node(node)

    here.draft.add(DraftNode(sink, line, write), here.node)
