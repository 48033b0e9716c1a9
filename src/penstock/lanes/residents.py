"""What user code keeps in a process while lanes are bound anew for every epoch: processors, transformers, and their metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from penstock.errors import FAILURES, failure_of
from penstock.hosted import Resident
from penstock.lanes.failures import Failures
from penstock.metrics import UserMetrics
from penstock.topology.nodes import Node

R = TypeVar("R", bound=Resident)


class Residents:
    """The user's objects in the nodes of a shard. The lanes that are bound to it come and go, one after the other.

    `metrics` are those of user code. `failures` is how failures are handled in the lane that is bound now.
    """

    __slots__ = ("_found", "failures", "metrics")

    def __init__(self, metrics: UserMetrics | None = None) -> None:
        self.metrics: UserMetrics = UserMetrics() if metrics is None else metrics
        self.failures: Failures = Failures()
        self._found: dict[tuple[str, str], tuple[Node, Any]] = {}  # children before parents

    def of(self, node: Node, part: str, make: Callable[[], R]) -> R:
        """Return a node's object; make it if there is none."""
        if (node.name, part) not in self._found:
            self._found[node.name, part] = node, make()
        found: R = self._found[node.name, part][1]
        return found

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._found)

    def __iter__(self) -> Iterator[tuple[Node, Resident]]:
        """Iterate over all objects with their nodes, parents first."""
        return reversed(self._found.values())

    def close(self) -> list[Exception]:
        """Close all objects, parents first; return what has failed."""
        failures: list[Exception] = []
        for _, resident in self:
            try:
                resident.close()
            except FAILURES as error:
                failures.append(failure_of(error))
        self._found.clear()
        return failures
