"""The named functions of the specification; oracle/Library.java is the same in Java."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import orjson

from penstock import Windowed, agg, col
from penstock.expressions.agg import Aggregate


def show(value: Any) -> str:
    """Any key or value as text, so that almost every function works on every type."""
    if value is None:
        return "~"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
    if isinstance(value, Windowed):
        return f"{show(value.key)}@{value.start}/{value.end}"
    return str(value)


def crc(text: str) -> int:
    """A hash that is the same in both languages."""
    return zlib.crc32(text.encode())


def clip(text: str) -> str:
    """Keeps chained concatenations short; the result still depends on what was cut."""
    return text if len(text) <= 60 else f"{text[:10]}#{crc(text):08x}#{text[-30:]}"


def head(value: Any) -> str:
    """The first character, or `_` for the empty text."""
    return show(value)[:1] or "_"


def is_x(value: Any) -> bool:
    """Whether functions handle the value badly: those that begin with x."""
    return show(value).startswith("x")


def mix(key: Any, value: Any) -> int:
    """A hash of key and value."""
    return crc(f"{show(key)}/{show(value)}")


def boom(value: Any) -> Any:
    """Fails on one value."""
    if value == "boom":
        raise ValueError(value)
    return value


def _chars(value: Any) -> list[str]:
    return list(show(value)[:3])


def _pair(left: Any, right: Any) -> str:
    return clip(f"({show(left)},{show(right)})")


def _last(value: Any) -> str | None:
    return show(value)[-1:] or None


PREDICATES: dict[str, Callable[[Any, Any], bool]] = {
    "any": lambda _k, _v: True,
    "value": lambda _k, v: v is not None,
    "even": lambda k, v: mix(k, v) % 2 == 0,
    "most": lambda k, v: mix(k, v) % 4 != 0,
    "not_x": lambda _k, v: not is_x(v),
    "fine": lambda _k, v: boom(v) is not None,
}

VALUE_MAPPERS: dict[str, Callable[[Any], Any]] = {
    "tag": lambda v: clip(show(v) + "'"),
    "tag_null": lambda v: None if v is None else clip(show(v) + "'"),
    "null_x": lambda v: None if is_x(v) else clip(show(v)),
    "length": lambda v: len(show(v)),
    "half": lambda v: len(show(v)) * 0.5,
    "utf8": lambda v: show(v).encode(),
    "fail": boom,
}

VALUE_MAPPERS_WITH_KEY: dict[str, Callable[[Any, Any], Any]] = {
    "keyed": lambda k, v: clip(f"{show(k)}={show(v)}"),
    "keyed_null_x": lambda k, v: None if is_x(v) else clip(f"{show(k)}={show(v)}"),
}

FLAT_VALUE_MAPPERS: dict[str, Callable[[Any], Iterable[Any]]] = {
    "twice": lambda v: [clip(show(v) + "1"), clip(show(v) + "2")],
    "chars": _chars,
    "null_too": lambda v: [clip(show(v)), None],
}

FLAT_VALUE_MAPPERS_WITH_KEY: dict[str, Callable[[Any, Any], Iterable[Any]]] = {
    "keyed_twice": lambda k, v: [clip(show(k) + show(v) + "1"), clip(show(k) + show(v) + "2")],
}

KEY_SELECTORS: dict[str, Callable[[Any, Any], Any]] = {
    "by_head": lambda _k, v: head(v),
    "by_key_head": lambda k, _v: head(k),
    "by_value": lambda _k, v: clip(show(v)),
    "by_key": lambda k, _v: clip(show(k)),
    "by_length": lambda _k, v: len(show(v)),
    "null_x_key": lambda k, v: None if is_x(v) else clip(show(k)),
    "none": lambda _k, _v: None,  # only in verification/conformance/epochs, which has no Java side
}

MAPPERS: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {
    "swap": lambda k, v: (clip(show(v)), clip(show(k))),
    "head_tag": lambda k, v: (head(v), None if v is None else clip(f"{show(k)}:{show(v)}")),
    "keep_tag": lambda k, v: (clip(show(k)), clip(show(v) + "*")),
    "head_length": lambda _k, v: (head(v), len(show(v))),
}

FLAT_MAPPERS: dict[str, Callable[[Any, Any], Iterable[tuple[Any, Any]]]] = {
    "fan": lambda k, v: [(head(k), clip(show(v) + "1")), (head(v), clip(show(v) + "2"))],
    "fan_chars": lambda k, v: [(one, clip(show(k) + show(v))) for one in _chars(v)],
}

INITIALIZERS: dict[str, Callable[[], Any]] = {
    "empty": lambda: "",
    "nothing": lambda: None,
    "zero": lambda: 0,
    "zero_double": lambda: 0.0,
}

AGGREGATORS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "concat": lambda _k, v, a: clip(f"{show(a)}+{show(v)}"),
    "minus": lambda _k, v, a: clip(f"{show(a)}-{show(v)}"),
    "keyed_concat": lambda k, v, a: clip(f"{show(a)}+{show(k)}{show(v)}"),
    "drop_x": lambda _k, v, a: None if is_x(v) else clip(f"{show(a)}+{show(v)}"),
    "add_length": lambda _k, v, a: (a or 0) + len(show(v)),
    "take_length": lambda _k, v, a: (a or 0) - len(show(v)),
    "add_half": lambda _k, v, a: (a or 0.0) + 0.5 * len(show(v)),
    "take_half": lambda _k, v, a: (a or 0.0) - 0.5 * len(show(v)),
}

AGGREGATES: dict[str, Aggregate[Any]] = {
    "all": agg.count(),
    "count": agg.count(col()),
    "sum": agg.sum(col()),
    "min": agg.min(col()),
    "max": agg.max(col()),
    "first": agg.first(col()),
    "last": agg.last(col()),
}

REDUCERS: dict[str, Callable[[Any, Any], Any]] = {
    "glue": lambda a, v: clip(f"{show(a)},{show(v)}"),
    "unglue": lambda a, v: clip(f"{show(a)};{show(v)}"),
    "last": lambda _a, v: v,
    "first": lambda a, _v: a,
    "null_on_x": lambda a, v: None if is_x(v) else clip(f"{show(a)},{show(v)}"),
    "sum": lambda a, v: a + v,
    "difference": lambda a, v: a - v,
}

MERGERS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "merge": lambda _k, a, b: clip(f"{show(a)}|{show(b)}"),
    "merge_long": lambda _k, a, b: (a or 0) + (b or 0),
    "merge_double": lambda _k, a, b: (a or 0.0) + (b or 0.0),
}

JOINERS: dict[str, Callable[[Any, Any], Any]] = {
    "pair": _pair,
    "pair_null_x": lambda left, right: None if is_x(left) or is_x(right) else _pair(left, right),
}

JOINERS_WITH_KEY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "keyed_pair": lambda k, left, right: clip(f"{show(k)}:({show(left)},{show(right)})"),
}

FOREIGN_KEYS: dict[str, Callable[[Any], Any]] = {
    "fk_head": lambda v: None if is_x(v) else head(v),
    "fk_last": _last,
}

FOREIGN_KEYS_WITH_KEY: dict[str, Callable[[Any, Any], Any]] = {
    "fk_either": lambda k, v: head(k) if mix(k, v) % 2 == 0 else head(v),
}

TIMESTAMPS: dict[str, Callable[[Any], int]] = {
    "shift": lambda record: record.timestamp + 3,
    "stuck_x": lambda record: record.partition_time if is_x(record.value) else record.timestamp,
    "negative_x": lambda record: -1 if is_x(record.value) else record.timestamp,
}


def topic_extractor(name: str, prefix: str) -> Callable[[Any, Any, Any], str]:
    """The function that chooses a record's topic, by name."""
    rules: dict[str, Callable[[Any, Any, Any], str]] = {
        "by_mix": lambda k, v, _context: f"{prefix}-{mix(k, v) % 2}",
        "by_time": lambda _k, _v, context: f"{prefix}-{context.timestamp % 2}",
    }
    return rules[name]
