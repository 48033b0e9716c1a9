"""Kafka Streams' option objects, which are mostly keyword arguments in Penstock."""

from __future__ import annotations

from verification.conformance.parity.reasons import CALLED_BY_KAFKA_STREAMS, NO_TOPIC_BETWEEN, ONE_ENGINE
from verification.conformance.parity.rules import Rule, Rules, To

_SOURCE = "penstock.StreamsBuilder.stream"
_STREAM_JOIN = "penstock.KStream.join"
_STORE = "penstock.Store"
_BUFFER = "penstock.timing.BufferConfig"
_KEPT = ("builder_table", "grouped_count", "table_filter", "stream_to_table")


def _options(target: str, *verbs: str, **more: str) -> tuple[Rule, ...]:
    """An option class: its name and serdes, and `more` for parameters of other types."""
    return (
        Rule("as withName", To(target, {"String": "name="}, verbs)),
        Rule("keySerde withKeySerde", To(target, {"Serde": "key="}, verbs)),
        Rule("valueSerde withValueSerde", To(target, {"Serde": "value="}, verbs)),
        Rule("otherValueSerde withOtherValueSerde", To(target, {"Serde": "other_value="}, verbs)),
        Rule("with", To(target, {"Serde": ("key=", "value=", "other_value="), "String": "name=", **more}, verbs)),
    )


_MATERIALIZED = (
    Rule(
        "as withStoreType",
        ONE_ENGINE,
        ("DslStoreSuppliers",),
    ),
    Rule("as", To(_STORE, {"String": "name="}, _KEPT), ("String",)),
    Rule(
        "as",
        To(_STORE, {"KeyValueBytesStoreSupplier": "name=, history=, segment_interval="}, ("versioned table",)),
        ("KeyValueBytesStoreSupplier",),
    ),
    Rule(
        "as",
        To(_STORE, {"WindowBytesStoreSupplier": "name=, retention="}, ("windowed_aggregate",)),
        ("WindowBytesStoreSupplier",),
    ),
    Rule("as", To(_STORE, {"SessionBytesStoreSupplier": "name=, retention="}, ("sessions_aggregate",))),
    Rule("with", To(_STORE, {"Serde": ("key=", "value=")}, _KEPT)),
    Rule("withKeySerde", To(_STORE, {"Serde": "key="}, _KEPT)),
    Rule("withValueSerde", To(_STORE, {"Serde": "value="}, _KEPT)),
    Rule("withCachingEnabled", To(_STORE, fixed="caching=True", verbs=_KEPT)),
    Rule("withCachingDisabled", To(_STORE, fixed="caching=False", verbs=_KEPT)),
    Rule("withLoggingEnabled", To(_STORE, {"Map": "logging="}, _KEPT)),
    Rule("withLoggingDisabled", To(_STORE, fixed="logging=False", verbs=_KEPT)),
    Rule("withRetention", To(_STORE, {"Duration": "retention="}, ("windowed_count", "sessions_count"))),
)

_STREAM_JOINED = (
    Rule(
        "with withDslStoreSuppliers",
        ONE_ENGINE,
        ("DslStoreSuppliers",),
    ),
    Rule(
        "with withThisStoreSupplier withOtherStoreSupplier",
        ONE_ENGINE,
        ("WindowBytesStoreSupplier",),
    ),
    # `as` names the stores here, `withName` the nodes.
    Rule("as withStoreName", To(_STREAM_JOIN, {"String": "store_name="}, ("stream_join_stream",))),
    *_options(_STREAM_JOIN, "stream_join_stream"),
    Rule("withLoggingEnabled", To(_STREAM_JOIN, {"Map": "logging="})),
    Rule("withLoggingDisabled", To(_STREAM_JOIN, fixed="logging=False")),
)

_BUFFER_CONFIG = (
    Rule("maxRecords", To("penstock.max_records", {"long": "limit"}, ("suppress:time_limit",))),
    Rule("maxBytes", To("penstock.max_bytes", {"long": "limit"}, ("suppress:time_limit",))),
    Rule("unbounded", To("penstock.unbounded", verbs=("suppress:time_limit", "suppress:window_closes"))),
    Rule("withMaxRecords", To(f"{_BUFFER}.with_max_records", {"long": "limit"})),
    Rule("withMaxBytes", To(f"{_BUFFER}.with_max_bytes", {"long": "limit"})),
    Rule("withNoBound", To(f"{_BUFFER}.with_no_bound")),
    Rule("emitEarlyWhenFull", To(f"{_BUFFER}.emit_early_when_full", verbs=("suppress:time_limit",))),
    Rule("shutDownWhenFull", To(f"{_BUFFER}.shut_down_when_full", verbs=("suppress:window_closes",))),
    Rule("withLoggingEnabled", To(f"{_BUFFER}.with_logging_enabled", {"Map": "config"})),
    Rule("withLoggingDisabled", To(f"{_BUFFER}.with_logging_disabled")),
)

