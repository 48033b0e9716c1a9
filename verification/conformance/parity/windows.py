"""Windows, windowed keys and their serdes, and the function types, which are plain functions in Python."""

from __future__ import annotations

from verification.conformance.parity.reasons import (
    BY_CONFIGURATION,
    CALLED_BY_KAFKA_STREAMS,
    NOT_SUPPORTED_THERE,
    NOTHING_TO_CLOSE,
    STATIC_CLASS,
)
from verification.conformance.parity.rules import Rule, Rules, To

_TIMING = "penstock.timing"
_WITHIN = "penstock.KStream.join"
_STREAM_JOINS = ("stream_join_stream",)
_TIME = ("windows:tumbling", "windows:hopping")
_CHANGELOG = To("penstock.TimeWindowed", {"boolean": "changelog="})


def _sizes(owner: str, **attributes: str) -> tuple[Rule, ...]:
    """Accessors: a Java method for an attribute here."""
    return tuple(Rule(java, To(f"{_TIMING}.{owner}.{python}")) for java, python in attributes.items())


_WINDOWS: Rules = {
    "kstream.TimeWindows": (
        Rule("ofSizeWithNoGrace", To("penstock.tumbling", {"Duration": "size"}, _TIME)),
        Rule("ofSizeAndGrace", To("penstock.tumbling", {"Duration": ("size", "grace=")}, _TIME)),
        Rule("advanceBy", To("penstock.hopping", {"Duration": "advance"}, ("windows:hopping",), fixed="size")),
        *_sizes("TimeWindows", size="size_ms", gracePeriodMs="grace_ms"),
        Rule("windowsFor", To(f"{_TIMING}.TimeWindows.windows_for", {"long": "timestamp"}, _TIME)),
    ),
    "kstream.SlidingWindows": (
        Rule("ofTimeDifferenceWithNoGrace", To("penstock.sliding", {"Duration": "difference"}, ("windows:sliding",))),
        Rule("ofTimeDifferenceAndGrace", To("penstock.sliding", {"Duration": ("difference", "grace=")}, ("windows:sliding",))),
        *_sizes("SlidingWindows", timeDifferenceMs="time_difference_ms", gracePeriodMs="grace_ms"),
    ),
    "kstream.SessionWindows": (
        Rule("ofInactivityGapWithNoGrace", To("penstock.session", {"Duration": "gap"}, ("windows:session",))),
        Rule("ofInactivityGapAndGrace", To("penstock.session", {"Duration": ("gap", "grace=")}, ("windows:session",))),
        *_sizes("SessionWindows", inactivityGap="gap_ms", gracePeriodMs="grace_ms"),
    ),
    "kstream.UnlimitedWindows": (
        Rule("of", To("penstock.unlimited", verbs=("windows:unlimited",))),
        Rule("startOn", To("penstock.unlimited", {"Instant": "start"}, ("windows:unlimited",))),
        *_sizes("UnlimitedWindows", size="size_ms", gracePeriodMs="grace_ms"),
        Rule("windowsFor", To(f"{_TIMING}.UnlimitedWindows.windows_for", {"long": "timestamp"}, ("windows:unlimited",))),
    ),
    "kstream.JoinWindows": (
        Rule("ofTimeDifferenceWithNoGrace", To(_WITHIN, {"Duration": "within="}, _STREAM_JOINS)),
        Rule("ofTimeDifferenceAndGrace", To(_WITHIN, {"Duration": ("within=", "grace=")}, _STREAM_JOINS)),
        Rule("before after", To(_WITHIN, {"Duration": ""}, _STREAM_JOINS, fixed="within=", note="`within=(before, after)`")),
        *_sizes("JoinWindows", size="size_ms", gracePeriodMs="grace_ms"),
        Rule("windowsFor", NOT_SUPPORTED_THERE),
    ),
    "kstream.Windows": (
        *_sizes("TimeWindows", size="size_ms", gracePeriodMs="grace_ms"),
        Rule(
            "windowsFor",
            To("penstock.timing.Windows.windows_for", {"long": "timestamp"}, note="any object with these members is windows"),
        ),
    ),
    "kstream.Window": (
        Rule("start startTime", To("penstock.Windowed.start", verbs=("processor:sessions",), note="in milliseconds")),
        Rule("end endTime", To("penstock.Windowed.end", verbs=("processor:sessions",), note="in milliseconds")),
        Rule("overlap", CALLED_BY_KAFKA_STREAMS),
    ),
    "kstream.Windowed": (
        Rule("new", To("penstock.Windowed", {"Object": "key", "Window": "start, end"}, ("processor:sessions",))),
        Rule("key", To("penstock.Windowed.key")),
        Rule("window", To("penstock.Windowed.start", note="and `Windowed.end`")),
    ),
}


