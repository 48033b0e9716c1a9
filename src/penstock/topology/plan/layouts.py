"""The layout of a store: one list, which gives both the text in committed facts and the store's part of a fingerprint.

Both are kept in Kafka and compared after an upgrade. An entry's word, its place and what it says of a store that could already
be declared never change; a new entry says nothing of such a store, and is no part of the fingerprint. `fields` are the exception:
they are compared only if both layouts have them, and only as far as old values can be read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any

import msgspec

from penstock.serdes import Serde
from penstock.state import StoreSpec

FIELDS = "fields"
"""The fields of typed values; those that a value may lack end with `?`."""

UNLOGGED = "log"
"""Marks the layout of a store without a changelog. A store may lose its changelog at any time, but not get it back."""

_FIRST = 5
"""Of a fingerprint's entries, those in the first of its two tuples."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing about a store that what it keeps depends on.

    `told` puts it into words, None if there is nothing to say; `printed` is its form in a fingerprint, without which it is not
    part of one.
    """

    word: str
    of: Callable[[StoreSpec], Any]
    told: Callable[[Any], str | None]
    printed: Callable[[Any], object] | None


def layout(spec: StoreSpec) -> dict[str, str]:
    """Return how a store lays out its content, as text."""
    described = {entry.word: entry.told(entry.of(spec)) for entry in LAYOUT}
    return {word: told for word, told in described.items() if told is not None}


def printed_layout(spec: StoreSpec) -> str:
    """The same as a fingerprint takes it."""
    printed = tuple(entry.printed(entry.of(spec)) for entry in LAYOUT if entry.printed is not None)
    return f"{printed[:_FIRST]}{printed[_FIRST:]}"


def _as_it_is(value: object) -> object:
    return value


def _class(serde: Serde[Any] | None) -> str:
    return type(serde).__qualname__


def _milliseconds(duration_ms: int | None) -> str | None:
    return None if duration_ms is None else f"{duration_ms} ms"


def _if_so(words: str) -> Callable[[bool], str | None]:
    return lambda is_so: words if is_so else None


def _serde(serde: Serde[Any] | None) -> str | None:
    return None if serde is None else _name(serde)


def _name(serde: Serde[Any]) -> str:
    """A serde as it is called in every process; what one of a user's keeps to itself may be a function, or a secret."""
    kind = type(serde)
    if not kind.__module__.startswith("penstock."):
        return kind.__qualname__
    parts = serde.__getstate__().values()
    if not any(isinstance(part, Serde) for part in parts):
        return repr(serde)
    return f"{kind.__name__}({', '.join(_name(part) if isinstance(part, Serde) else repr(part) for part in parts)})"


def _fields(serde: Serde[Any] | None) -> str | None:
    """Return the fields of a type that values are read as; None if it has none."""
    of: Any = getattr(serde, "of", None)
    if hasattr(of, "model_fields"):
        found = {name: field.is_required() for name, field in of.model_fields.items()}
    elif is_dataclass(of):  # not by msgspec, which would leave in the class what cannot be pickled
        found = {field.name: field.default is MISSING and field.default_factory is MISSING for field in fields(of)}
    elif isinstance(of, type) and issubclass(of, msgspec.Struct):
        found = {field.encode_name: field.required for field in msgspec.structs.fields(of)}
    else:
        return None
    return ", ".join(name if is_required else f"{name}?" for name, is_required in sorted(found.items()))


def missing_fields(before: str | None, after: str | None) -> list[str]:
    """Return the fields that values must have now and did not have before; both as layouts have them."""
    if before is None or after is None:
        return []
    known = {name.removesuffix("?") for name in before.split(", ")}
    return [name for name in after.split(", ") if name and not name.endswith("?") and name not in known]


LAYOUT: tuple[Entry, ...] = (
    Entry("kind", lambda spec: spec.kind.value, str, _as_it_is),
    Entry("retention", lambda spec: spec.retention_ms, _milliseconds, _as_it_is),
    Entry("window", lambda spec: spec.window_size_ms, _milliseconds, _as_it_is),
    Entry("segments", lambda spec: spec.segment_interval_ms, _milliseconds, _as_it_is),
    Entry("duplicates", lambda spec: spec.retain_duplicates, _if_so("True"), _as_it_is),
    Entry("order", lambda spec: spec.time_ordered, _if_so("by time"), _as_it_is),
    Entry("shared", lambda spec: spec.takes_writes, _if_so("by its own keys"), None),
    Entry("version", lambda spec: spec.version, lambda version: None if version == 1 else str(version), None),
    Entry("ttl", lambda spec: spec.ttl_ms is not None, _if_so("with a TTL"), _as_it_is),
    Entry("key", lambda spec: spec.key, _serde, _class),
    Entry("value", lambda spec: spec.value, _serde, _class),
    Entry(FIELDS, lambda spec: spec.value, _fields, None),
    Entry(UNLOGGED, lambda spec: not spec.logged, _if_so("none"), None),
    Entry("aggregates", lambda spec: spec.aggregates, lambda aggregates: aggregates, None),
)
