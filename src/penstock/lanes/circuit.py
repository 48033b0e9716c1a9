"""The circuit of a lane: nodes bound to stores and to each other, once; and what they want done when it opens and closes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.calls import Call, Callers, Request
from penstock.errors import TopologyError
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.calls import PendingCalls
from penstock.lanes.cursor import Cursor
from penstock.lanes.failures import Failures
from penstock.lanes.stores import Stores
from penstock.processor import Host, TableOperator, View
from penstock.records import Process
from penstock.topology.nodes import Node, ProcessorNode


class Circuit:
    """The nodes of a blueprint over a shard's stores.

    `callers` gives what makes calls to other systems; it is asked only if a node makes some.
    """

    __slots__ = ("_callers", "_closers", "_starters", "_views", "askings", "blueprint", "bound", "failures", "hosts", "stores")

    def __init__(self, blueprint: Blueprint, stores: Stores, failures: Failures, callers: Callable[[], Callers]) -> None:
        self.blueprint: Blueprint = blueprint
        self.stores: Stores = stores
        self.failures: Failures = failures
        self.hosts: dict[str, Host] = {}
        self.bound: dict[str, Process] = {}  # children before parents
        self.askings: list[PendingCalls] = []  # the last node first
        self._callers = callers
        self._views: dict[str, View] = {}
        self._starters: list[Callable[[], None]] = []
        self._closers: list[Callable[[], None]] = []

    def view(self, table: str, host_of: Callable[[Node], Host]) -> View:
        """How to read the table a node produces; `host_of` makes a host for one that is bound elsewhere."""
        view = self._views.get(table)
        if view is None:
            node = self.blueprint.topology.get(table)
            operator = self.failures.persistent(node) if isinstance(node, ProcessorNode) else None
            if node is None or not isinstance(operator, TableOperator):
                raise TopologyError(f"node {table!r} is not a table")
            view = self._views[table] = operator.view(self.hosts.get(table) or host_of(node))
        return view

    def asking(self, node: Node, call: Call, take: Callable[[Request, Any], None], cursor: Cursor) -> PendingCalls:
        """The calls of a node, which are made when the epoch ends."""
        asking = PendingCalls(node, self._callers().of(node.name, call), take, cursor, self.failures)
        self.askings.append(asking)
        return asking

    @property
    def is_holding_back(self) -> bool:
        """Whether calls wait to be made, or tables to emit."""
        return any(asking.is_waiting for asking in self.askings) or self.stores.are_holding_back

    def on_start(self, start: Callable[[], None]) -> None:
        """Called once all nodes are bound, parents before children."""
        self._starters.append(start)

    def on_close(self, close: Callable[[], None]) -> None:
        """Called when the lane is closed."""
        self._closers.append(close)

    def start(self) -> None:
        """Let user processors begin, parents first."""
        for start in reversed(self._starters):
            start()

    def close(self) -> None:
        """Let user processors clean up, parents first; all of them, whichever fails."""
        failures: list[Exception] = []
        for close in reversed(self._closers):
            try:
                close()
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]
