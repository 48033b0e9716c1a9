"""Chains of verbs with values of a class between them, whose type only annotations say.

The judge's chains have the same functions, and name the type at every verb that writes it. A value that comes out of a store or
an exchange as anything else than it went in has another name in the result, or fails.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock import (
    FixedKeyProcessor,
    KStream,
    Processor,
    Record,
    Store,
    ValueTransformer,
    tumbling,
    unbounded,
    until_window_closes,
)
from verification.conformance.functions import clip, crc, show


@dataclass
class Reading:
    """A value: a text, and a number that depends on it."""

    text: str
    number: int = 0


@dataclass
class Total:
    """An aggregate of readings."""

    count: int
    last: Reading | None = None


def read(value: Any) -> Reading:
    """The reading of any value."""
    return Reading(show(value), crc(show(value)) % 10)


def read_twice(value: Any) -> list[Reading]:
    """Two readings."""
    return [read(value), Reading("again", 1)]


def read_by_number(_key: Any, value: Any) -> tuple[int, Reading]:
    """A reading with its number as key."""
    reading = read(value)
    return reading.number, reading


def number_of(_key: Any, reading: Reading) -> int:
    """A key that is not text."""
    return reading.number


def added(aggregate: Reading, reading: Reading) -> Reading:
    """The reducer."""
    return Reading(clip(f"{aggregate.text}+{reading.text}"), aggregate.number + reading.number)


def nothing() -> Total:
    """The initializer."""
    return Total(0)


def counted(_key: Any, reading: Reading, total: Total) -> Total:
    """The aggregator."""
    return Total(total.count + 1, reading)


def paired(left: Reading, right: Reading) -> Reading:
    """The joiner."""
    return Reading(clip(f"({left.text},{right.text})"), left.number - right.number)


def said(value: Any) -> str:
    """The result of a chain, with the names of its types."""
    inner = f"{type(value.last).__name__}({value.last.text})" if isinstance(value, Total) and value.last else ""
    about = f"{value.text}/{value.number}" if isinstance(value, Reading) else f"{getattr(value, 'count', value)}{inner}"
    return clip(f"{type(value).__name__}[{about}]")


class Measuring(Processor[Any, Any, Any, Reading]):
    """Forwards readings."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        self.context.forward(record.with_value(read(record.value)))


class Tagging(FixedKeyProcessor[Any, Any, Reading]):
    """Forwards readings under the same key."""

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        self.context.forward(record.with_value(read(record.value)))


class Rereading(ValueTransformer[Any, Any, Reading | None]):
    """Makes readings of a table's values."""

    def transform(self, key: Any, value: Any) -> Reading | None:
        """See the class."""
        return None if value is None else read(value)


MADE: dict[str, Callable[[KStream[Any, Any], dict[str, Any]], KStream[Any, Reading]]] = {
    "map_values": lambda stream, value: stream.map_values(read, **value),
    "flat_map_values": lambda stream, value: stream.flat_map_values(read_twice, **value),
    "process": lambda stream, value: stream.process(Measuring, **value),
    "process_values": lambda stream, value: stream.process_values(Tagging, **value),
    "map": lambda stream, value: stream.map(read_by_number, **value, **_number(value)),
    "not_said": lambda stream, value: stream.map_values(lambda found: Reading(show(found), 1), **value),
}
"""How readings are made, by the verb."""


def _number(value: dict[str, Any]) -> dict[str, Any]:
    """The type of the keys, named if that of the values is."""
    return {"key": int} if value else {}


BY_NEXT = ("reduce", "aggregate", "windowed", "suppress")
"""Where the next function says what is stored."""

WINDOW = 10
"""The length of windows and joins of these chains."""

KEPT = ("reduce", "aggregate", "windowed", "table", "transformed", "mapped_table", "group_by", "repartition", "join", "suppress")
"""What becomes of them: each writes readings into a store or an exchange."""


class Typed:
    """Builds the chains; with `is_judge`, types are named."""

    def __init__(self, *, is_judge: bool) -> None:
        self._reading: dict[str, Any] = {"value": Reading} if is_judge else {}
        self._total: dict[str, Any] = {"value": Total} if is_judge else {}
        self._number: dict[str, Any] = {"key": int} if is_judge else {}

    def chain(self, stream: KStream[Any, Any], args: dict[str, Any]) -> KStream[Any, str]:
        """The chain of an operation: readings are made, kept, and said. `key` is the serde of the stream's key."""
        made = MADE[args["made"]](stream, self._reading)
        key = {} if args["made"] == "map" else {"key": args["key"]}
        kept: KStream[Any, Any] = getattr(self, f"_{args['kept']}")(made, key, args["store"])
        return kept.map_values(said)

    def _store(self, name: str, key: dict[str, Any], value: dict[str, Any]) -> Store:
        return Store(name, **key, **value)

    def _reduce(self, made: Any, key: dict[str, Any], store: str) -> Any:
        return made.group_by_key(**key).reduce(added, store=self._store(store, key, self._reading)).to_stream()

    def _aggregate(self, made: Any, key: dict[str, Any], store: str) -> Any:
        return made.group_by_key(**key).aggregate(nothing, counted, store=self._store(store, key, self._total)).to_stream()

    def _windowed(self, made: Any, key: dict[str, Any], store: str) -> Any:
        windows = made.group_by_key(**key).windowed_by(tumbling(WINDOW, grace=WINDOW))
        return windows.reduce(added, store=self._store(store, key, self._reading)).to_stream()

    def _table(self, made: Any, key: dict[str, Any], store: str) -> Any:
        return made.to_table(store=self._store(store, key, self._reading)).to_stream()

    def _transformed(self, made: Any, key: dict[str, Any], store: str) -> Any:
        texts = made.map_values(said).to_table(store=Store(f"{store}-texts", **key, value=str))
        return texts.transform_values(Rereading, store=self._store(store, key, self._reading)).to_stream()

    def _mapped_table(self, made: Any, key: dict[str, Any], store: str) -> Any:
        texts = made.map_values(said).to_table(store=Store(f"{store}-texts", **key, value=str))
        return texts.map_values(read, store=self._store(store, key, self._reading)).to_stream()

    def _group_by(self, made: Any, key: dict[str, Any], store: str) -> Any:
        grouped = made.group_by(number_of, **self._number)
        return grouped.reduce(added, store=self._store(store, self._number, self._reading)).to_stream()

    def _repartition(self, made: Any, key: dict[str, Any], store: str) -> Any:
        return made.repartition(name=store, **key, **self._reading)

    def _join(self, made: Any, key: dict[str, Any], store: str) -> Any:
        others = {"other_value": Reading} if self._reading else {}
        joined = made.join(made, paired, within=WINDOW, store_name=store, **key, **self._reading, **others)
        return (
            joined.group_by_key(**key, **self._reading)
            .reduce(added, store=self._store(f"{store}-sum", key, self._reading))
            .to_stream()
        )

    def _suppress(self, made: Any, key: dict[str, Any], store: str) -> Any:
        windows = made.group_by_key(**key).windowed_by(tumbling(WINDOW, grace=0))
        return (
            windows.reduce(added, store=self._store(store, key, self._reading))
            .suppress(until_window_closes(unbounded()))
            .to_stream()
        )


def keys(made: str, kept: str) -> str | None:
    """The serde of the keys of a chain's result if it is not that of the stream."""
    return "long" if made == "map" or kept == "group_by" else None


def is_windowed(kept: str) -> bool:
    """Whether the keys of a chain's result are windowed."""
    return kept in {"windowed", "suppress"}
