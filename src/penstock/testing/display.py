"""What notebooks show of a test driver: the records of its output topics, and its stores. Looking at them removes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from penstock.errors import SerializationError
from penstock.lanes.outbox import Row
from penstock.markup import html_line, html_table
from penstock.records import Windowed
from penstock.state import StoreKind
from penstock.topology import Topology

_READABLE = frozenset(StoreKind) - {StoreKind.RAW, StoreKind.TIMERS}
"""Stores whose entries a user has put there; the others belong to joins, suppressions and timers."""


def records_html(rows: Collection[Row], key: Callable[[bytes], Any], value: Callable[[bytes], Any], caption: str = "") -> str:
    """Return a table of records that nobody has read yet; it has a column for headers if one of them has any."""
    columns = ("key", "value", "timestamp", "headers") if any(row.headers for row in rows) else ("key", "value", "timestamp")
    cells = ((_key(_read(key, row.key)), _read(value, row.value), row.timestamp, dict(row.headers) or "") for row in rows)
    return html_table(columns, (row[: len(columns)] for row in cells), caption=caption)


def _read(read: Callable[[bytes], Any], data: bytes | None) -> Any:
    """Return a key or a value; one that the serde cannot read as its bytes."""
    try:
        return None if data is None else read(data)
    except SerializationError:
        return data


def _key(key: Any) -> Any:
    return f"{key.key!r} from {key.start} to {key.end}" if isinstance(key, Windowed) else key


class Output(Protocol):
    """An output topic."""

    def html(self, caption: str = "") -> str:
        """A table of its records."""


class Contents(Protocol):
    """What is shown of a test driver."""

    _topology: Topology

    def output(self, topic: str) -> Output:
        """A topic to read results from."""

    def produced_topic_names(self) -> set[str]:
        """Topics with at least one written record."""

    def store(self, name: str) -> Any:
        """A store."""

    def dropped(self) -> Mapping[tuple[str, str], int]:
        """How many records were skipped, by node and reason."""


class Displayed:
    """What a test driver inherits to be shown."""

    def _repr_html_(self: Contents) -> str:
        parts = [self.output(topic).html(f"topic {topic}") for topic in sorted(self.produced_topic_names())]
        for name in sorted(name for name, spec in self._topology.stores.items() if spec.kind in _READABLE):
            entries = ((_key(key), value) for key, value in self.store(name).all())
            parts.append(html_table(("key", "value"), entries, caption=f"store {name}"))
        drops = [(node, reason, count) for (node, reason), count in sorted(self.dropped().items())]
        if drops:
            parts.append(html_table(("node", "reason", "records"), drops, caption="dropped"))
        return "".join(parts) or html_line("Nothing has come out yet, and there are no stores.")
