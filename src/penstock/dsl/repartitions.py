"""Exchanges in a draft: the sink, the null-key filter and the source that Kafka Streams puts around a repartition topic."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from penstock.dsl.draft import Draft, DraftNode
from penstock.dsl.place import Place, given_serde
from penstock.operators.stateless import Filter, PassThrough
from penstock.serdes import Serde
from penstock.topology import Exchange, Line, ProcessorNode, SinkNode, SourceNode, Topology
from penstock.topology.functions import checked
from penstock.topology.nodes import Partitioner

SUFFIX = "-repartition"
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


@dataclass(frozen=True, slots=True)
class ExchangeEnds:
    """The two ends of an exchange: the sink that writes it and the source that reads it."""

    topic: str
    sink: str
    source: str
    key: Serde[Any]
    value: Serde[Any]
    line: Line
    partitioner: Partitioner | None = None

    def write(self, topology: Topology, parents: tuple[str, ...]) -> None:
        """Write both ends, and the exchange itself if the topology does not have it yet."""
        topology.add_exchange(topology.exchanges.get(self.topic) or Exchange(self.topic))
        sink = SinkNode(self.sink, parents, self.topic, self.key, self.value, self.line, self.partitioner, internal=True)
        topology.add_node(sink)
        topology.add_node(SourceNode(self.source, (self.topic,), None, self.key, self.value, self.line, internal=True))

    def node(self) -> DraftNode:
        """Return the draft node that writes both ends."""
        return DraftNode(self.source, self.line, self.write)


@dataclass(frozen=True, slots=True)
class Repartition:
    """An exchange of streams: its ends, and in front of them the filter that drops records without a key."""

    ends: ExchangeEnds
    filter: str
    partitions: int | None = None

    @property
    def source(self) -> str:
        """The name of the node behind the exchange."""
        return self.ends.source

    def node(self) -> DraftNode:
        """Return the draft node that writes it."""
        ends = self.ends
        node = DraftNode(ends.source, ends.line, lambda topology, parents: None, drops_null_keys=True)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            operator = Filter(_has_key) if node.drops_null_keys else PassThrough()
            topology.add_exchange(Exchange(ends.topic, self.partitions))
            topology.add_node(ProcessorNode(self.filter, parents, operator, (), ends.line))
            ends.write(topology, (self.filter,))

        node.write = write
        return node

    def below(self, here: Place, key: Serde[Any] | None, value: Serde[Any] | None) -> Place:
        """Put it below a place; return the place behind it, with these serdes."""
        return _behind(here, self.node(), key, value)


def repartition(
    draft: Draft,
    prefix: str,
    key: Serde[Any] | None,
    value: Serde[Any] | None,
    line: Line,
    partitions: int | None = None,
    partitioner: Partitioner | None = None,
) -> Repartition:
    """Name an exchange as Kafka Streams does; the counter always advances by three."""
    topic = prefix if prefix.endswith(SUFFIX) else prefix + SUFFIX
    sink, null_filter, source = draft.name("KSTREAM-SINK-"), draft.name("KSTREAM-FILTER-"), draft.name("KSTREAM-SOURCE-")
    if not _GENERATED.fullmatch(prefix):
        sink, null_filter, source = f"{topic}-sink", f"{topic}-filter", f"{topic}-source"
    key = key if key is not None else draft.default_key
    value = value if value is not None else draft.default_value
    return Repartition(ExchangeEnds(topic, sink, source, key, value, line, partitioner), null_filter, partitions)


def repartition_stream(
    here: Place,
    name: str | None,
    key: Any,
    value: Any,
    partitions: int | None,
    partitioner: Partitioner | None,
    line: Line,
) -> Place:
    """Put an exchange below a stream because the user wants one."""
    if partitioner is not None:
        checked(partitioner, "topic, key, value, partitions", "partitioner=", line)
    prefix = name if name is not None else here.draft.name("KSTREAM-REPARTITION-")
    key, value = given_serde(key) or here.key, given_serde(value) or here.value
    return repartition(here.draft, prefix, key, value, line, partitions, partitioner).below(here, key, value)


def exchanged(here: Place, topic: str, key: Serde[Any] | None, value: Serde[Any] | None, line: Line) -> Place:
    """Return the place behind a new exchange; unlike a repartition, it lets records without a key pass."""
    key = key if key is not None else here.draft.default_key
    value = value if value is not None else here.draft.default_value
    ends = ExchangeEnds(topic, f"{topic}-sink", f"{topic}-source", key, value, line)
    return _behind(here, ends.node(), key, value)


def _behind(here: Place, exchange: DraftNode, key: Serde[Any] | None, value: Serde[Any] | None) -> Place:
    """Put an exchange below a place; return the place behind it. The node has the name of the exchange's source."""
    node = here.draft.add(exchange, here.node)
    return here.moved(node.name, node, rekeyed=False, key=key, value=value, sources=frozenset({node.name}))


def _has_key(key: Any, value: Any) -> bool:
    return key is not None
