"""The Processor API: processors and their context, records, `Topology` and its description, stores for processors."""

from __future__ import annotations

from verification.conformance.parity.reasons import (
    CALLED_BY_KAFKA_STREAMS,
    HEADERS_IN_STORES,
    KNOWN_TO_THE_USER,
    LOCAL_FILES,
    NO_TASKS,
    OWN_DICT,
    RUNTIME,
    STATIC_CLASS,
    UNSEEN_CACHE,
)
from verification.conformance.parity.rules import EVERY_CASE, Arguments, Rule, Rules, To

_CONTEXT = "penstock.ProcessorContext"
_TIMERS = ("processor:stream_timer", "processor:wall_timer")


def _processor(owner: str, verb: str) -> tuple[Rule, ...]:
    record = {
        "Record": "record",
        "FixedKeyRecord": "record",
        "ProcessorContext": "context",
        "FixedKeyProcessorContext": "context",
    }
    return tuple(Rule(name, To(f"penstock.{owner}.{name}", record, (verb,))) for name in ("init", "process", "close"))


def _record(**verbs: str) -> tuple[Rule, ...]:
    """A record's parts, and the same record with one of them replaced."""
    parts = ("key", "value", "timestamp", "headers")
    rules = [Rule("new", To("penstock.Record", {"Object": ("key", "value"), "long": "timestamp", "Headers": "headers"}, _TIMERS))]
    for part in parts:
        said = dict.fromkeys(("Object", "long", "Headers"), part)
        verb = (verbs.get(part, "stream_process"),)
        rules.append(Rule(part, To(f"penstock.Record.{part}", {}, verb)))
        rules.append(Rule(f"with{part.title()}", To(f"penstock.Record.with_{part}", said, verb)))
    return tuple(rules)


_RECORD = _record(headers="processor:add_header", timestamp="processor:retime")
_FIXED_RECORD = _record(timestamp="processor:fixed_retime", value="processor:fixed_tag", key="stream_process_values")
_FORWARD = (
    Rule(
        "forward",
        To(f"{_CONTEXT}.forward", {"Record": "record", "FixedKeyRecord": "record", "String": "child"}, ("processor:router",)),
        ("String",),
    ),
    Rule(
        "forward",
        To(f"{_CONTEXT}.forward", {"Record": "record", "FixedKeyRecord": "record"}, ("stream_process", "stream_process_values")),
    ),
)


def _supplier(target: str, verb: str) -> tuple[Rule, ...]:
    return (Rule("get", To(target, fixed="supplier", verbs=(verb,), note="a class, or a function that makes a processor")),)


