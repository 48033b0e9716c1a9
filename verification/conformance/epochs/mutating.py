"""Chains of verbs whose functions change what they are given, and may fail when they have changed half of it.

The judge's functions change a copy, and what fails and is retried in the host does not fail there. So what it expects is what
by value means, whatever a store or a cache hands out.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from penstock import KStream, Processor, Record, Store
from verification.conformance.functions import clip, crc, head, is_x, show
from verification.conformance.options import windows

Document = dict[str, Any]
KEPT = ("aggregate", "reduce", "windowed", "sessions", "regrouped", "cogrouped", "reader", "joiner", "sibling")
"""What the functions belong to."""

FAILING = frozenset({"aggregate", "reduce", "windowed", "sessions", "cogrouped"})
"""Those whose functions may fail: of these, a record that fails leaves nothing."""


def document(value: Any) -> Document:
    """The document of any value."""
    return {"all": [show(value)], "count": 1, "sum": crc(show(value)) % 100}


def empty() -> Document:
    """The initializer."""
    return {"all": [], "count": 0, "sum": 0}


def text(value: Any) -> str:
    """A document as text."""
    return clip(f"{value['count']}/{value['sum']}{value['all']}")


class Mutating:
    """Builds the chains; with `is_judge`, the functions change copies."""

    def __init__(self, *, is_judge: bool) -> None:
        self._own: Callable[[Document], Document] = deepcopy if is_judge else _itself
        self._is_judge = is_judge
        self._failed: set[str] = set()

    def chain(self, stream: KStream[Any, Any], args: dict[str, Any]) -> KStream[Any, str]:
        """The chain of an operation; `key` is the serde of the stream's key, `failures` how functions fail."""
        documents = stream.map_values(document, value=dict)
        kept: KStream[Any, Any] = getattr(self, f"_{args['kept']}")(documents, args)
        return kept.map_values(text, value=str)

    # ---- the chains -----------------------------------------------------------------------------------------------

    def _aggregate(self, documents: Any, args: dict[str, Any]) -> Any:
        return self._grouped(documents, args).aggregate(empty, self._adder(args), store=_store(args)).to_stream()

    def _reduce(self, documents: Any, args: dict[str, Any]) -> Any:
        return self._grouped(documents, args).reduce(self._reducer(args), store=_store(args)).to_stream()

    def _windowed(self, documents: Any, args: dict[str, Any]) -> Any:
        within = self._grouped(documents, args).windowed_by(windows(args["windows"]))
        return within.aggregate(empty, self._adder(args), store=_store(args)).to_stream()

    def _sessions(self, documents: Any, args: dict[str, Any]) -> Any:
        within = self._grouped(documents, args).windowed_by(windows(args["windows"]))
        return within.aggregate(empty, self._adder(args), self._merger(), store=_store(args)).to_stream()

    def _regrouped(self, documents: Any, args: dict[str, Any]) -> Any:
        table = documents.to_table(store=Store(f"{args['store']}-table", key=args["key"], value=dict))
        grouped = table.group_by(lambda key, value: (head(value["all"][0]), value), key=str, value=dict)
        kept = Store(args["store"], key=str, value=dict)
        return grouped.aggregate(empty, self._adder(args), self._remover(), store=kept).to_stream()

    def _cogrouped(self, documents: Any, args: dict[str, Any]) -> Any:
        return self._grouped(documents, args).cogroup(self._adder(args)).aggregate(empty, store=_store(args)).to_stream()

    def _reader(self, documents: Any, args: dict[str, Any]) -> Any:
        return documents.process(lambda: Reader(args["store"], self._own), stores=[args["store"]], key=args["key"], value=dict)

    def _joiner(self, documents: Any, args: dict[str, Any]) -> Any:
        table = documents.to_table(store=_store(args))

        def joined(left: Document, right: Document) -> Document:
            return _with(self._own(right), left)

        first = documents.join(table, joined, key=args["key"], value=dict, other_value=dict)
        second = documents.join(table, joined, key=args["key"], value=dict, other_value=dict)
        return first.merge(second)

    def _sibling(self, documents: Any, args: dict[str, Any]) -> Any:
        """A table, and below it in the topology a branch that changes the values that the table has got before."""
        table = documents.to_table(store=_store(args))
        changed = documents.map_values(lambda value: _with(self._own(value), {"all": ["changed"], "sum": 1}), value=dict)
        return table.to_stream().merge(changed)

    def _grouped(self, documents: Any, args: dict[str, Any]) -> Any:
        return documents.group_by_key(key=args["key"], value=dict)

    # ---- the functions --------------------------------------------------------------------------------------------

    def _adder(self, args: dict[str, Any]) -> Callable[[Any, Document, Document], Document]:
        change = self._changer(args["failures"])
        return lambda key, value, aggregate: change(show(key), value, aggregate)

    def _reducer(self, args: dict[str, Any]) -> Callable[[Document, Document], Document]:
        change = self._changer(args["failures"])
        return lambda aggregate, value: change("", value, aggregate)

    def _merger(self) -> Callable[[Any, Document, Document], Document]:
        return lambda _key, one, other: _with(self._own(one), other)

    def _remover(self) -> Callable[[Any, Document, Document], Document]:
        def remove(_key: Any, value: Document, aggregate: Document) -> Document:
            found = self._own(aggregate)
            found["count"] -= value["count"]
            found["sum"] -= value["sum"]
            return found

        return remove

    def _changer(self, failures: str) -> Callable[[str, Document, Document], Document]:
        """Changes the aggregate: first one half, then the other; in between it may fail."""

        def change(key: str, value: Document, aggregate: Document) -> Document:
            call = f"{key} {value}"
            found = self._own(aggregate)
            found["count"] += value["count"]
            if failures != "fail" and is_x(value["all"][0]):
                raise ValueError("it fails always")
            if failures == "retry" and not self._is_judge and call not in self._failed:
                self._failed.add(call)
                raise ValueError("it fails once")
            found["sum"] += value["sum"]
            found["all"] = [*found["all"], *value["all"]][-3:]
            return found

        return change


class Reader(Processor[Any, Any, Any, Any]):
    """Keeps the first document of each key, and changes what it reads of it."""

    def __init__(self, store: str, own: Callable[[Document], Document]) -> None:
        self._name = store
        self._own = own

    def process(self, record: Record[Any, Any]) -> None:
        """See the class."""
        store, key = self.context.store(self._name), show(record.key)
        if store.get(key) is None:
            store.put(key, record.value)
        for found in (store.get(key), *(value for _, value in store.all())):
            self.context.forward(record.with_value(_with(self._own(found), record.value)))


def _itself(value: Document) -> Document:
    return value


def _with(found: Document, value: Document) -> Document:
    """The first document, changed by the second."""
    found["sum"] += value["sum"]
    found["all"].append(value["all"][0])
    return found


def _store(args: dict[str, Any]) -> Store:
    return Store(args["store"], key=args["key"], value=dict)
