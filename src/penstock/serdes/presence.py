"""A serde that keeps only whether there is a value, for exchanges whose values nobody reads."""

from __future__ import annotations

from typing import Any

from penstock.serdes.serde import Serde


class Presence(Serde[bool]):
    """Stands for any value that is not null: `Presence().deserialize(Presence().serialize("any")) is True`."""

    @staticmethod
    def serialize(value: Any, /) -> bytes:
        """Return nothing."""
        return b""

    @staticmethod
    def deserialize(data: bytes, /) -> bool:
        """Return that there was a value."""
        return True
