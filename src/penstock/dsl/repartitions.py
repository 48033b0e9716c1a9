"""Exchanges in a draft: the sink, the null-key filter and the source that Kafka Streams puts around a repartition topic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from penstock.dsl.draft import Draft, DraftNode
from penstock.dsl.place import Place
from penstock.operators.stateless import Filter, PassThrough
from penstock.serdes import Serde
from penstock.topology import Exchange, Line, ProcessorNode, SinkNode, SourceNode, Topology
from penstock.topology.nodes import Partitioner

SUFFIX = "-repartition"
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


@dataclass(frozen=True, slots=True)
class Repartition:
    """The names and serdes of one exchange of streams."""

    topic: str
    sink: str
    filter: str
    source: str
    key: Serde[Any]
    value: Serde[Any]
    line: Line
    partitions: int | None = None
    partitioner: Partitioner | None = None

    def node(self) -> DraftNode:
        """The draft node that writes it."""
        node = DraftNode(self.source, self.line, lambda topology, parents: None, drops_null_keys=True)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            operator = Filter(_has_key) if node.drops_null_keys else PassThrough()
            topology.add_exchange(Exchange(self.topic, self.partitions))
            topology.add_node(ProcessorNode(self.filter, parents, operator, (), self.line))
            write_exchange(
                topology, (self.filter,), self.topic, self.sink, self.source, self.key, self.value, self.line, self.partitioner
            )

        node.write = write
        return node


def repartition(
    draft: Draft,
    prefix: str,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    line: Line,
    partitions: int | None = None,
    partitioner: Partitioner | None = None,
) -> Repartition:
    """Names as Kafka Streams gives them; the counter moves by three in any case."""
    topic = prefix if prefix.endswith(SUFFIX) else prefix + SUFFIX
    sink, null_filter, source = draft.name("KSTREAM-SINK-"), draft.name("KSTREAM-FILTER-"), draft.name("KSTREAM-SOURCE-")
    if not _GENERATED.fullmatch(prefix):
        sink, null_filter, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    return Repartition(
        topic,
        sink,
        null_filter,
        source,
        key if key is not None else draft.default_key,
        value if value is not None else draft.default_value,
        line,
        partitions,
        partitioner,
    )


def write_exchange(
    topology: Topology,
    parents: tuple[str, ...],
    topic: str,
    sink: str,
    source: str,
    key: Serde[Any],
    value: Serde[Any],
    line: Line,
    partitioner: Partitioner | None = None,
) -> None:
    """The two ends of an exchange."""
    topology.add_exchange(topology.exchanges.get(topic) or Exchange(topic))
    topology.add_node(SinkNode(sink, parents, topic, key, value, line, partitioner, internal=True))
    topology.add_node(SourceNode(source, (topic,), None, key, value, line, internal=True))


def exchanged(here: Place, topic: str, key: Serde[Any] | None, value: Serde[Any] | None, line: Line) -> Place:
    """The place behind an exchange; unlike a repartition, it lets records without a key pass."""
    key = key if key is not None else here.draft.default_key
    value = value if value is not None else here.draft.default_value
    sink, source = f"{topic}-sink", f"{topic}-source"

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        write_exchange(topology, parents, topic, sink, source, key, value, line)

    node = here.draft.add(DraftNode(source, line, write), here.node)
    return here.moved(source, node, rekeyed=False, key=key, value=value, sources=frozenset({source}))


def _has_key(key: Any, value: Any) -> bool:
    return key is not None
