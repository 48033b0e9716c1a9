"""The circuit of a lane: nodes bound once to stores and to each other, and what to call when the lane starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.calls import Call, Callers, Request
from penstock.errors import FAILURES, ProcessingError, TopologyError, text_of
from penstock.hosted import Resident
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.calls import PendingCalls
from penstock.lanes.cursor import Cursor
from penstock.lanes.failures import Failures
from penstock.lanes.residents import Residents
from penstock.lanes.stores import Stores
from penstock.metrics import UserMetrics
from penstock.processor import Host, TableOperator, View
from penstock.records import Process
from penstock.topology.nodes import Node, ProcessorNode

R = TypeVar("R", bound=Resident)


class Circuit:
    """The nodes of a blueprint, bound to a shard's stores, with the user's objects in them.

    `callers` returns the callers of other systems; it is called only if a node needs one.
    """

    __slots__ = (
        "_callers",
        "_starters",
        "_views",
        "blueprint",
        "bound",
        "hosts",
        "pending_calls",
        "residents",
        "stores",
    )

    def __init__(self, blueprint: Blueprint, stores: Stores, residents: Residents, callers: Callable[[], Callers]) -> None:
        self.blueprint: Blueprint = blueprint
        self.stores: Stores = stores
        self.residents: Residents = residents
        self.hosts: dict[str, Host] = {}
        self.bound: dict[str, Process] = {}  # children before parents
        self.pending_calls: list[PendingCalls] = []  # the last node first
        self._callers = callers
        self._views: dict[str, View] = {}
        self._starters: list[Callable[[], None]] = []

    @property
    def failures(self) -> Failures:
        """How failures of records are handled."""
        return self.residents.failures

    @property
    def metrics(self) -> UserMetrics:
        """The metrics of user code."""
        return self.residents.metrics

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

    def resident(self, node: Node, make: Callable[..., R], setup: Callable[[], Any] | None, part: str) -> R:
        """Return a user's object of a node; make it if there is none, with the node's client in this process."""
        if setup is None:
            return self.residents.of(node, part, make)
        try:
            client = self._callers().client(node.name, setup)
        except FAILURES as error:
            name = getattr(setup, "__qualname__", repr(setup))
            raise ProcessingError(
                f"{node.name}: setup={name} failed: {type(error).__name__}: {text_of(error)}\n"
                f"  the node was declared at {node.line}"
            ) from error
        return self.residents.of(node, part, lambda: make(client))

    @property
    def is_holding_back(self) -> bool:
        """Whether there are pending calls, or changes of tables that are not emitted yet."""
        return any(calls.is_waiting for calls in self.pending_calls) or self.stores.are_holding_back

    def on_start(self, start: Callable[[], None]) -> None:
        """Call `start` once all nodes are bound, parents before children."""
        self._starters.append(start)

    def start(self) -> None:
        """Start user processors that have not begun, parents first, and go on with the others."""
        starters, self._starters = self._starters, []
        for start in reversed(starters):
            start()
