"""The DSL's verbs: builder, streams, tables, grouped, windowed and cogrouped handles."""

from __future__ import annotations

from verification.conformance.parity.reasons import RUNTIME
from verification.conformance.parity.rules import EVERY_CASE, Rule, Rules, To


def _stream(java: str, python: str, **arguments: str) -> Rule:
    return Rule(java, To(f"penstock.KStream.{python}", arguments, (f"stream_{python}",)))


def _table(java: str, python: str, **arguments: str) -> Rule:
    return Rule(java, To(f"penstock.KTable.{python}", arguments, (f"table_{python}",)))


def _with_key(java: str, python: str, owner: str, verb: str) -> tuple[Rule, Rule]:
    """A verb whose function receives the key as well, or not."""
    target = f"penstock.{owner}.{python}"
    return (
        Rule(java, To(target, {}, (f"{verb}(with_key)",)), ("ValueMapperWithKey",)),
        Rule(java, To(target, {}, (verb,))),
    )


def _stream_joins(java: str, python: str, kind: str) -> tuple[Rule, ...]:
    """A stream's joins of one kind: with a stream, a table, a global table; with the key or without."""
    target, arguments = f"penstock.KStream.{python}", {"KeyValueMapper": "on="}
    rules: list[Rule] = []
    for other, verb in (
        ("KStream", "stream_join_stream"),
        ("KTable", "stream_join_table"),
        ("GlobalKTable", "stream_join_global"),
    ):
        plain, keyed = (f"{verb}:{kind}",), ("ValueJoinerWithKey",)
        graced = (f"{verb}:{kind}+grace",)
        rules += [
            Rule(java, To(target, arguments, (*plain, *graced, f"{verb}(with_key)")), (other, "Joined", *keyed)),
            Rule(java, To(target, arguments, (*plain, *graced)), (other, "Joined")),
            Rule(java, To(target, arguments, (*plain, f"{verb}(with_key)")), (other, *keyed)),
            Rule(java, To(target, arguments, plain), (other,)),
        ]
    return tuple(rules)


def _table_joins(java: str, python: str, kind: str) -> tuple[Rule, ...]:
    """A table's joins of one kind: by key, or by a foreign key."""
    target, foreign = f"penstock.KTable.{python}", f"table_join_foreign:{kind}"
    return (
        Rule(java, To(target, {}, (foreign, "table_join_foreign(with_key)")), ("BiFunction",)),
        Rule(java, To(target, {}, (foreign,)), ("Function",)),
        Rule(java, To(target, {}, (f"table_join_table:{kind}",))),
    )


def _aggregations(owner: str, verbs: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(name, To(f"penstock.{owner}.{name}", {}, (f"{verbs}_{name}",))) for name in ("count", "reduce", "aggregate")
    )


def _windowed_by(owner: str, verb: str) -> tuple[Rule, ...]:
    target = f"penstock.{owner}.windowed_by"
    return (
        Rule("windowedBy", To(target, {}, (verb, "windows:sliding")), ("SlidingWindows",)),
        Rule("windowedBy", To(target, {}, (verb, "windows:session")), ("SessionWindows",)),
        Rule("windowedBy", To(target, {}, (verb, "windows:tumbling", "windows:hopping", "windows:unlimited"))),
    )


def _emit_strategy(*windows: str) -> Rule:
    return Rule(
        "emitStrategy", To("penstock.WindowedKStream.emit_strategy", {}, tuple(f"emit on close:{kind}" for kind in windows))
    )


def _source(java: str, python: str, topic: str, verb: str, **arguments: str) -> Rule:
    return Rule(java, To(f"penstock.StreamsBuilder.{python}", {topic: "topic", **arguments}, (verb,)), (topic,))


_BUILDER = (
    Rule("new", RUNTIME, ("TopologyConfig",)),
    Rule("new", To("penstock.StreamsBuilder", fixed="key=, value=", verbs=(EVERY_CASE,), note="with the default serdes")),
    _source("stream", "stream", "String", "builder_stream"),
    _source("stream", "stream", "Collection", "builder_stream_topics"),
    _source("stream", "stream", "Pattern", "builder_stream_pattern"),
    _source("table", "table", "String", "builder_table"),
    # A global topic is always read from its beginning, and Kafka Streams ignores a timestamp extractor here.
    _source("globalTable", "global_table", "String", "builder_global_table", Consumed="key=, value=, name="),
    Rule("addStateStore", To("penstock.StreamsBuilder.add_state_store", {"StoreBuilder": "spec"}, ("builder_add_state_store",))),
    Rule(
        "addGlobalStore",
        To(
            "penstock.StreamsBuilder.add_global_store",
            {
                "StoreBuilder": "spec",
                "String": "topic",
                "ProcessorSupplier": "supplier",
                "Consumed": "key=, value=, name=",
            },
            ("builder_add_global_store",),
        ),
    ),
    Rule("build", RUNTIME, ("Properties",)),
    Rule("build", To("penstock.StreamsBuilder.build", verbs=(EVERY_CASE,))),
)

