"""`once`: a property that is computed on first use, while no other object waits for that.

Before Python 3.12, `functools.cached_property` has one lock for all objects of a class: an application that waits for its brokers
would hold up every other one in the process. From 3.12 on it has none: two threads may compute the same twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from penstock import machine

T = TypeVar("T")


class Once(Generic[T]):
    """Of several threads that use the property of an object first, one computes it, and the others wait."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Once[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Once[T] | T:
        if instance is None:
            return self
        kept = instance.__dict__  # once it is there, Python finds it there by itself
        with kept.setdefault(f"_lock_of_{self._name}", machine.lock()):
            if self._name not in kept:
                kept[self._name] = self._compute(instance)
            found: T = kept[self._name]
            return found


def once(compute: Callable[[Any], T]) -> Once[T]:
    """Return a property with the result of a method; used as a decorator."""
    return Once(compute)
