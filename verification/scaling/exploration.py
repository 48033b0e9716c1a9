"""Explores the model of groups with a decision record: all worlds of a small size, or one way through a larger one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from verification.scaling.decided_groups import Bug, Kafka, Phase, Size, World, first, moves
from verification.scaling.invariants import violation, violation_after_restart

SMALL = Size(drivers=2, timeouts=1, retries=1)
SIZES = (
    Size(drivers=3, epochs=1, timeouts=0, retries=0),
    SMALL,
    Size(drivers=2, groups=3, epochs=1, timeouts=1, retries=1),
    Size(epochs=3, timeouts=2),
    Size(drivers=3, timeouts=1, retries=0),
)
"""All of them together take minutes."""


@dataclass(frozen=True, slots=True)
class Explored:
    """What was found: the first violation, if any, with the shortest way to it."""

    size: Size
    worlds: int
    moves: int
    holes: int
    """Worlds in which a driver has reported lost rows."""
    seconds: float
    violation: str | None = None
    way: tuple[str, ...] = ()


class Judge:
    """Judges worlds; restarts only once for what they have in common."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._known: dict[Kafka, str | None] = {}

    def judge(self, world: World) -> str | None:
        """Return what is wrong with a world or with a restart from it, None if nothing is."""
        kafka = world.kafka
        if kafka not in self._known:
            self._known[kafka] = violation_after_restart(kafka, self._size)
        return violation(world, self._size) or self._known[kafka]


def explore(size: Size) -> Explored:
    """Visit all worlds, those with the fewest moves first, up to the first violation."""
    began, judge = time.monotonic(), Judge(size)
    world = first(size)
    came: dict[World, tuple[World, str] | None] = {world: None}
    queue = deque([world])
    made = holes = 0
    while queue:
        world = queue.popleft()
        holes += any(driver.phase is Phase.HOLE for driver in world.drivers)
        wrong = judge.judge(world)
        if wrong is not None:
            return Explored(size, len(came), made, holes, time.monotonic() - began, wrong, _way(came, world))
        for said, following in moves(world, size):
            made += 1
            if following not in came:
                came[following] = (world, said)
                queue.append(following)
    return Explored(size, len(came), made, holes, time.monotonic() - began)


def _way(came: dict[World, tuple[World, str] | None], world: World) -> tuple[str, ...]:
    way: list[str] = []
    while (step := came[world]) is not None:
        world, said = step
        way.append(said)
    return tuple(reversed(way))


def walk(size: Size, choices: Iterable[int]) -> tuple[str | None, World]:
    """Go one way through the model, as the choices say; return the first violation, and where it ends."""
    judge, world = Judge(size), first(size)
    for choice in choices:
        possible = list(moves(world, size))
        if not possible:
            break
        world = possible[choice % len(possible)][1]
        wrong = judge.judge(world)
        if wrong is not None:
            return wrong, world
    return None, world


def planted() -> dict[Bug, Explored]:
    """Explore the small size with each bug."""
    return {bug: explore(replace(SMALL, bug=bug)) for bug in Bug}
