"""How far the backfills of an application are, as the topic that belongs to it says."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Loaded(msgspec.Struct, frozen=True):
    """How far a backfill is."""

    rows: int = 0
    is_complete: bool = False


_decode = msgspec.json.Decoder(Loaded).decode


def backfill_topic(application_id: str) -> str:
    """Return the name of the topic that has the progress of backfills."""
    return f"{application_id}-backfills"


def are_loaded(kept: Iterable[tuple[bytes, bytes | None]]) -> bool:
    """Whether all backfills that have begun are complete, according to the records of their topic."""
    return all(loaded.is_complete for loaded in known(kept).values())


def known(kept: Iterable[tuple[bytes, bytes | None]]) -> dict[str, Loaded]:
    """Return how far each backfill is, by its topic, according to the records of their topic."""
    return {key.decode(): _decode(value) for key, value in kept if value is not None}
