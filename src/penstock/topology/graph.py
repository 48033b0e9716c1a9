"""`Topology`: sources, processors, sinks and stores, added in order; the entry point of the Processor API.

The DSL builds one too. Nodes are frozen; the topology only collects and checks them. To add one replaces a read-only collection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeVar

from penstock.errors import TopologyError
from penstock.errors.lines import Line, user_line
from penstock.handlers import DeadLetter
from penstock.operators.lateness import LatePolicy
from penstock.operators.processors import ProcessorOperator, Supplier, sets_timers
from penstock.operators.shared import ApplyWrites, AtomicProcessing
from penstock.operators.stateless import PassThrough
from penstock.operators.timers import timers_spec, timers_store
from penstock.records import is_name
from penstock.serdes import Json, Serde, String, serde_of
from penstock.state import StoreSpec, write_serde
from penstock.timing import Watermark
from penstock.topology.describe import describe, mermaid
from penstock.topology.functions import checked
from penstock.topology.groups import key_above, node_groups
from penstock.topology.layout import layout
from penstock.topology.nodes import (
    Exchange,
    Node,
    Partitioner,
    ProcessorNode,
    SinkNode,
    SourceNode,
    TimestampExtractor,
    TopicExtractor,
    offset_reset,
)
from penstock.topology.svg import svg

_SHOWN, _NAMES = 100, "at most 249 letters, digits, '.', '_' and '-'"
_T = TypeVar("_T")


class Topology:
    """A graph of sources, processors and sinks with the stores they use.

    It grows by its `add_` methods until it is frozen, as `StreamsBuilder.build()` returns it; then it is a value.

    Example:
        >>> from penstock import Topology
        >>> topology = Topology().add_source("in", "lines", value=str).add_sink("out", "copies", "in", value=str)
        >>> [node.name for node in topology.nodes.values()]
        ['in', 'out']
    """

    _is_frozen = False

    def __init__(self) -> None:
        self._nodes: Mapping[str, Node] = MappingProxyType({})
        self._stores: Mapping[str, StoreSpec] = MappingProxyType({})
        self._global_stores: Mapping[str, str] = MappingProxyType({})
        self._exchanges: Mapping[str, Exchange] = MappingProxyType({})
        self._copartitioned: tuple[frozenset[str], ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        if self._is_frozen:
            cure = "declare all of it before build(), or all of it by Topology()'s own methods"
            raise TopologyError(f"this topology is built and cannot change any more ({user_line()}); {cure}")
        super().__setattr__(name, value)

    def freeze(self) -> Topology:
        """Refuse every change from here on; gives the topology back."""
        if not self._is_frozen:
            self._is_frozen = True
        return self

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name, in topological order (the order in which they were added)."""
        return self._nodes

    @property
    def stores(self) -> Mapping[str, StoreSpec]:
        """All stores by name, global ones included."""
        return self._stores

    @property
    def global_stores(self) -> Mapping[str, str]:
        """Names of global stores, each with the source node that feeds it."""
        return self._global_stores

    @property
    def exchanges(self) -> Mapping[str, Exchange]:
        """The exchanges by topic name."""
        return self._exchanges

    @property
    def copartitioned(self) -> tuple[frozenset[str], ...]:
        """Groups of source nodes whose topics meet in a join or cogroup."""
        return self._copartitioned

    def add_source(
        self,
        name: str,
        *topics: str | re.Pattern[str],
        key: Any = None,
        value: Any = None,
        timestamp: TimestampExtractor | None = None,
        watermark: Watermark | None = None,
        reset: str | timedelta | None = None,
    ) -> Topology:
        """Add a node that reads topics, or all topics that match one pattern.

        Example:
            >>> Topology().add_source("clicks", "clicks-eu", "clicks-us", value=dict).nodes["clicks"].topics
            ('clicks-eu', 'clicks-us')
        """
        pattern = topics[0] if len(topics) == 1 and isinstance(topics[0], re.Pattern) else None
        line = user_line()
        if not topics or (pattern is None and not all(isinstance(topic, str) for topic in topics)):
            raise TopologyError(f"Source {name!r} needs topic names or one compiled pattern ({line}).")
        names = () if pattern else tuple(dict.fromkeys(str(topic) for topic in topics))
        if timestamp is not None:
            checked(timestamp, "record", "timestamp=", line)
        source = SourceNode(name, names, pattern, _key(key), _value(value), line, timestamp, offset_reset(reset))
        self.add_node(replace(source, watermark=watermark))
        return self

    def add_processor(self, name: str, supplier: Supplier, *parents: str, stores: Iterable[str] = ()) -> Topology:
        """Add a processor below its parents; `supplier` is a class or a function that returns a new `Processor`.

        Example:
            >>> from penstock import Processor
            >>> class Echo(Processor):
            ...     def process(self, record):
            ...         self.context.forward(record)
            >>> Topology().add_source("in", "lines").add_processor("echo", Echo, "in").nodes["echo"].parents
            ('in',)
        """
        line = user_line()
        if not parents:
            raise TopologyError(f"Processor {name!r} needs at least one parent ({line}).")
        self._add_processing(name, checked(supplier, "", "add_processor", line), parents, line)
        return self.connect_processor_and_state_stores(name, *stores) if (stores := tuple(stores)) else self

    def add_side_output(self, name: str, processor: str, output: str) -> Topology:
        """Add a node for the records that a processor sends with `context.side_output(output, record)`.

        Nodes below `name` get only those records; what the processor forwards goes to its other children.

        Example:
            >>> from penstock import Processor
            >>> class Check(Processor):
            ...     def process(self, record):
            ...         if record.value:
            ...             self.context.forward(record)
            ...         else:
            ...             self.context.side_output("empty", record)
            >>> topology = Topology().add_source("in", "lines", value=str).add_processor("check", Check, "in")
            >>> topology.add_side_output("empty-lines", "check", "empty").nodes["check"].side_outputs
            (('empty', 'empty-lines'),)
        """
        line = user_line()
        self.add_side_node(ProcessorNode(name, (processor,), PassThrough(), (), line), output)
        return self

    def add_sink(
        self,
        name: str,
        topic: str | TopicExtractor,
        *parents: str,
        key: Any = None,
        value: Any = None,
        partitioner: Partitioner | None = None,
    ) -> Topology:
        """Add a node that writes its parents' records to a topic, or to the topic that a function returns per record."""
        line = user_line()
        if not parents:
            raise TopologyError(f"Sink {name!r} needs at least one parent ({line}).")
        if not isinstance(topic, str):
            checked(topic, "key, value, context", "add_sink", line)
        if partitioner is not None:
            checked(partitioner, "topic, key, value, partitions", "partitioner=", line)
        self.add_node(SinkNode(name, parents, topic, _key(key), _value(value), line, partitioner))
        return self

    def add_state_store(self, spec: StoreSpec, *processors: str) -> Topology:
        """Declare a store and connect it to processors; repeat the same declaration to connect more."""
        known = self._stores.get(spec.name)
        if known is not None and known is not spec:
            raise TopologyError(f"Store {spec.name!r} is declared twice ({user_line()}). Give one of them another name.")
        if not is_name(spec.name):
            raise TopologyError(f"Invalid store name {spec.name[:_SHOWN]!a} ({user_line()}): use {_NAMES}.")
        self._stores = _with(self._stores, spec.name, spec)
        for processor in processors:
            self.connect_processor_and_state_stores(processor, spec.name)
        return self

    def add_global_store(
        self,
        spec: StoreSpec,
        topic: str,
        supplier: Supplier,
        *,
        source: str,
        processor: str,
        key: Any = None,
        value: Any = None,
    ) -> Topology:
        """Add a store of which every lane has a whole copy, fed from all of `topic` by its own processor."""
        line = user_line()
        reader = SourceNode(source, (topic,), None, _key(key), _value(value), line)
        operator = ProcessorOperator(checked(supplier, "", "add_global_store", line), fixed_key=False)
        feeder = ProcessorNode(processor, (source,), operator, (spec.name,), line)
        self.add_global_nodes(spec, reader, feeder)
        return self

    def add_read_only_state_store(
        self,
        spec: StoreSpec,
        topic: str,
        supplier: Supplier,
        *,
        source: str,
        processor: str,
        key: Any = None,
        value: Any = None,
        timestamp: TimestampExtractor | None = None,
    ) -> Topology:
        """Add a store that mirrors `topic`, partition by partition; only its own processor may write it."""
        line = user_line()
        self.add_node(SourceNode(source, (topic,), None, _key(key), _value(value), line, timestamp))
        self._add_processing(processor, checked(supplier, "", "add_read_only_state_store", line), (source,), line)
        return self.add_state_store(spec, processor)

    def connect_processor_and_state_stores(self, processor: str, *stores: str) -> Topology:
        """Let a processor use stores that are already declared."""
        node = self._processor(processor, "connect stores to", user_line())
        for store in stores:
            if store not in self._stores:
                known = ", ".join(self._stores) or "none"
                raise TopologyError(
                    f"Store {store!r} is not declared ({user_line()}). Call add_state_store first. Declared stores: {known}."
                )
        shared = [store for store in stores if self._is_shared_with(node, store)]
        others = [store for store in stores if store not in shared and store not in self._global_stores]
        added = tuple(store for store in dict.fromkeys(others) if store not in node.stores)
        new = [store for store in dict.fromkeys(shared) if store not in dict(node.shared)]
        uses = tuple((store, self._sink_of_writes(node, store)) for store in new)
        self._nodes = _with(self._nodes, processor, replace(node, stores=node.stores + added, shared=node.shared + uses))
        return self

    def _is_shared_with(self, node: ProcessorNode, store: str) -> bool:
        """Return whether a node uses a store as a shared one, from any shard."""
        spec = self._stores[store]
        if spec.sharing is not None and isinstance(node.operator, (ProcessorOperator, AtomicProcessing)):
            return True
        if spec.takes_writes and not isinstance(node.operator, ApplyWrites):
            raise TopologyError(
                f"{node.name} cannot use the shared store {store!r} ({node.line}). Use it in process, process_values or "
                f"process_atomically."
            )
        if isinstance(node.operator, AtomicProcessing) and store not in self._global_stores:
            raise TopologyError(
                f"{node.name} is an atomic section and cannot use store {store!r}, which is not shared ({node.line}). "
                f"Declare it with shared_store({store!r}, ...), or a table's store with Store(..., shared=True)."
            )
        return False

    def _sink_of_writes(self, node: ProcessorNode, store: str) -> str | None:
        """Return the sink that sends a node's writes to a shared store to the shards of their keys.

        The first such sink also adds the nodes that apply the writes. A node that only reads, or runs over all lanes, has none.
        """
        spec = self._stores[store]
        if not spec.takes_writes or isinstance(node.operator, AtomicProcessing):
            return None
        topic, key, value = f"{store}-writes", spec.serdes[0], write_serde(spec)
        sink = f"{node.name}-{topic}"
        self.add_node(SinkNode(sink, (node.name,), topic, key, value, node.line, internal=True))
        if topic not in self._exchanges:
            self.add_exchange(Exchange(topic))
            self.add_node(SourceNode(f"{topic}-source", (topic,), None, key, value, node.line, internal=True))
            self.add_node(ProcessorNode(topic, (f"{topic}-source",), ApplyWrites(spec), (store,), node.line))
        return sink

    def add_node(self, node: Node) -> None:
        """Add a node after checking that its name is new and its parents exist."""
        if node.name in self._nodes:
            raise TopologyError(f"Node {node.name!r} already exists ({node.line}). Give it another name.")
        for parent in node.parents:
            if isinstance(self._nodes.get(parent), SinkNode) or parent not in self._nodes:
                known = ", ".join(self._nodes) or "none"
                raise TopologyError(
                    f"Node {node.name!r} cannot read from {parent!r} ({node.line}): not a source or processor. Nodes: {known}."
                )
        if isinstance(node, SourceNode):
            self._check_topics(node)
        topics = node.topics if isinstance(node, SourceNode) else (node.topic,) if isinstance(node, SinkNode) else ()
        for topic in topics:
            if isinstance(topic, str) and not is_name(topic):
                raise TopologyError(f"Invalid topic name {topic[:_SHOWN]!a} of {node.name!r} ({node.line}): allowed: {_NAMES}.")
        self._nodes = _with(self._nodes, node.name, node)

    def add_side_node(self, node: ProcessorNode, output: str) -> None:
        """Add a node for a side output of its parent."""
        [processor] = node.parents
        parent = self._processor(processor, "add a side output to", node.line)
        if any(output == known for known, _ in parent.side_outputs):
            raise TopologyError(f"Side output {output!r} of {processor} is declared twice ({node.line}). Use the first one.")
        self.add_node(node)
        self._nodes = _with(self._nodes, processor, replace(parent, side_outputs=(*parent.side_outputs, (output, node.name))))

    def add_exchange(self, exchange: Exchange) -> None:
        """Note that the internal topic of this name is an exchange."""
        self._exchanges = _with(self._exchanges, exchange.topic, exchange)

    def add_global_nodes(self, spec: StoreSpec, source: SourceNode, processor: ProcessorNode) -> None:
        """Add a global store with the two nodes that maintain it."""
        if spec.sharing is not None:
            raise TopologyError(
                f"Store {spec.name!r} is global and cannot be shared: every lane has a copy of it ({source.line})."
            )
        self.add_node(source)
        self.add_state_store(spec)
        self._global_stores = _with(self._global_stores, spec.name, source.name)
        self.add_node(processor)

    def copartition(self, sources: Iterable[str]) -> None:
        """Note that the topics of these source nodes must have the same number of partitions."""
        self._copartitioned = (*self._copartitioned, frozenset(sources))

    def describe(self) -> str:
        """Return the topology in Kafka Streams' text form."""
        return describe(self._nodes, self._global_stores, self.groups())

    def mermaid(self) -> str:
        """Return the topology as a Mermaid flow chart."""
        return mermaid(self._nodes, self._stores, self.groups())

    def svg(self) -> str:
        """Return a drawing of the topology as an SVG document; notebooks show it automatically."""
        return svg(layout(self))

    _repr_svg_ = svg

    def dead_letter_topics(self) -> frozenset[str]:
        """Return the known dead-letter topics of late records; a function may choose others."""
        policies = [node.operator for node in self._nodes.values() if isinstance(node, ProcessorNode)]
        handlers = [policy.handler for policy in policies if isinstance(policy, LatePolicy)]
        return frozenset(handler.topic for handler in handlers if isinstance(handler, DeadLetter))

    def groups(self) -> list[list[str]]:
        """Return the sub-topologies: names of nodes connected by edges or common stores, but not through exchanges."""
        return node_groups(self._nodes, self._global_stores)

    def _add_processing(self, name: str, supplier: Supplier, parents: tuple[str, ...], line: Line) -> None:
        """Add a user's processor, with a store for its timers if it has any."""
        timers = timers_store(name) if sets_timers(supplier) else None
        self.add_node(ProcessorNode(name, parents, ProcessorOperator(supplier, fixed_key=False, timers=timers), (), line))
        if timers is None:
            return
        self.add_state_store(timers_spec(name, key_above(self._nodes, name, line)), name)

    def _processor(self, name: str, purpose: str, line: Line) -> ProcessorNode:
        node = self._nodes.get(name)
        if isinstance(node, ProcessorNode):
            return node
        known = ", ".join(name for name, node in self._nodes.items() if isinstance(node, ProcessorNode)) or "none"
        raise TopologyError(f"There is no processor {name!r} to {purpose} ({line}). Processors: {known}.")

    def _check_topics(self, source: SourceNode) -> None:
        for other in self._nodes.values():
            if isinstance(other, SourceNode):
                both = source.topics_shared_with(other)
                if both:
                    raise TopologyError(
                        f"Topic {min(both)!r} is read by both {other.name!r} ({other.line}) and {source.name!r} ({source.line}). "
                        f"Read it once, and use that source in both places."
                    )


def _with(mapping: Mapping[str, _T], name: str, value: _T) -> Mapping[str, _T]:
    """The same with one more, or with another under a name that it has."""
    return MappingProxyType({**mapping, name: value})


def _key(key: Any) -> Serde[Any]:
    return String() if key is None else serde_of(key)


def _value(value: Any) -> Serde[Any]:
    return Json() if value is None else serde_of(value)
