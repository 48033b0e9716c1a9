"""The processors of epoch cases: those of the library, and some that write arbitrary keys."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock import Processor, PunctuationType, Record
from verification.conformance import processors
from verification.conformance.epochs.living import LIVES, maker
from verification.conformance.functions import clip, show


class KeptTimer(Processor[Any, Any, Any, Any]):
    """Keeps the last value of each key; the timer forwards all of them.

    Unlike the library's, it counts its calls in its store: a restart or a roll-back loses what it has in memory.
    """

    ROUNDS = "~rounds"

    def __init__(self, store: str, interval: int, kind: PunctuationType) -> None:
        self._name = store
        self._interval = interval
        self._kind = kind

    def init(self, context: Any) -> None:
        """Start the timer."""
        super().init(context)
        self.store = context.store(self._name)
        context.schedule(self._interval, self._kind, self._punctuate)

    def _punctuate(self, timestamp: int) -> None:
        rounds = int(self.store.get(self.ROUNDS) or 0)
        if rounds == (3 if self._kind is PunctuationType.WALL_CLOCK_TIME else 20):
            return
        self.store.put(self.ROUNDS, str(rounds + 1))
        for key, value in [entry for entry in self.store.all() if entry[0] != self.ROUNDS]:
            self.context.forward(Record(key, f"{value}@{timestamp}", max(0, timestamp)))

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        self.store.put(show(record.key), clip(show(record.value)))


class OwnKeys(Processor[Any, Any, Any, Any]):
    """Counts under arbitrary keys, and forwards the count: under `key|value`, under the value, or under one key.

    It has the counts in an attribute as well, read from the store when they are first needed: so a result shows if attributes are
    those of another epoch than the store's.
    """

    transient = ("_counts",)

    def __init__(self, store: str, kind: str) -> None:
        self._name = store
        self._kind = kind

    def init(self, context: Any) -> None:
        """Keep the store, and nothing of what it has."""
        super().init(context)
        self._store = context.store(self._name)
        self._counts: dict[str, int] = {}

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        made = {"pairs": f"{show(record.key)}|{show(record.value)}", "values": show(record.value), "all": "all"}[self._kind]
        key = clip(made)
        if key not in self._counts:
            self._counts[key] = self._store.get(key) or 0
        self._counts[key] += 1
        self._store.put(key, self._counts[key])
        self.context.forward(record.with_value(f"{clip(show(record.value))}#{self._counts[key]}"))


class Latest(Processor[Any, Any, Any, Any]):
    """Keeps a shard's last record under one key and in an attribute, and deletes it when a value is missing."""

    transient = ("_latest",)

    def __init__(self, store: str) -> None:
        self._name = store

    def init(self, context: Any) -> None:
        """Remember what the store has."""
        super().init(context)
        self._store = context.store(self._name)
        self._latest = self._store.get("latest")

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        before = self._latest
        if record.value is None:
            self._latest = None
            self._store.delete("latest")
        else:
            self._latest = clip(f"{show(record.key)}={show(record.value)}")
            self._store.put("latest", self._latest)
        self.context.forward(record.with_value(clip(f"{show(before)}>{show(record.value)}")))


OWN_KEYS = ("pairs", "values", "all")


def supplier(name: str, args: dict[str, Any]) -> Callable[[], Any]:
    """The supplier of the processor of that name."""
    store, interval = args.get("uses", ""), args.get("interval", 0)
    makers: dict[str, Callable[[], Any]] = {
        "stream_timer": lambda: KeptTimer(store, interval, PunctuationType.STREAM_TIME),
        "wall_timer": lambda: KeptTimer(store, interval, PunctuationType.WALL_CLOCK_TIME),
        "latest": lambda: Latest(store),
        **{kind: partial(OwnKeys, store, kind) for kind in OWN_KEYS},
    }
    if name in LIVES:
        return maker(name, args)
    return makers[name] if name in makers else processors.supplier(name, args)
