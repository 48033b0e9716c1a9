"""The fixed set: small hand-written cases, one per verb, window and join type, and per subtle bug of the past."""

from __future__ import annotations

from collections.abc import Iterator

from verification.conformance.regressions import joins, streams, windows
from verification.conformance.spec import Case

_ROOMS = (
    streams.stateless,
    streams.doors,
    streams.processors,
    streams.topology,
    windows.plain,
    windows.windowed,
    windows.suppressed,
    joins.stream_stream,
    joins.stream_table,
    joins.table_table,
    joins.tables,
)


def regressions() -> Iterator[Case]:
    """All fixed cases."""
    for room in _ROOMS:
        yield from room()
