"""The calls of one node to other systems: requested while records are processed, made after the last record of the epoch.

They are made for all shards of a lane at once, so that a lane with many shards does not wait longer than one with few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from penstock.calls import Caller, Failed, Request
from penstock.errors import ATTRIBUTED, FAILURES, ProcessingError, failure_of, text_of
from penstock.lanes.cursor import Cursor
from penstock.lanes.failures import Failures
from penstock.lanes.position import Position
from penstock.topology.nodes import Node

PendingRequest = tuple[Position, int, Request]
"""A request, with the position and row of its record in the epoch."""


class PendingCalls:
    """The pending requests of a node in one shard."""

    __slots__ = ("_caller", "_failures", "_node", "_requests", "_take", "cursor")

    def __init__(
        self, node: Node, caller: Caller, take: Callable[[Request, Any], None], cursor: Cursor, failures: Failures
    ) -> None:
        self._node = node
        self._caller = caller
        self._take = take
        self._failures = failures
        self._requests: list[PendingRequest] = []
        self.cursor: Cursor = cursor

    @property
    def is_waiting(self) -> bool:
        """Whether there are calls to make."""
        return bool(self._requests)

    def add(self, request: Request) -> None:
        """Add a request for the current record."""
        cursor = self.cursor
        self._requests.append((cursor.position, cursor.row, request))

    def take_requests(self) -> list[PendingRequest]:
        """Return and remove the pending requests."""
        requests, self._requests = self._requests, []
        return requests

    def settle(self, pending: PendingRequest, answer: Any) -> None:
        """Process the answer to a request, with its record as the current one."""
        cursor = self.cursor
        cursor.position, cursor.row, request = pending
        error = answer.error if isinstance(answer, Failed) else None
        if error is None:
            try:
                self._take(request, answer)
            except ATTRIBUTED:
                raise
            except FAILURES as failure:
                error = failure_of(failure)
        if error is not None:
            self._failures.processing(self._node, error, request.key)

    def answers(self, requests: list[Request]) -> Any:
        """Make the calls and yield their answers; a failure before the first answer is not attributed to a record."""
        try:
            yield from self._caller.answers(requests)
        except ATTRIBUTED:
            raise
        except FAILURES as error:
            raise ProcessingError(
                f"{self._node.name} could not make its calls: {type(error).__name__}: {text_of(error)}\n"
                f"  the node was declared at {self._node.line}"
            ) from error


def make_calls(shards: Sequence[PendingCalls]) -> None:
    """Make the pending calls of one node in several shards, and process the answers in the order of shards and requests."""
    pending = [(calls, request) for calls in shards for request in calls.take_requests()]
    if not pending:
        return
    with ExitStack() as stack:
        for calls in shards:
            stack.enter_context(calls.cursor.between_records())
        answers = stack.enter_context(closing(shards[0].answers([request for _, (_, _, request) in pending])))
        for (calls, request), answer in zip(pending, answers, strict=True):
            calls.settle(request, answer)
