"""Bounds of byte ranges and of time."""

from __future__ import annotations

MAX_TIME = 2**63 - 1
"""The latest time there is: a Java long's highest."""


def after(key: bytes) -> bytes:
    """The smallest key after this one."""
    return key + b"\x00"


def after_prefix(prefix: bytes) -> bytes | None:
    """The smallest key after all those with this prefix; None if there is no such key."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))