_SPLIT = "penstock.KStream.split"
_PASSED = "whose streams it is called with"
_BRANCHED = (
    Rule("as withName", To(_SPLIT, {"String": "named"}, ("stream_split",), note="`split(big=predicate)`")),
    Rule("withConsumer", To(_SPLIT, {"Consumer": "predicates", "String": "named"}, ("stream_split",), note=_PASSED)),
    Rule("withFunction", To(_SPLIT, {"Function": "predicates", "String": "named"}, ("stream_split",), note=_PASSED)),
)

_STRATEGY = "penstock.EmitStrategy"
_ON_CLOSE = ("emit on close:tumbling", "emit on close:hopping", "emit on close:sliding", "emit on close:session")

OPTIONS: Rules = {
    "kstream.Named": (Rule("as withName", To("penstock.KStream.map", {"String": "name="}, note="every verb has `name=`")),),
    "kstream.Consumed": (
        *_options(_SOURCE, "builder_stream", TimestampExtractor="timestamp=", AutoOffsetReset="reset="),
        Rule("withTimestampExtractor", To(_SOURCE, {"TimestampExtractor": "timestamp="}, ("builder_stream",))),
        Rule("withOffsetResetPolicy", To(_SOURCE, {"AutoOffsetReset": "reset="}, ("builder_stream",))),
    ),
    "AutoOffsetReset": (
        Rule("earliest", To(_SOURCE, fixed='reset="earliest"', verbs=("builder_stream",))),
        Rule("latest", To(_SOURCE, fixed='reset="latest"', verbs=("builder_stream",))),
        Rule("none", To(_SOURCE, fixed='reset="none"')),
        Rule("byDuration", To(_SOURCE, {"Duration": "reset="})),
    ),
    "kstream.Produced": (
        *_options("penstock.KStream.to", "stream_to", StreamPartitioner="partitioner="),
        Rule(
            "streamPartitioner withStreamPartitioner",
            To("penstock.KStream.to", {"StreamPartitioner": "partitioner="}, ("stream_to",)),
        ),
    ),
    "kstream.Repartitioned": (
        *_options("penstock.KStream.repartition", "stream_repartition"),
        Rule(
            "streamPartitioner withStreamPartitioner", To("penstock.KStream.repartition", {"StreamPartitioner": "partitioner="})
        ),
        Rule(
            "numberOfPartitions withNumberOfPartitions",
            To("penstock.KStream.repartition", {"int": "partitions="}, ("stream_repartition",)),
        ),
    ),
    "kstream.Grouped": _options("penstock.KStream.group_by", "stream_group_by", "stream_group_by_key", "table_group_by"),
    "kstream.Joined": (
        *_options(_STREAM_JOIN, "stream_join_table", Duration="grace="),
        Rule(
            "withGracePeriod",
            To(_STREAM_JOIN, {"Duration": "grace="}, ("stream_join_table:inner+grace", "stream_join_table:left+grace")),
        ),
    ),
    "kstream.StreamJoined": _STREAM_JOINED,
    "kstream.TableJoined": (
        Rule("as withName", To("penstock.KTable.join", {"String": "name="}, ("table_join_foreign",))),
        Rule("with withPartitioner withOtherPartitioner", NO_TOPIC_BETWEEN),
    ),
    "kstream.Materialized": _MATERIALIZED,
    "kstream.Materialized.StoreType": (
        Rule("values valueOf", ONE_ENGINE),
        Rule("configure keyValueStore windowStore sessionStore", CALLED_BY_KAFKA_STREAMS),
    ),
    "kstream.Suppressed": (
        Rule(
            "untilTimeLimit",
            To("penstock.until_time_limit", {"Duration": "limit", "Suppressed.BufferConfig": "buffer"}, ("suppress:time_limit",)),
        ),
        Rule(
            "untilWindowCloses",
            To("penstock.until_window_closes", {"Suppressed.StrictBufferConfig": "buffer"}, ("suppress:window_closes",)),
        ),
        Rule("withName", To("penstock.until_window_closes", {"String": "name="}, ("table_suppress",))),
    ),
    "kstream.Suppressed.BufferConfig": _BUFFER_CONFIG,
    "kstream.Branched": _BRANCHED,
    "kstream.EmitStrategy": (
        Rule("onWindowClose", To(f"{_STRATEGY}.ON_WINDOW_CLOSE", verbs=_ON_CLOSE)),
        Rule("onWindowUpdate", To(f"{_STRATEGY}.ON_WINDOW_UPDATE", verbs=("grouped_windowed_by",))),
        Rule("type", To(_STRATEGY, note="a member is its own type")),
    ),
    "kstream.EmitStrategy.StrategyType": (
        Rule("values valueOf forType", To(_STRATEGY, {"String": "", "EmitStrategy.StrategyType": ""})),
    ),
    "kstream.Printed": (
        Rule("toFile", To("penstock.KStream.print", {"String": "file="}, ("stream_print",))),
        Rule("toSysOut", To("penstock.KStream.print")),
        Rule("withLabel", To("penstock.KStream.print", {"String": "label="}, ("stream_print",))),
        Rule("withName", To("penstock.KStream.print", {"String": "name="}, ("stream_print",))),
        Rule("withKeyValueMapper", To("penstock.KStream.print", {"KeyValueMapper": "mapper="}, ("stream_print",))),
    ),
}
