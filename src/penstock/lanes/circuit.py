"""The circuit of a lane: nodes bound once to stores and to each other, and what to call when the lane starts and closes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.calls import Call, Callers, Request
from penstock.errors import FAILURES, TopologyError, failure_of
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.calls import PendingCalls
from penstock.lanes.cursor import Cursor
from penstock.lanes.failures import Failures
from penstock.lanes.stores import Stores
from penstock.metrics import UserMetrics
from penstock.processor import Host, TableOperator, View
from penstock.records import Process
from penstock.topology.nodes import Node, ProcessorNode


class Circuit:
    """The nodes of a blueprint, bound to a shard's stores.

    `callers` returns the callers of other systems; it is called only if a node makes calls. `metrics` are those of user code.
    """

    __slots__ = (
        "_callers",
        "_closers",
        "_starters",
        "_views",
        "blueprint",
        "bound",
        "failures",
        "hosts",
        "metrics",
        "pending_calls",
        "stores",
    )

    def __init__(
        self, blueprint: Blueprint, stores: Stores, failures: Failures, callers: Callable[[], Callers], metrics: UserMetrics
    ) -> None:
        self.blueprint: Blueprint = blueprint
        self.stores: Stores = stores
        self.failures: Failures = failures
        self.metrics: UserMetrics = metrics
        self.hosts: dict[str, Host] = {}
        self.bound: dict[str, Process] = {}  # children before parents
        self.pending_calls: list[PendingCalls] = []  # the last node first
        self._callers = callers
        self._views: dict[str, View] = {}
        self._starters: list[Callable[[], None]] = []
        self._closers: list[Callable[[], None]] = []

    def view(self, table: str, host_of: Callable[[Node], Host]) -> View:
        """Return how to read the table that a node produces; `host_of` makes the host of a node that is bound elsewhere."""
        view = self._views.get(table)
        if view is None:
            node = self.blueprint.topology.get(table)
            operator = self.failures.retrying(node) if isinstance(node, ProcessorNode) else None
            if node is None or not isinstance(operator, TableOperator):
                raise TopologyError(f"Node {table!r} is not a table.")
            view = self._views[table] = operator.view(self.hosts.get(table) or host_of(node))
        return view

    def add_calls(self, node: Node, call: Call, take: Callable[[Request, Any], None], cursor: Cursor) -> PendingCalls:
        """Add the calls of a node, which are made when the epoch ends."""
        calls = PendingCalls(node, self._callers().of(node.name, call), take, cursor, self.failures)
        self.pending_calls.append(calls)
        return calls

    @property
    def is_holding_back(self) -> bool:
        """Whether there are pending calls, or changes of tables that are not emitted yet."""
        return any(calls.is_waiting for calls in self.pending_calls) or self.stores.are_holding_back

    def on_start(self, start: Callable[[], None]) -> None:
        """Call `start` once all nodes are bound, parents before children."""
        self._starters.append(start)

    def on_close(self, close: Callable[[], None]) -> None:
        """Call `close` when the lane is closed."""
        self._closers.append(close)

    def start(self) -> None:
        """Start user processors, parents first."""
        for start in reversed(self._starters):
            start()

    def close(self) -> None:
        """Close all user processors, parents first, then raise the first failure."""
        failures: list[Exception] = []
        for close in reversed(self._closers):
            try:
                close()
            except FAILURES as error:
                failures.append(failure_of(error))
        if failures:
            raise failures[0]
