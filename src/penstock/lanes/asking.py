"""The calls of one node of a lane: asked for while the epoch is walked, made when all records are done."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any

from penstock.calls import Caller, Failed, Request
from penstock.errors import ATTRIBUTED, ProcessingError
from penstock.lanes.position import Position
from penstock.topology.nodes import Node

if TYPE_CHECKING:
    from penstock.lanes.lane import Lane


class Asking:
    """Requests that wait, each with the place in the epoch where its record was in hand."""

    __slots__ = ("_caller", "_lane", "_node", "_take", "_waiting")

    def __init__(self, lane: Lane, node: Node, caller: Caller, take: Callable[[Request, Any], None]) -> None:
        self._lane = lane
        self._node = node
        self._caller = caller
        self._take = take
        self._waiting: list[tuple[Position, int, Request]] = []

    @property
    def is_waiting(self) -> bool:
        """Whether there are calls to make."""
        return bool(self._waiting)

    def ask(self, request: Request) -> None:
        """Take note of a request about the record in hand."""
        lane = self._lane
        self._waiting.append((lane.position, lane.cursor.row, request))

    def make(self) -> None:
        """Make the calls, and hand on what is answered as if each record were in hand again."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        lane = self._lane
        before = lane.position, lane.cursor.row
        try:
            with closing(self._answers([request for _, _, request in waiting])) as answers:
                for (position, row, request), answer in zip(waiting, answers, strict=True):
                    lane.position, lane.cursor.row = position, row
                    self._settle(request, answer)
        finally:
            lane.position, lane.cursor.row = before

    def _settle(self, request: Request, answer: Any) -> None:
        error = answer.error if isinstance(answer, Failed) else None
        if error is None:
            try:
                self._take(request, answer)
            except ATTRIBUTED:
                raise
            except Exception as failure:
                error = failure
        if error is not None:
            self._lane.failures.processing(self._lane, self._node, error, request.key)

    def _answers(self, requests: list[Request]) -> Any:
        """The answers; what fails before there are any is not one record's failure."""
        try:
            yield from self._caller.answers(requests)
        except ATTRIBUTED:
            raise
        except Exception as error:
            raise ProcessingError(
                f"{self._node.name} could not make its calls: {type(error).__name__}: {error}\n"
                f"  the node was declared at {self._node.line}"
            ) from error
