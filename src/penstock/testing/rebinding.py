"""Shows in tests what a user's processor cannot keep: its attributes are lost when its lane moves, or the application restarts.

What a processor changes after `init` is an error that names the attribute. And processors begin anew after some of the records,
as they may at any time in the application: what they keep elsewhere, in objects or closures, is lost then, and results change.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cached_property
from hashlib import sha256
from reprlib import repr as shortened
from typing import Any

from penstock.errors import StateError
from penstock.hosted import Resident
from penstock.processor import Processor, ValueTransformer
from penstock.topology.nodes import Node, ProcessorNode

_log = logging.getLogger(__name__)

_PLAIN = (bool, int, float, complex, str, bytes, type(None), date, time, timedelta, Decimal, Enum)
_SEQUENCES = (list, tuple, deque)
_MOST_ENTRIES = 1_000
"""Of a container with more entries, only their number is compared: that happens after every record."""

_DEPTH = 4

Found = tuple[Node, Resident]
"""A user's object, and its node."""


class Rebinding:
    """When processors of a test driver begin anew, by `rebind`: at random, as a seed decides. Without a seed, never."""

    def __init__(self, rebind: Callable[[], None]) -> None:
        self._rebind = rebind
        self._batches = 0
        self._begun: list[tuple[Node, Any, dict[str, Any]]] = []

    def began(self, residents: Iterable[Found]) -> None:
        """Note the attributes of processors that have just begun."""
        self._begun = [(node, resident.user_object, dict(_kept(resident.user_object))) for node, resident in residents]

    def end_batch(self, residents: Iterable[Found], seed: int | None) -> None:
        """End what a test has done, when nothing is pending; raises if a processor has changed an attribute.

        Processors that have scheduled or cancelled a punctuator after `init` stay, because others would not know of that.
        """
        if seed is None or not self._begun:
            return
        for node, found, before in self._begun:
            _check(node, found, before)
        self._batches += 1
        is_chosen = sha256(b"%d of %d" % (self._batches, seed)).digest()[0] & 1
        if is_chosen and not any(resident.has_rescheduled for _, resident in residents):
            _log.debug("processors begin anew after batch %d, by seed %d", self._batches, seed)
            self._rebind()


def _check(node: Node, found: Any, before: dict[str, Any]) -> None:
    after = dict(_kept(found))
    if after == before:
        return
    changed = next(name for name in (*after, *before) if name not in before or name not in after or after[name] != before[name])
    kind = type(found).__name__
    now = f"is {shortened(getattr(found, changed))} now" if changed in after else "is gone now"
    how = f"{changed!r} {now}" if changed in before else f"{changed!r} was set"
    line = node.line if isinstance(node, ProcessorNode) else ""
    raise StateError(
        f"{node.name}: attribute {how}; after init of {kind} that was not so. Attributes are lost when a lane moves, an epoch "
        f"fails or the application starts again. Keep it in a store (stores=[...]); or, if it may be lost at any time, like a "
        f"cache, declare {kind}.transient = ({changed!r},).\n  the node was declared at {line}"
    )


def _kept(found: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object that are compared, as values that do not change."""
    kind = type(found)
    left_out: Collection[str] = found.transient if isinstance(found, (Processor, ValueTransformer)) else ()
    slots = [name for each in kind.__mro__ for name in _names(getattr(each, "__slots__", ())) if hasattr(found, name)]
    for name in (*getattr(found, "__dict__", {}), *slots):
        is_computed = isinstance(getattr(kind, name, None), cached_property)
        if name != "context" and name not in left_out and not is_computed:
            yield name, _frozen(getattr(found, name), _DEPTH)


def _names(slots: str | Iterable[str]) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


class _Same:
    """An object of any class, compared by identity: connections, clients and stores change inside."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self._found is other._found

    def __hash__(self) -> int:
        return id(self._found)


def _frozen(value: Any, depth: int) -> Any:
    """Return a plain value or a container as something that can be compared later; any other object as itself."""
    kind = type(value)
    if isinstance(value, _PLAIN):
        return kind, value
    if not isinstance(value, (*_SEQUENCES, set, frozenset, dict, bytearray)) or not depth:
        return _Same(value)
    if len(value) > _MOST_ENTRIES:
        return kind, len(value)
    if isinstance(value, dict):
        return kind, {key: _frozen(each, depth - 1) for key, each in value.items()}
    if isinstance(value, _SEQUENCES):
        return kind, [_frozen(each, depth - 1) for each in value]
    return kind, (bytes(value) if isinstance(value, bytearray) else frozenset(value))
