"""How caches hold values: as they were at the moment of the put, whatever becomes of the objects later.

What nothing can change is held as it is, and written when the epoch ends. Anything else is held as bytes, which stores take in
place of the value; who asks for it gets an object of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.serdes import Serde

_new = tuple.__new__  # cheaper than Encoded(...)

IMMUTABLE = frozenset({int, str, bytes, float, bool, type(None)})
"""The types of values that are held as they are: nothing changes them, and they come out of a store as they went in."""


class Encoded(NamedTuple):
    """A value as its serde has written it."""

    raw: bytes


def holder(serde: Serde[Any]) -> Callable[[Any], Any]:
    """Return how to hold a value."""
    serialize = serde.serialize
    return lambda value: value if type(value) in IMMUTABLE else _new(Encoded, (serialize(value),))


def giver(serde: Serde[Any]) -> Callable[[Any], Any]:
    """Return how to give a value that is held to someone who may change it; what is neither is given as it is."""
    deserialize = serde.deserialize
    return lambda held: deserialize(held.raw) if type(held) is Encoded else held


def writer(serde: Serde[Any]) -> Callable[[Any], bytes]:
    """Return how to write a value, held or not."""
    serialize = serde.serialize
    return lambda value: value.raw if type(value) is Encoded else serialize(value)
