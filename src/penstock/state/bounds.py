"""Bounds of byte ranges."""

from __future__ import annotations


def after(key: bytes) -> bytes:
    """The smallest key after this one."""
    return key + b"\x00"


def after_prefix(prefix: bytes) -> bytes | None:
    """The smallest key after all those with this prefix; None if there is no such key."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes((stripped[-1] + 1,))
