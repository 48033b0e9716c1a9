"""Records which traced records lead to which results, within an epoch of a lane; only if tracing is on.

A record is traced if it has a W3C `traceparent` header that says so. Results keep that header, like all headers. This module
adds what headers alone cannot say: the other causes of a result that follows from several records.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from penstock.processor import Lineage, Operator
from penstock.records import Headers, Process, Windowed
from penstock.topology.nodes import ProcessorNode

TRACEPARENT = "traceparent"
LINKS = "__penstock.links"
"""The header, only within an application, with the contexts of all causes of a record, separated by commas."""

MOST = 8
"""The maximum number of contexts that are kept for a key: the latest ones."""

_KEPT = {Lineage.REPLACES: 1, Lineage.KEEPS: MOST, Lineage.GATHERS: MOST}
"""How many records of a key are kept, by lineage."""

_FOLLOWING = frozenset({Lineage.MEETS, Lineage.GATHERS})
"""The lineages whose results follow from kept records."""

_SAMPLED = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f][13579bdf](?:-.*)?", re.DOTALL)


class Cause(NamedTuple):
    """A traced record that contributed to a result: its timestamp, and the context in its header."""

    timestamp: int
    context: bytes


class Traces:
    """The traced records of one epoch of a lane, by the store that they changed and by key."""

    __slots__ = ("_causes",)

    def __init__(self) -> None:
        self._causes: dict[str, dict[Any, list[Cause]]] = {}

    def noting(self, node: ProcessorNode, process: Process) -> Process:
        """Return a node's `process` that also records traced records, if the node keeps anything of them."""
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
        """Return a node's `forward` that adds a header with the other causes of a result, if the node combines records."""
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
    """Return the contexts of all traced causes of a record, its own last; an empty list if it is not traced."""
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
    """Return the headers with these contexts added to those they already have."""
    known = dict.fromkeys(contexts_of(headers))
    if known.keys() >= set(contexts):
        return headers
    others = tuple(pair for pair in headers if pair[0] != LINKS)
    return (*others, (LINKS, b",".join(list(dict.fromkeys([*contexts, *known]))[-MOST:])))


def _has_part(operator: Operator, cause: Cause, key: Any) -> bool:
    """Whether a cause of a key contributed to this window of the key."""
    if type(key) is not Windowed:
        return True
    is_at_end = operator.windows_include_end and cause.timestamp == key.end
    return bool(key.start <= cause.timestamp < key.end or is_at_end)


def _name(key: Any) -> Any:
    """Return a hashable form of a key."""
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key