_PROCESSORS: Rules = {
    "processor.api.Processor": _processor("Processor", "stream_process"),
    "processor.api.ContextualProcessor": _processor("Processor", "stream_process"),
    "processor.api.FixedKeyProcessor": _processor("FixedKeyProcessor", "stream_process_values"),
    "processor.api.ContextualFixedKeyProcessor": _processor("FixedKeyProcessor", "stream_process_values"),
    "processor.api.ProcessorSupplier": _supplier("penstock.KStream.process", "stream_process"),
    "processor.api.FixedKeyProcessorSupplier": _supplier("penstock.KStream.process_values", "stream_process_values"),
    "processor.ConnectedStoreProvider": (
        Rule(
            "stores", To("penstock.KStream.process", fixed="stores=", verbs=("stream_process",), note="after `add_state_store`")
        ),
    ),
    "processor.api.ProcessorContext": _FORWARD,
    "processor.api.FixedKeyProcessorContext": _FORWARD,
    "processor.api.ProcessingContext": (
        Rule("getStateStore", To(f"{_CONTEXT}.store", {"String": "name"}, ("processor:counting", "processor:lookup"))),
        Rule(
            "schedule",
            To(
                f"{_CONTEXT}.schedule",
                {"Duration": "interval", "PunctuationType": "kind", "Punctuator": "callback", "Instant": "start"},
            ),
            ("Instant",),
        ),
        Rule(
            "schedule",
            To(f"{_CONTEXT}.schedule", {"Duration": "interval", "PunctuationType": "kind", "Punctuator": "callback"}, _TIMERS),
        ),
        Rule("commit", To(f"{_CONTEXT}.commit")),
        Rule("recordMetadata", To(f"{_CONTEXT}.record_metadata", verbs=("processor:metadata",))),
        Rule("currentStreamTimeMs", To(f"{_CONTEXT}.current_stream_time_ms", verbs=("processor:metadata",))),
        Rule("currentSystemTimeMs", To(f"{_CONTEXT}.current_system_time_ms", verbs=("processor:metadata",))),
        Rule("appConfigs appConfigsWithPrefix applicationId", RUNTIME),
        Rule("keySerde valueSerde", KNOWN_TO_THE_USER),
        Rule("stateDir", LOCAL_FILES),
        Rule("taskId", NO_TASKS),
        Rule("metrics", To(f"{_CONTEXT}.metrics", note="counters, gauges and histograms")),
    ),
    "processor.api.Record": _RECORD,
    "processor.api.FixedKeyRecord": _FIXED_RECORD,
    "processor.api.InternalFixedKeyRecordFactory": (Rule("create", CALLED_BY_KAFKA_STREAMS),),
    "processor.api.RecordMetadata": tuple(
        Rule(name, To(f"penstock.RecordMetadata.{name}", verbs=("processor:metadata",)))
        for name in ("topic", "partition", "offset")
    ),
    "processor.api.ProcessorWrapper": (
        Rule("asWrapped asWrappedFixedKey configure wrapProcessorSupplier wrapFixedKeyProcessorSupplier", RUNTIME),
    ),
    "processor.Punctuator": (Rule("punctuate", To(f"{_CONTEXT}.schedule", {"long": "callback"}, _TIMERS, note="a function")),),
    "processor.PunctuationType": (Rule("values valueOf", To("penstock.PunctuationType", {"String": ""}, _TIMERS)),),
    "processor.Cancellable": (Rule("cancel", To("penstock.Cancellable.cancel", verbs=("processor:wall_timer",))),),
}

_EXTRACTOR = "penstock.StreamsBuilder.stream"


def _extractor(note: str, *verbs: str) -> tuple[Rule, ...]:
    said = {"ConsumerRecord": "", "long": ""}
    return (Rule("new extract onInvalidTimestamp", To(_EXTRACTOR, said, verbs, fixed="timestamp=", note=note)),)


_ROUTING: Rules = {
    "processor.TimestampExtractor": _extractor("a function of the record, which has `partition_time`", "builder_stream"),
    "processor.FailOnInvalidTimestamp": _extractor("a function that raises"),
    "processor.LogAndSkipOnInvalidTimestamp": _extractor("a negative result skips, counts and logs the record", "builder_stream"),
    "processor.UsePartitionTimeOnInvalidTimestamp": _extractor("a function that returns `record.partition_time`"),
    "processor.WallclockTimestampExtractor": _extractor("a function that returns the time of day"),
    "processor.TopicNameExtractor": (
        Rule(
            "extract",
            To(
                "penstock.KStream.to",
                {"Object": "topic", "RecordContext": ""},
                ("stream_to_dynamic",),
                note="a function of `(key, value, context)`",
            ),
        ),
    ),
    "processor.RecordContext": (
        *(Rule(name, To(f"penstock.RecordContext.{name}")) for name in ("topic", "partition", "offset", "headers")),
        Rule("timestamp", To("penstock.RecordContext.timestamp", verbs=("stream_to_dynamic",))),
        Rule("sourceRawKey sourceRawValue", CALLED_BY_KAFKA_STREAMS),
    ),
    "processor.StreamPartitioner": (
        Rule(
            "partitions",
            To(
                "penstock.topology.nodes.Partitioner",
                {"String": "", "Object": ("", ""), "int": ""},
                note="a function; it returns a partition, several, none of them, or None for Kafka's choice",
                bare=True,
            ),
        ),
    ),
}