_KSTREAM = (
    *(_stream(name, name) for name in ("filter", "map", "peek", "foreach", "merge", "repartition")),
    _stream("filterNot", "filter_not"),
    _stream("selectKey", "select_key"),
    _stream("flatMap", "flat_map"),
    *_with_key("mapValues", "map_values", "KStream", "stream_map_values"),
    *_with_key("flatMapValues", "flat_map_values", "KStream", "stream_flat_map_values"),
    _stream("print", "print", Printed="label=, file=, mapper=, name="),
    Rule("split", To("penstock.KStream.split", fixed="predicates", verbs=("stream_split",))),
    Rule("to", To("penstock.KStream.to", {"TopicNameExtractor": "topic"}, ("stream_to_dynamic",)), ("TopicNameExtractor",)),
    Rule("to", To("penstock.KStream.to", {"String": "topic"}, ("stream_to",))),
    _stream("toTable", "to_table"),
    _stream("groupByKey", "group_by_key"),
    _stream("groupBy", "group_by", KeyValueMapper="selector"),
    *_stream_joins("join", "join", "inner"),
    *_stream_joins("leftJoin", "left_join", "left"),
    *_stream_joins("outerJoin", "outer_join", "outer"),
    Rule(
        "process", To("penstock.KStream.process", {"ProcessorSupplier": "supplier", "String...": "stores="}, ("stream_process",))
    ),
    Rule(
        "processValues",
        To(
            "penstock.KStream.process_values",
            {"FixedKeyProcessorSupplier": "supplier", "String...": "stores="},
            ("stream_process_values",),
        ),
    ),
)

_KTABLE = (
    _table("filter", "filter"),
    _table("filterNot", "filter_not"),
    *_with_key("mapValues", "map_values", "KTable", "table_map_values"),
    Rule(
        "transformValues",
        To(
            "penstock.KTable.transform_values",
            {"ValueTransformerWithKeySupplier": "supplier", "String...": "stores="},
            ("table_transform_values",),
        ),
    ),
    _table("toStream", "to_stream"),
    _table("suppress", "suppress"),
    _table("groupBy", "group_by", KeyValueMapper="selector"),
    *_table_joins("join", "join", "inner"),
    *_table_joins("leftJoin", "left_join", "left"),
    *_table_joins("outerJoin", "outer_join", "outer"),
    Rule("queryableStoreName", To("penstock.KTable.queryable_store_name")),
)

_SPLIT = "penstock.KStream.split"
_BRANCHED_KSTREAM = (
    Rule(
        "branch",
        To(_SPLIT, {"Predicate": "named", "Branched": ""}, ("stream_split",), note="`split(big=predicate)`"),
        ("Branched",),
    ),
    Rule("branch", To(_SPLIT, {"Predicate": "predicates"}, ("stream_split",))),
    Rule("defaultBranch", To("penstock.otherwise", {"Branched": ""}, ("stream_split",), note="the last of `split`", bare=True)),
    Rule("noDefaultBranch", To(_SPLIT, fixed="predicates", verbs=("stream_split",), note="without `otherwise`")),
)

VERBS: Rules = {
    "StreamsBuilder": _BUILDER,
    "kstream.KStream": _KSTREAM,
    "kstream.KTable": _KTABLE,
    "kstream.GlobalKTable": (Rule("queryableStoreName", To("penstock.GlobalKTable.queryable_store_name")),),
    "kstream.BranchedKStream": _BRANCHED_KSTREAM,
    "kstream.KGroupedStream": (
        *_aggregations("KGroupedStream", "grouped"),
        *_windowed_by("KGroupedStream", "grouped_windowed_by"),
        Rule("cogroup", To("penstock.KGroupedStream.cogroup", {}, ("grouped_cogroup",))),
    ),
    "kstream.KGroupedTable": (
        Rule("count", To("penstock.KGroupedTable.count", {}, ("regrouped_count",))),
        Rule("reduce", To("penstock.KGroupedTable.reduce", {"Reducer": ("adder", "subtractor")}, ("regrouped_reduce",))),
        Rule(
            "aggregate", To("penstock.KGroupedTable.aggregate", {"Aggregator": ("adder", "subtractor")}, ("regrouped_aggregate",))
        ),
    ),
    "kstream.TimeWindowedKStream": (
        *_aggregations("WindowedKStream", "windowed"),
        _emit_strategy("tumbling", "hopping", "sliding"),
    ),
    "kstream.SessionWindowedKStream": (*_aggregations("WindowedKStream", "sessions"), _emit_strategy("session")),
    "kstream.CogroupedKStream": (
        Rule("cogroup", To("penstock.CogroupedKStream.cogroup", {"KGroupedStream": "grouped"}, ("cogrouped_cogroup",))),
        Rule("aggregate", To("penstock.CogroupedKStream.aggregate", {}, ("cogrouped_aggregate",))),
        *_windowed_by("CogroupedKStream", "cogrouped_windowed_by"),
    ),
    "kstream.TimeWindowedCogroupedKStream": (
        Rule("aggregate", To("penstock.WindowedCogroupedKStream.aggregate", {}, ("cogrouped_windowed_by", "windowed_aggregate"))),
    ),
    "kstream.SessionWindowedCogroupedKStream": (
        Rule("aggregate", To("penstock.WindowedCogroupedKStream.aggregate", {}, ("cogrouped_windowed_by", "sessions_aggregate"))),
    ),
}
