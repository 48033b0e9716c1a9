"""The calls of one node: asked for while the epoch is walked, made when all records are done.

They are made for all shards of a lane at once, so that a lane with many shards does not wait longer than one with few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

from penstock.calls import Caller, Failed, Request
from penstock.errors import ATTRIBUTED, ProcessingError
from penstock.lanes.cursor import Cursor
from penstock.lanes.failures import Failures
from penstock.lanes.position import Position
from penstock.topology.nodes import Node

Question = tuple[Position, int, Request]
"""A request, with the place in the epoch where its record was in hand."""


class PendingCalls:
    """Requests that wait, each with the place in the epoch where its record was in hand."""

    __slots__ = ("_caller", "_failures", "_node", "_questions", "_take", "cursor")

    def __init__(
        self, node: Node, caller: Caller, take: Callable[[Request, Any], None], cursor: Cursor, failures: Failures
    ) -> None:
        self._node = node
        self._caller = caller
        self._take = take
        self._failures = failures
        self._questions: list[Question] = []
        self.cursor: Cursor = cursor

    @property
    def is_waiting(self) -> bool:
        """Whether there are calls to make."""
        return bool(self._questions)

    def ask(self, request: Request) -> None:
        """Take note of a request about the record in hand."""
        cursor = self.cursor
        self._questions.append((cursor.position, cursor.row, request))

    def take_questions(self) -> list[Question]:
        """What was asked for since the last call, to be made now."""
        questions, self._questions = self._questions, []
        return questions

    def settle(self, question: Question, answer: Any) -> None:
        """Hand on what is answered as if the record were in hand again."""
        cursor = self.cursor
        cursor.position, cursor.row, request = question
        error = answer.error if isinstance(answer, Failed) else None
        if error is None:
            try:
                self._take(request, answer)
            except ATTRIBUTED:
                raise
            except Exception as failure:
                error = failure
        if error is not None:
            self._failures.processing(self._node, error, request.key)

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


def make_calls(askings: Sequence[PendingCalls]) -> None:
    """Make the calls that one node waits for in several shards; they are answered in the order of shards and requests."""
    asked = [(asking, question) for asking in askings for question in asking.take_questions()]
    if not asked:
        return
    with ExitStack() as stack:
        for asking in askings:
            stack.enter_context(asking.cursor.between_records())
        answers = stack.enter_context(closing(askings[0].answers([request for _, (_, _, request) in asked])))
        for (asking, question), answer in zip(asked, answers, strict=True):
            asking.settle(question, answer)