_ADD_SOURCE: Arguments = {
    "String...": "topics",
    "Pattern": "topics",
    "String": "name",
    "AutoOffsetReset": "reset=",
    "TimestampExtractor": "timestamp=",
    "Deserializer": ("key=", "value="),
}
_ADD_SINK: Arguments = {
    "String": ("name", "topic"),
    "TopicNameExtractor": "topic",
    "String...": "parents",
    "Serializer": ("key=", "value="),
    "StreamPartitioner": "partitioner=",
}
_FILLED_STORE: Arguments = {
    "StoreBuilder": "spec",
    "String": ("source=", "topic", "processor="),
    "TimestampExtractor": "timestamp=",
    "Deserializer": ("key=", "value="),
    "ProcessorSupplier": "supplier",
}

_GLOBAL_EXTRACTOR = To(
    "penstock.Topology.add_global_store",
    {**_FILLED_STORE, "TimestampExtractor": ""},
    ("topology_add_global_store",),
    note="without the extractor, which Kafka Streams ignores",
)

_TOPOLOGY = (
    Rule("new", RUNTIME, ("TopologyConfig",)),
    Rule("new", To("penstock.Topology", verbs=("topology_add_source",))),
    Rule("addSource", To("penstock.Topology.add_source", _ADD_SOURCE), ("AutoOffsetReset",)),
    Rule("addSource", To("penstock.Topology.add_source", _ADD_SOURCE, ("topology_add_source",))),
    Rule("addSink", To("penstock.Topology.add_sink", _ADD_SINK), ("StreamPartitioner",)),
    Rule("addSink", To("penstock.Topology.add_sink", _ADD_SINK, ("topology_add_sink",))),
    Rule(
        "addProcessor",
        To(
            "penstock.Topology.add_processor",
            {"String": "name", "ProcessorSupplier": "supplier", "String...": "parents"},
            ("topology_add_processor",),
        ),
    ),
    Rule(
        "addStateStore",
        To(
            "penstock.Topology.add_state_store",
            {"StoreBuilder": "spec", "String...": "processors"},
            ("topology_add_state_store",),
        ),
    ),
    Rule("addGlobalStore", _GLOBAL_EXTRACTOR, ("TimestampExtractor",)),
    Rule("addGlobalStore", To("penstock.Topology.add_global_store", _FILLED_STORE, ("topology_add_global_store",))),
    Rule("addReadOnlyStateStore", To("penstock.Topology.add_read_only_state_store", _FILLED_STORE), ("TimestampExtractor",)),
    Rule(
        "addReadOnlyStateStore",
        To("penstock.Topology.add_read_only_state_store", _FILLED_STORE, ("topology_add_read_only_store",)),
    ),
    Rule(
        "connectProcessorAndStateStores",
        To(
            "penstock.Topology.connect_processor_and_state_stores",
            {"String": "processor", "String...": "stores"},
            ("topology_connect",),
        ),
    ),
    Rule("describe", To("penstock.Topology.describe", verbs=(EVERY_CASE,))),
)

_NODES = "penstock.topology"
_DESCRIPTION: Rules = {
    "TopologyDescription": (
        Rule("subtopologies", To("penstock.Topology.groups")),
        Rule("globalStores", To("penstock.Topology.global_stores")),
    ),
    "TopologyDescription.Node": (
        Rule("name", To(f"{_NODES}.ProcessorNode.name")),
        Rule("predecessors", To(f"{_NODES}.ProcessorNode.parents")),
        Rule("successors", To(f"{_NODES}.ProcessorNode.parents", note="of the nodes in `Topology.nodes`, read the other way")),
    ),
    "TopologyDescription.Source": (
        Rule("topicSet", To(f"{_NODES}.SourceNode.topics")),
        Rule("topicPattern", To(f"{_NODES}.SourceNode.pattern")),
    ),
    "TopologyDescription.Sink": (Rule("topic topicNameExtractor", To(f"{_NODES}.SinkNode.topic", note="a name or a function")),),
    "TopologyDescription.Processor": (Rule("stores", To(f"{_NODES}.ProcessorNode.stores")),),
    "TopologyDescription.Subtopology": (
        Rule("id", To("penstock.Topology.groups", note="the position in the list")),
        Rule("nodes", To("penstock.Topology.groups", note="names of nodes, see `Topology.nodes`")),
    ),
    "TopologyDescription.GlobalStore": (
        Rule("id", To("penstock.Topology.groups", note="the position in the list")),
        Rule("source", To("penstock.Topology.global_stores", note="the source by store")),
        Rule("processor", To("penstock.Topology.nodes", note="the node whose parent is the source")),
    ),
}

