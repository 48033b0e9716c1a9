"""Serdes that contain another one, to which they pass the topic on."""

from __future__ import annotations

from copy import copy
from typing import Any, TypeVar

from penstock.serdes.of_type import serde_of
from penstock.serdes.serde import Serde

T = TypeVar("T")


class WrappingSerde(Serde[T]):
    """A serde whose bytes contain those of `inner`, which may be given as a type."""

    inner: Serde[Any]

    def __init__(self, inner: Serde[Any] | type[Any]) -> None:
        self.inner = serde_of(inner)

    def for_topic(self, topic: str, is_key: bool) -> Serde[T]:
        """This serde with the inner one for that topic."""
        return self.around(self.inner.for_topic(topic, is_key))

    def around(self, inner: Serde[Any]) -> Serde[T]:
        """This serde with another inner one."""
        if inner is self.inner:
            return self
        other = copy(self)
        other.inner = inner
        return other
