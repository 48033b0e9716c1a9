"""The calls of one node: asked for while the epoch is walked, made when all records are done.

They are made for all shards of a lane at once, so that a lane with many shards does not wait longer than one with few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any

from penstock.calls import Caller, Failed, Request
from penstock.errors import ATTRIBUTED, ProcessingError
from penstock.lanes.position import Position
from penstock.topology.nodes import Node

if TYPE_CHECKING:
    from penstock.lanes.lane import Lane


Waiting = tuple[Position, int, Request]
"""A request, with the place in the epoch where its record was in hand."""


class Asking:
    """Requests that wait, each with the place in the epoch where its record was in hand."""

    __slots__ = ("_caller", "_lane", "_node", "_take", "_waiting")

    def __init__(self, lane: Lane, node: Node, caller: Caller, take: Callable[[Request, Any], None]) -> None:
        self._lane = lane
        self._node = node
        self._caller = caller
        self._take = take
        self._waiting: list[Waiting] = []

    @property
    def is_waiting(self) -> bool:
        """Whether there are calls to make."""
        return bool(self._waiting)

    def ask(self, request: Request) -> None:
        """Take note of a request about the record in hand."""
        lane = self._lane
        self._waiting.append((lane.position, lane.cursor.row, request))

    def take_waiting(self) -> list[Waiting]:
        """What was asked for since the last call, to be made now."""
        waiting, self._waiting = self._waiting, []
        return waiting

    @contextmanager
    def between_records(self) -> Iterator[None]:
        """Be where the lane is now again when the block ends."""
        lane = self._lane
        before = lane.position, lane.cursor.row
        try:
            yield
        finally:
            lane.position, lane.cursor.row = before

    def settle(self, waiting: Waiting, answer: Any) -> None:
        """Hand on what is answered as if the record were in hand again."""
        self._lane.position, self._lane.cursor.row, request = waiting
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

    def answers(self, requests: list[Request]) -> Any:
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


def make_calls(askings: Sequence[Asking]) -> None:
    """Make the calls that one node waits for in several shards; they are answered in the order of shards and requests."""
    waiting = [(asking, each) for asking in askings for each in asking.take_waiting()]
    if not waiting:
        return
    with ExitStack() as stack:
        for asking in askings:
            stack.enter_context(asking.between_records())
        answers = stack.enter_context(closing(askings[0].answers([request for _, (_, _, request) in waiting])))
        for (asking, each), answer in zip(waiting, answers, strict=True):
            asking.settle(each, answer)
