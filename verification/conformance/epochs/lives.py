"""How long processors live, by the rule alone: as long as their lane stays in its process, and nothing that it wrote is undone.

A process knows which write of the lanes was its last one. If the lanes are as that has left them, processors go on; whatever
has happened instead (a start, a roll-back, another attempt, another process), they begin anew. What was cancelled is scheduled
again by the next start only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import NamedTuple

from verification.conformance.epochs.course import Action, Feed, Run, Start


class Begin(Enum):
    """What becomes of the processors at the beginning of an epoch."""

    GO_ON = "they go on"
    ANEW = "others begin"
    START = "others begin, after a start"


class Written(NamedTuple):
    """The lanes as an epoch has left them: the number of the write, and the start that has written it."""

    number: int = 0
    start: int = 0


@dataclass
class Lanes:
    """The lanes, and what each of two processes knows about them."""

    written: Written = field(default_factory=Written)
    start: int = 1
    process: int = 0
    left: dict[int, int] = field(default_factory=dict)
    numbers: count[int] = field(default_factory=lambda: count(1))

    def run(self) -> Begin:
        """Run an epoch."""
        begins = Begin.GO_ON
        if self.written.start != self.start:
            begins = Begin.START
        elif self.left.get(self.process) != self.written.number:
            begins = Begin.ANEW
        self.written = Written(next(self.numbers), self.start)
        self.left[self.process] = self.written.number
        return begins

    def restart(self) -> None:
        """Start: no process knows anything."""
        self.start += 1
        self.left.clear()


def begins(actions: Iterable[Action], in_flight: int) -> list[Begin]:
    """What becomes of the processors in each epoch of a course, in the run of it that is committed."""
    lanes, found, flights = Lanes(), list[Begin](), list[int]()
    before = list[Written]()
    """The lanes before each epoch."""

    def run(number: int) -> None:
        before[number], found[number] = lanes.written, lanes.run()

    def run_again() -> None:
        if flights:
            lanes.written = before[flights[0]]
        for number in flights:
            run(number)

    for action in actions:
        if isinstance(action, Feed):
            flights.clear()
        elif isinstance(action, Start):
            if action.restart.stores == "kept":
                flights.clear()
            if action.ahead is not None:
                undone = lanes.written
                lanes.run()
                lanes.written = undone
            lanes.restart()
            run_again()
        else:
            _attempt(lanes, action)
            flights.append(len(found))
            before.append(lanes.written)
            found.append(Begin.GO_ON)
            run(flights[-1])
            if action.cut.fails:
                run_again()
            del flights[: max(0, len(flights) - in_flight)]
            if action.cut.moves:
                lanes.process = 1 - lanes.process
    return found


def _attempt(lanes: Lanes, action: Run) -> None:
    """The attempts at an epoch that are undone."""
    for _ in action.before:
        undone = lanes.written
        lanes.run()
        lanes.written = undone
