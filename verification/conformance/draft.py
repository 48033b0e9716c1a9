"""A case under construction: its operations, the handles they returned, and what is known about each handle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from verification.conformance.spec import Args, Op

T = TypeVar("T")

KEYS = ("a", "b", "c")
"""Few, so that they repeat; also the heads of most values, so that foreign keys match."""


@dataclass(frozen=True)
class Handle:
    """The result of an operation: a stream, a table, a grouping.

    `key` and `value` are serde names. A known serde is one that Kafka Streams carries along, so that a later
    operation need not name it; string is the default and never needs to be named. Kafka Streams cannot look up
    (`readable`) the table of a windowed cogroup.
    """

    id: str
    kind: str
    key: str = "string"
    value: str = "string"
    key_known: bool = False
    value_known: bool = False
    windows: Args | None = None
    versioned: bool = False
    readable: bool = True

    @property
    def plain_key(self) -> bool:
        """Whether the key is not a windowed key."""
        return ":" not in self.key

    @property
    def carried(self) -> bool:
        """Whether the handle carries both serdes, for operations that cannot name them."""
        return (self.key_known or self.key == "string") and (self.value_known or self.value == "string")


class Draft:
    """The operations so far, and the random generator."""

    def __init__(self, dice: Random) -> None:
        self.dice = dice
        self.ops: list[Op] = []
        self.handles: list[Handle] = []
        self.topics: dict[str, tuple[str, str]] = {}
        self.tables: set[str] = set()
        self._names = 0

    def chance(self, probability: float) -> bool:
        """True with this probability."""
        return self.dice.random() < probability

    def choice(self, options: Sequence[T]) -> T:
        """One of them."""
        return options[self.dice.randrange(len(options))]

    def fresh(self, stem: str) -> str:
        """A name not used before in this case."""
        self._names += 1
        return f"{stem}-{self._names}"

    def add(self, verb: str, inputs: Sequence[Handle], **args: Any) -> str:
        """Add an operation; arguments that are None are omitted."""
        name = f"n{len(self.ops)}"
        kept = {key: value for key, value in args.items() if value is not None}
        self.ops.append(Op(name, verb, tuple(handle.id for handle in inputs), kept))
        return name

    def keep(self, handle: Handle) -> Handle:
        """Offer the handle to later operations."""
        self.handles.append(handle)
        return handle

    def step(self, verb: str, inputs: Sequence[Handle], result: Handle, **args: Any) -> Handle:
        """Add an operation and return its handle."""
        return self.keep(replace(result, id=self.add(verb, inputs, **args)))

    def name(self) -> str | None:
        """A name for the operation, sometimes."""
        return self.fresh("named") if self.chance(0.15) else None

    def pick(self, kind: str, *, key: str | None = None, value: str | None = None, plain: bool = False) -> Handle | None:
        """A matching handle, preferably a recent one."""
        fits = [
            handle
            for handle in self.handles
            if handle.kind == kind
            and (key is None or handle.key == key)
            and (value is None or handle.value == value)
            and (not plain or handle.plain_key)
        ]
        if not fits:
            return None
        return fits[-1] if self.chance(0.7) else self.choice(fits)

    # -- serdes: named where necessary, and sometimes where not

    def key_serde(self, handle: Handle) -> str | None:
        """The key serde to name at a point that needs one."""
        needed = handle.key != "string" and not handle.key_known
        return handle.key if needed or (self.chance(0.4) and handle.plain_key) else None

    def value_serde(self, handle: Handle) -> str | None:
        """The value serde to name at a point that needs one."""
        needed = handle.value != "string" and not handle.value_known
        return handle.value if needed or self.chance(0.4) else None

    def store(self, key: Handle, value: str, *, known: bool, history: bool = False, spare: int | None = None) -> Args | None:
        """How a result is materialised. `known`: the value serde is inherited; `spare`: a window store's minimum retention."""
        needs_value = value != "string" and not known
        needs_key = key.key != "string" and not key.key_known
        if self.chance(0.35) and not needs_value and not needs_key:
            return None
        store: Args = {}
        if self.chance(0.75):
            store["name"] = self.fresh("store")
        if needs_key:
            store["key"] = key.key
        if needs_value or self.chance(0.3):
            store["value"] = value
        if self.chance(0.3):
            store["caching"] = self.chance(0.5)
        if self.chance(0.15):
            store["logging"] = self.chance(0.5)
        if history and "name" in store and self.chance(0.2):
            store["history"] = self.choice((0, 5, 20, 1000))
            store.pop("caching", None)
        if spare is not None and self.chance(0.25):
            store["retention"] = spare + self.choice((0, 1, 10, 100))
        return store

    def is_versioned(self, store: Args | None) -> bool:
        """Whether the store keeps history."""
        return store is not None and "history" in store

    # -- sources

    def topic(self, key: str, value: str, *, table: bool = False, stem: str = "in") -> str:
        """A new input topic."""
        topic = self.fresh(stem)
        self.topics[topic] = (key, value)
        if table:
            self.tables.add(topic)
        return topic

    def consumed(self, key: str, value: str) -> Args:
        """How a source reads its topic."""
        return {
            "key": key if key != "string" or self.chance(0.5) else None,
            "value": value if value != "string" or self.chance(0.5) else None,
            "timestamp": self.choice(("shift", "stuck_x", "negative_x")) if self.chance(0.08) else None,
            "reset": self.choice(("earliest", "latest")) if self.chance(0.05) else None,
            "name": self.name(),
        }

    def source_types(self) -> tuple[str, str]:
        """Key and value serde of a new source: mostly text."""
        key = "long" if self.chance(0.04) else "string"
        value = self.choice(("long", "double", "bytes")) if self.chance(0.1) else "string"
        return key, value

    def new_stream(self, key: str = "string", value: str = "string") -> Handle:
        """A stream from one topic, several, or a pattern."""
        args = self.consumed(key, value)
        known = Handle("", "stream", key, value, args["key"] is not None, args["value"] is not None)
        roll = self.dice.random()
        if roll < 0.12:
            topics = [self.topic(key, value), self.topic(key, value)]
            return self.step("builder_stream_topics", (), known, topics=topics, **args)
        if roll < 0.22:
            stem = self.fresh("p")
            for suffix in ("x", "y"):
                self.topics[f"{stem}-{suffix}"] = (key, value)
            return self.step("builder_stream_pattern", (), known, pattern=f"{stem}-.*", **args)
        return self.step("builder_stream", (), known, topic=self.topic(key, value), **args)

    def new_table(self, key: str = "string", value: str = "string", *, versioned: bool = False) -> Handle:
        """A table read from a topic."""
        args = self.consumed(key, value)
        store: Args | None = None
        if versioned:
            store = {"name": self.fresh("store"), "history": self.choice((5, 20, 1000))}
        elif self.chance(0.6):
            store = {"name": self.fresh("store")} if self.chance(0.7) else {}
            if self.chance(0.3):
                store["caching"] = self.chance(0.5)
            if "name" in store and key == "string" and self.chance(0.15):
                store["history"] = self.choice((0, 5, 20, 1000))
                store.pop("caching", None)
        handle = Handle("", "table", key, value, args["key"] is not None, args["value"] is not None)
        handle = replace(handle, versioned=self.is_versioned(store))
        return self.step("builder_table", (), handle, topic=self.topic(key, value, table=True), store=store, **args)

    def new_global(self) -> Handle:
        """A global table."""
        args = self.consumed("string", "string")
        store = {"name": self.fresh("store")} if self.chance(0.5) else None
        handle = Handle("", "global")
        return self.step(
            "builder_global_table", (), handle, topic=self.topic("string", "string", table=True), store=store, **args
        )

    # -- possible inputs of an operation

    def some_stream(self, *, key: str | None = None, value: str | None = None, plain: bool = False) -> Handle:
        """An existing stream, or a new one."""
        found = self.pick("stream", key=key, value=value, plain=plain)
        if found is not None and self.chance(0.85):
            return found
        if key is None and value is None:
            types = self.source_types()
            return self.new_stream(*types)
        return self.new_stream(key if key and ":" not in key else "string", value or "string")

    def some_table(self, *, key: str | None = None) -> Handle:
        """An existing table, or a new one; its key is as requested unless that is windowed and no such table exists."""
        found = self.pick("table", key=key)
        if found is not None and self.chance(0.85):
            return found
        if key is None:
            return self.new_table(*self.source_types())
        return self.new_table(key, "string")

    def other(self, kind: str, like: Handle) -> Handle | None:
        """Another handle under the same key type, preferably not the same handle; None if a windowed key has no partner."""
        fits = [handle for handle in self.handles if handle.kind == kind and handle.key == like.key and handle.id != like.id]
        if fits and self.chance(0.6):
            return self.choice(fits)
        if like.plain_key:
            return self.new_stream(like.key) if kind == "stream" else self.new_table(like.key)
        return self.choice(fits) if fits else None
