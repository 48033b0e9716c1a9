"""The `Host` a lane gives to one node."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from penstock.calls import Call, Request
from penstock.errors import ATTRIBUTED, FAILURES, ProcessingError, Raised, TopologyError, text_of
from penstock.handlers import ErrorHandler
from penstock.hosted import Resident
from penstock.lanes.circuit import Circuit
from penstock.lanes.clocks import Clocks
from penstock.lanes.cursor import Cursor
from penstock.lanes.node_time import NodeTime
from penstock.lanes.outbox import Outbox
from penstock.lanes.shared import LaneSharedStore
from penstock.metrics import UserMetrics
from penstock.processor import View, Wrap
from penstock.records import Process
from penstock.state import Register, StoreSpec
from penstock.topology.nodes import Node, ProcessorNode

R = TypeVar("R", bound=Resident)


class NodeHost:
    """What one node of a lane may use: its circuit, the clocks and the outbox."""

    __slots__ = (
        "_circuit",
        "_clocks",
        "_node",
        "_outbox",
        "_shared",
        "children",
        "cursor",
        "metrics",
        "retried",
        "shared_writes",
        "side_outputs",
        "time",
        "way",
    )

    def __init__(self, node: Node, circuit: Circuit, clocks: Clocks, outbox: Outbox) -> None:
        self._node = node
        self.way: str = ""
        """What the node is bound for a second time, if it is: then it has objects of its own."""
        self._circuit = circuit
        self._clocks = clocks
        self._outbox = outbox
        self._shared: dict[str, LaneSharedStore] = {}
        self.time: NodeTime = NodeTime(node, circuit, clocks)
        self.cursor: Cursor = outbox.cursor
        self.metrics: UserMetrics = circuit.metrics
        self.retried: Wrap = partial(circuit.failures.retried, node)
        self.children: dict[str, Process] = {}
        self.side_outputs: dict[str, Process] = {}
        self.shared_writes: dict[str, Process] = {}

    @property
    def node(self) -> str:
        """The node's name."""
        return self._node.name

    # ---- the circuit ----------------------------------------------------------------------------------------------

    def store(self, name: str) -> Any:
        """Return a store of the lane."""
        return self._circuit.stores.store(name)

    def user_store(self, name: str) -> Any:
        """Return a store for user code; it must be connected to the node."""
        node, stores = self._node, self._circuit.stores
        if isinstance(node, ProcessorNode) and any(name == shared for shared, _ in node.shared):
            return stores.store(name) if node.operator.runs_serially else self._shared_store(name)
        if isinstance(node, ProcessorNode) and name not in node.stores and not stores.is_global(name):
            self.spec(name)
            raise TopologyError(
                f"{node.name} uses store {name!r} without being connected to it ({node.line}). "
                f"Add it to stores=[...] where the processor is declared."
            )
        return stores.store(name)

    def _shared_store(self, name: str) -> LaneSharedStore:
        found = self._shared.get(name)
        if found is None:
            stores, send = self._circuit.stores, self.shared_writes.get(name)
            found = LaneSharedStore(self.spec(name), self.node, stores, self.cursor, self.time.stream_time, send)
            self._shared[name] = found
        return found

    def spec(self, name: str) -> StoreSpec:
        """Return the declaration of a store."""
        return self._circuit.blueprint.spec(name)

    def register(self, name: str, initial: int) -> Register:
        """Return a named integer of the lane's state."""
        return self._circuit.stores.register(name, initial)

    def owns(self, key: bytes) -> bool:
        """Whether a key belongs to this shard."""
        return self._circuit.stores.owns(key)

    def child(self, name: str) -> Process:
        """Return the child with this name."""
        try:
            return self.children[name]
        except KeyError:
            known = ", ".join(self.children) or "none"
            raise TopologyError(f"{self.node} has no child {name!r}. Its children: {known}.") from None

    def side_output(self, name: str) -> Process:
        """Return the side output with this name."""
        found = self.side_outputs.get(name)
        if found is None:
            declared = ", ".join(self.side_outputs) or "none"
            raise TopologyError(
                f"{self.node} sends a record to side output {name!r}, which is not declared ({self._node.line}). Declare it with "
                f"side_output({name!r}) on the node's stream. Declared side outputs: {declared}."
            )
        return found

    def view(self, table: str) -> View:
        """Return how to read a table."""
        return self._circuit.view(table, lambda node: NodeHost(node, self._circuit, self._clocks, self._outbox))

    def pending(self, store: str, flush: Callable[[dict[Any, Any]], None]) -> dict[Any, Any]:
        """Return the pending changes of a store; `flush` receives them when the epoch ends."""
        waiting = self._circuit.stores.pending(store)
        self.on_flush(store, lambda: flush(waiting))
        return waiting

    def on_flush(self, store: str, flush: Callable[[], None]) -> None:
        """Call `flush` when the epoch ends.

        If it fails, no handler is called: the writes of a whole epoch are not the failure of one record.
        """

        def attributed() -> None:
            try:
                flush()
            except ATTRIBUTED:
                raise
            except FAILURES as error:
                raise self._circuit.failures.unhandled(self._node, error) from error

        self._circuit.stores.on_flush(store, attributed)

    def asking(self, call: Call, take: Callable[[Request, Any], None]) -> Callable[[Request], None]:
        """Make calls when the epoch ends; return the function that accepts requests."""
        return self._circuit.add_calls(self._node, call, take, self.cursor).add

    def on_start(self, start: Callable[[], None]) -> None:
        """Call `start` once the lane is bound."""

        def attributed() -> None:
            try:
                start()
            except ATTRIBUTED:
                raise
            except FAILURES as error:
                raise ProcessingError(
                    f"{self.node} failed to start: {type(error).__name__}: {text_of(error)}\n"
                    f"  the node was declared at {self._node.line}"
                ) from error

        self._circuit.on_start(attributed)

    def resident(self, make: Callable[..., R], setup: Callable[[], Any] | None = None, part: str = "") -> R:
        """Return an object of the node that stays while lanes are bound anew."""
        return self._circuit.resident(self._node, make, setup, f"{self.way}{part}")

    # ---- reports --------------------------------------------------------------------------------------------------

    def failed(self, error: Raised, key: Any) -> None:
        """Report that user code failed; an attributed error passes."""
        if isinstance(error, ATTRIBUTED):
            raise error
        self._circuit.failures.processing(self._node, error, key)

    def late(self, handler: ErrorHandler, error: Exception, key: Any) -> None:
        """Report that the current record is late."""
        self._circuit.failures.late(self._node, handler, error, key)

    def dropped(self, reason: str) -> None:
        """Count a dropped record."""
        self._outbox.drop(self._node.name, reason)

    def request_commit(self) -> None:
        """Request an early end of the epoch."""
        self._outbox.commit_requested = True
