"""From a case's steps to a sequence of actions: epochs, starts, records for global tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from penstock.topology import Topology
from verification.conformance.epochs.internals import Ways, ways_of
from verification.conformance.epochs.router import Arrived, Router, is_well_ordered
from verification.conformance.epochs.spec import Cut, EpochCase, Input, Restart
from verification.conformance.spec import Advance, Step

Records = tuple[Arrived, ...]
PLAIN = Cut()


@dataclass(frozen=True)
class Run:
    """A committed epoch; `before` are the records of attempts that were not committed."""

    records: Records
    wall_clock: int
    before: tuple[Records, ...] = ()
    cut: Cut = PLAIN


@dataclass(frozen=True)
class Start:
    """A start; `ahead` are the records of an epoch that was written but not committed, if any."""

    restart: Restart
    wall_clock: int
    ahead: Records | None = None


@dataclass(frozen=True)
class Feed:
    """A record of a global table's topic."""

    record: Arrived


Action = Run | Start | Feed


def course(case: EpochCase, topology: Topology) -> Iterator[Action]:
    """The actions of the steps. If the order within an epoch would be undefined, it is split into several."""
    router = Router(topology, case.topics, case.shards)
    global_sources = set(topology.global_stores.values())
    ways = ways_of(topology)
    now = case.settings.wall_clock
    waiting: list[Arrived] = []

    def epochs(cut: Cut) -> Iterator[Run]:
        parts = list(_parts(waiting, ways)) or [()]
        waiting.clear()
        for part in parts[:-1]:
            yield Run(part, now)
        last = parts[-1]
        if cut.again == "more" and len(last) > 1:
            half = len(last) // 2
            yield Run(last[:half], now, (last,))
            yield Run(last[half:], now, cut=cut)
        else:
            yield Run(last, now, (last,) if cut.again else (), cut)

    for step in (*case.steps, PLAIN):
        if isinstance(step, Input) and router.source(step.topic).name not in global_sources:
            waiting.append(router.arrive(step))
            continue
        if isinstance(step, Restart):
            ahead = next(_parts(waiting, ways), ()) if step.stores == "ahead" else None
            if ahead is None and waiting:
                yield from epochs(PLAIN)
            yield Start(step, now, ahead)
            continue
        if waiting or isinstance(step, Cut):
            yield from epochs(step if isinstance(step, Cut) else PLAIN)
        if isinstance(step, Input):
            yield Feed(router.arrive(step))
        elif isinstance(step, Advance):
            now += step.ms
            yield Run((), now)


def _parts(records: Iterable[Arrived], ways: Mapping[str, Ways]) -> Iterator[Records]:
    """The records in the fewest epochs with a defined order."""
    part: list[Arrived] = []
    for record in records:
        longer = [*part, record]
        if part and not (is_well_ordered(longer) and _is_one_way(longer, ways)):
            yield tuple(part)
            longer = [record]
        part = longer
    if part:
        yield tuple(part)


def _is_one_way(records: Iterable[Arrived], ways: Mapping[str, Ways]) -> bool:
    """Whether the records reach each store in one stage only."""
    taken = {way for record in records for way in ways[record.source]}
    return len({store for store, _ in taken}) == len(taken)


def counted(steps: Iterable[Step]) -> dict[str, int]:
    """How often the steps change lanes, restart and roll an epoch back."""
    found = list(steps)
    starts = [step for step in found if isinstance(step, Restart)]
    again = [step for step in found if isinstance(step, Cut) and (step.again or step.fails)]
    return {"restarts": len(starts), "roll_backs": len(again) + sum(step.stores == "ahead" for step in starts)}
