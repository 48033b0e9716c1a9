"""A binary heap with the tie order of Kafka Streams' (java.util.PriorityQueue), so that equal times fire in the same order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class TimeHeap(Generic[T]):
    """Items by ascending time; the time of an item must not change while it is in the heap."""

    __slots__ = ("_items", "_time")

    def __init__(self, time: Callable[[T], int]) -> None:
        self._items: list[T] = []
        self._time = time

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[T]:
        """Iterate in heap order: pushing the items in this order into an empty heap recreates the heap."""
        return iter(self._items)

    def peek(self) -> T | None:
        """Return the earliest item without removing it."""
        return self._items[0] if self._items else None

    def push(self, item: T) -> None:
        """Add an item: it rises only past later ones."""
        items, time = self._items, self._time
        items.append(item)
        place, when = len(items) - 1, time(item)
        while place > 0:
            parent = (place - 1) >> 1
            if when >= time(items[parent]):
                break
            items[place] = items[parent]
            place = parent
        items[place] = item

    def pop(self) -> T | None:
        """Remove and return the earliest item: the last one moves to the top and sinks past earlier ones only."""
        items, time = self._items, self._time
        if not items:
            return None
        first, last = items[0], items.pop()
        size = len(items)
        if size:
            place, when = 0, time(last)
            while place < size >> 1:
                child = 2 * place + 1
                if child + 1 < size and time(items[child]) > time(items[child + 1]):
                    child += 1
                if when <= time(items[child]):
                    break
                items[place] = items[child]
                place = child
            items[place] = last
        return first
