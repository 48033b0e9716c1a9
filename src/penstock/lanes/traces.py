"""Which traced records lead to what, within an epoch of a lane; only where tracing is on.

A record is traced if it has a W3C `traceparent` header that says so. That header goes along with whatever follows from the
record, as all headers do. Here is what headers alone cannot tell: what else has led to a result that follows from several.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from penstock.processor import Lineage, Operator
from penstock.records import Headers, Process, Windowed
from penstock.topology.nodes import ProcessorNode

TRACEPARENT = "traceparent"
LINKS = "__penstock.links"
"""The header, within an application only, with the contexts of all that a record follows from, separated by commas."""

MOST = 8
"""How many contexts are remembered for a key: the last ones."""

_KEPT = {Lineage.REPLACES: 1, Lineage.KEEPS: MOST, Lineage.GATHERS: MOST}
"""How many of a key's records are remembered where they are kept."""

_FOLLOWING = frozenset({Lineage.MEETS, Lineage.GATHERS})
"""Where results follow from what is kept."""

_SAMPLED = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][13579bdf](?:-.*)?", re.DOTALL)


class Cause(NamedTuple):
    """A traced record that had a part in something: its time, and its context as its header said it."""

    timestamp: int
    context: bytes


class Traces:
    """The traced records of one epoch of a lane, by the stores they had an effect on, and by key."""

    __slots__ = ("_causes",)

    def __init__(self) -> None:
        self._causes: dict[str, dict[Any, list[Cause]]] = {}

    def noting(self, node: ProcessorNode, process: Process) -> Process:
        """A node's `process`, with traced records noted if the node keeps something of them."""
        most = _KEPT.get(node.operator.lineage)
        if most is None or not node.stores:
            return process
        causes = self._causes.setdefault(node.stores[0], {})

        def noted(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if headers and (contexts := contexts_of(headers)):
                known = causes.setdefault(_name(key), [])
                known.extend(Cause(timestamp, context) for context in contexts)
                del known[:-most]
            process(key, value, timestamp, headers)

        return noted

    def linking(self, node: ProcessorNode, forward: Process) -> Process:
        """Where a node's results go, each with a header about what else it follows from if the node brings records together."""
        operator = node.operator
        if operator.lineage not in _FOLLOWING or not node.stores:
            return forward
        kept = [self._causes.setdefault(store, {}) for store in node.stores]

        def linked(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if any(kept):
                name = _name(key.key if type(key) is Windowed else key)
                causes = [cause for causes in kept for cause in causes.get(name, ())]
                headers = with_links(headers, [cause.context for cause in causes if _has_part(operator, cause, key)])
            forward(key, value, timestamp, headers)

        return linked


def contexts_of(headers: Headers) -> list[bytes]:
    """The contexts of all traced records that a record follows from, its own last; none if it is not traced."""
    contexts: dict[bytes, None] = {}
    own = None
    for name, value in headers:
        if name == LINKS and value:
            contexts.update(dict.fromkeys(value.split(b",")))
        elif name == TRACEPARENT and own is None and value is not None and _SAMPLED.fullmatch(value):
            own = value
    if own is not None:
        contexts.pop(own, None)
        contexts[own] = None
    return list(contexts)


def with_links(headers: Headers, contexts: list[bytes]) -> Headers:
    """The headers, with these contexts besides those that they tell of already."""
    known = dict.fromkeys(contexts_of(headers))
    if known.keys() >= set(contexts):
        return headers
    others = tuple(pair for pair in headers if pair[0] != LINKS)
    return (*others, (LINKS, b",".join(list(dict.fromkeys([*contexts, *known]))[-MOST:])))


def _has_part(operator: Operator, cause: Cause, key: Any) -> bool:
    """Whether a cause of a key has a part in this window of it."""
    if type(key) is not Windowed:
        return True
    is_at_end = operator.windows_include_end and cause.timestamp == key.end
    return bool(key.start <= cause.timestamp < key.end or is_at_end)


def _name(key: Any) -> Any:
    """What to look a key up by."""
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key