def _windowed_serde(python: str, *verbs: str) -> tuple[Rule, ...]:
    """The methods that serializer, deserializer and serde of one kind of windowed keys share."""
    return (
        Rule("new", To(python, {"Serde": "inner", "Serializer": "inner", "long": "window_size_ms"}, verbs), ("Serde",)),
        Rule(
            "new",
            To(python, {"Serializer": "inner"}, verbs, fixed="window_size_ms" if python.endswith("TimeWindowed") else ""),
            ("Serializer",),
        ),
        Rule("new", To(python, {"Deserializer": "inner", "Long": "window_size_ms"}, verbs), ("Deserializer",)),
        Rule("new configure", BY_CONFIGURATION),
        Rule("serialize", To(f"{python}.serialize", verbs=verbs, arguments={"String": "", "Headers": "", "Windowed": ""})),
        Rule("deserialize", To(f"{python}.deserialize", verbs=verbs, arguments={"String": "", "Headers": "", "byte[]": ""})),
        Rule("serializeBaseKey", To(f"{python}.inner", {"String": "", "Headers": "", "Windowed": ""})),
        Rule("close", NOTHING_TO_CLOSE),
        Rule("getWindowSize", To(python, fixed="inner, window_size_ms", note="its attribute `window_size_ms`")),
        Rule("setIsChangelogTopic forChangelog", _CHANGELOG),
    )


_TIME_KEYS = _windowed_serde("penstock.TimeWindowed", "windows:tumbling", "windows:sliding")
_SESSION_KEYS = _windowed_serde("penstock.SessionWindowed", "windows:session")

_SERDES: Rules = {
    "kstream.TimeWindowedSerializer": _TIME_KEYS,
    "kstream.TimeWindowedDeserializer": _TIME_KEYS,
    "kstream.WindowedSerdes.TimeWindowedSerde": _TIME_KEYS,
    "kstream.SessionWindowedSerializer": _SESSION_KEYS,
    "kstream.SessionWindowedDeserializer": _SESSION_KEYS,
    "kstream.WindowedSerdes.SessionWindowedSerde": _SESSION_KEYS,
    "kstream.WindowedSerdes": (
        Rule("new", STATIC_CLASS),
        Rule(
            "timeWindowedSerdeFrom",
            To("penstock.TimeWindowed", {"Class": "inner", "long": "window_size_ms"}, ("windows:tumbling",)),
        ),
        Rule("sessionWindowedSerdeFrom", To("penstock.SessionWindowed", {"Class": "inner"}, ("windows:session",))),
    ),
}

_FUNCTION = "a function"


def _function(java: str, target: str, argument: str, verb: str) -> tuple[Rule]:
    """A function type: in Python `argument` is any callable."""
    outcome = To(target, {"Object": ""}, (verb,), fixed=argument, note=_FUNCTION)
    return (Rule(java, outcome),)


_FUNCTIONS: Rules = {
    "kstream.Predicate": _function("test", "penstock.KStream.filter", "predicate", "stream_filter"),
    "kstream.KeyValueMapper": _function("apply", "penstock.KStream.map", "mapper", "stream_map"),
    "kstream.ValueMapper": _function("apply", "penstock.KStream.map_values", "mapper", "stream_map_values"),
    "kstream.ValueMapperWithKey": _function(
        "apply", "penstock.KStream.map_values", "mapper, with_key=True", "stream_map_values(with_key)"
    ),
    "kstream.ValueJoiner": _function("apply", "penstock.KStream.join", "joiner", "stream_join_stream"),
    "kstream.ValueJoinerWithKey": _function(
        "apply", "penstock.KStream.join", "joiner, with_key=True", "stream_join_stream(with_key)"
    ),
    "kstream.ForeachAction": _function("apply", "penstock.KStream.foreach", "action", "stream_foreach"),
    "kstream.Initializer": _function("apply", "penstock.KGroupedStream.aggregate", "initializer", "grouped_aggregate"),
    "kstream.Aggregator": _function("apply", "penstock.KGroupedStream.aggregate", "aggregator", "grouped_aggregate"),
    "kstream.Merger": _function("apply", "penstock.WindowedKStream.aggregate", "merger", "sessions_aggregate"),
    "kstream.Reducer": _function("apply", "penstock.KGroupedStream.reduce", "reducer", "grouped_reduce"),
    "kstream.ValueTransformerWithKeySupplier": _function(
        "get", "penstock.KTable.transform_values", "supplier", "table_transform_values"
    ),
    "kstream.ValueTransformerWithKey": tuple(
        Rule(
            name,
            To(
                f"penstock.ValueTransformer.{name}",
                {"ProcessorContext": "context", "Object": ("key", "value")},
                ("table_transform_values",),
            ),
        )
        for name in ("init", "transform", "close")
    ),
}

WINDOWS: Rules = {**_WINDOWS, **_SERDES, **_FUNCTIONS}
