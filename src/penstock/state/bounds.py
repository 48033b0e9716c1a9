"""Bounds of byte ranges and of time."""

from __future__ import annotations

MAX_TIME = 2**63 - 1
"""The latest possible time: the largest Java long."""


def after(key: bytes) -> bytes:
    """Return the smallest key after this one."""
    return key + b"\x00"


def after_prefix(prefix: bytes) -> bytes | None:
    """Return the smallest key after all keys with this prefix; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))