_WINDOWED_STORE: Arguments = {"String": "name", "Duration": ("retention=", "window_size="), "boolean": "retain_duplicates="}
_ENGINE = "the engine is the application's choice"


def _store(java: str, python: str, *verbs: str, note: str = "", **arguments: str | tuple[str, ...]) -> Rule:
    return Rule(java, To(f"penstock.{python}", {"String": "name", **arguments}, verbs, note=note))


def _builder(java: str, python: str, *verbs: str) -> Rule:
    suppliers = (
        "KeyValueBytesStoreSupplier",
        "WindowBytesStoreSupplier",
        "SessionBytesStoreSupplier",
        "VersionedBytesStoreSupplier",
    )
    return Rule(java, To(f"penstock.{python}", {"Serde": ("key=", "value="), **dict.fromkeys(suppliers, "name")}, verbs))


_STORES = (
    Rule("new", STATIC_CLASS),
    Rule(
        "persistentTimestampedKeyValueStoreWithHeaders timestampedKeyValueStoreWithHeadersBuilder "
        "persistentTimestampedWindowStoreWithHeaders timestampedWindowStoreWithHeadersBuilder "
        "persistentSessionStoreWithHeaders sessionStoreWithHeadersBuilder",
        HEADERS_IN_STORES,
    ),
    Rule("lruMap", OWN_DICT),
    _store("inMemoryKeyValueStore persistentKeyValueStore", "key_value_store", "processor:counting", note=_ENGINE),
    _store("persistentTimestampedKeyValueStore", "timestamped_key_value_store", "processor:timestamped"),
    Rule("persistentTimestampedWindowStore", To("penstock.timestamped_window_store", _WINDOWED_STORE)),
    Rule(
        "inMemoryWindowStore persistentWindowStore",
        To("penstock.window_store", _WINDOWED_STORE, ("processor:windowing",), note=_ENGINE),
    ),
    _store(
        "inMemorySessionStore persistentSessionStore", "session_store", "processor:sessions", note=_ENGINE, Duration="retention="
    ),
    _store(
        "persistentVersionedKeyValueStore", "versioned_store", "processor:versions", Duration=("history=", "segment_interval=")
    ),
    _builder("keyValueStoreBuilder", "key_value_store", "processor:counting"),
    _builder("timestampedKeyValueStoreBuilder", "timestamped_key_value_store", "processor:timestamped"),
    _builder("windowStoreBuilder", "window_store", "processor:windowing"),
    _builder("timestampedWindowStoreBuilder", "timestamped_window_store"),
    _builder("sessionStoreBuilder", "session_store", "processor:sessions"),
    _builder("versionedKeyValueStoreBuilder", "versioned_store", "processor:versions"),
)

_SPEC = "penstock.state.StoreSpec"
_STORE_BUILDER = (
    Rule("name", To(f"{_SPEC}.name")),
    Rule("logConfig", To(f"{_SPEC}.changelog_config")),
    Rule("loggingEnabled", To(f"{_SPEC}.logged")),
    Rule("withLoggingEnabled", To("penstock.key_value_store", {"Map": "logging="}, fixed="name")),
    Rule("withLoggingDisabled", To("penstock.key_value_store", fixed="name, logging=False")),
    Rule("withCachingEnabled withCachingDisabled", UNSEEN_CACHE),
    Rule("build", CALLED_BY_KAFKA_STREAMS),
)

PROCESSORS: Rules = {
    **_PROCESSORS,
    **_ROUTING,
    **_DESCRIPTION,
    "Topology": _TOPOLOGY,
    "state.Stores": _STORES,
    "state.StoreBuilder": _STORE_BUILDER,
}
