"""One session: worlds of a seed in two processes, until there were enough lives or the time is over; writes the report."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from verification.integration.compare import differences
from verification.integration.cut import Cut
from verification.integration.hosts import driver, in_process
from verification.integration.scenario import Judge, Result
from verification.integration.scenarios import BY_NAME, SCENARIOS
from verification.simulation import host

if TYPE_CHECKING:
    from typing_extensions import Self

REPORT = Path("reports/simulate.json")
WORKERS = 2
WORLD_S = 300.0
"""A world that takes longer hangs."""
LEFT_OUT = {"global tables": "the driver and lanes would open a file of LMDB twice in one process"}
NAMES = tuple(scenario.name for scenario in SCENARIOS if scenario.name not in LEFT_OUT)
RECORDS = (8, 25, 60)
SMALL, NEARBY = (4, 8, 25), 24
"""How much input a violation is looked for with, and in how many worlds, once there is one."""
SEEDS = 4
"""Inputs of a topology: what the judge says of each is kept."""


class Place(NamedTuple):
    """Which world: what a seed and a number decide, unless a topology or the number of records is given."""

    seed: int
    number: int
    scenario: str | None = None
    records: int | None = None

    def __str__(self) -> str:
        given = [] if self.scenario is None else [self.scenario, str(self.records)]
        return "/".join([str(self.seed), str(self.number), *given])

    @classmethod
    def read(cls, text: str) -> Place:
        """Return the world of a text that `str` gives."""
        seed, number, *given = text.split("/")
        return cls(int(seed), int(number), *((given[0], int(given[1])) if given else ()))


class Verdict(NamedTuple):
    """What a world was like; `violation` says what must not have happened."""

    place: Place
    scenario: str
    records: int
    lives: int
    kills: int
    faults: dict[str, int]
    violation: str | None


@dataclass
class Tally:
    """The counts of a session so far."""

    worlds: int = 0
    lives: int = 0
    kills: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[Verdict] = field(default_factory=list)

    def add(self, verdict: Verdict) -> None:
        """Add a world."""
        self.worlds += 1
        self.lives += verdict.lives
        self.kills += verdict.kills
        self.faults.update(verdict.faults)
        if verdict.violation is not None:
            self.violations.append(verdict)


class _Raised:
    """Keeps what its block raises, as text: whatever a world ends with is a violation."""

    text: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            self.text = "".join(traceback.format_exception(error))
        return isinstance(error, Exception)


@lru_cache(maxsize=4096)
def _expected(name: str, seed: int, records: int, caching: bool) -> Result:
    scenario = BY_NAME[name]
    phases = scenario.phases(seed, records)
    if scenario.judge is Judge.DRIVER:
        return driver.run(scenario, phases, caching)
    return in_process.run(scenario, phases, caching, Cut(1, 1))


def judge(place: Place) -> Verdict:
    """Let a world happen, and compare it with the test driver."""
    chance = Random(f"{place.seed}/{place.number}")
    scenario = BY_NAME[place.scenario or chance.choice(NAMES)]
    records, seed, caching = place.records or chance.choice(RECORDS), chance.randrange(SEEDS), chance.random() < 0.5
    lived, violation = host.Lived(), None
    with _Raised() as raised:
        host.run(scenario, scenario.phases(seed, records), caching, chance.getrandbits(48), lived)
        assert lived.result is not None
        found = differences(scenario, str(place), caching, _expected(scenario.name, seed, records, caching), lived.result)
        violation = "\n".join(map(str, found)) or None
    return Verdict(place, scenario.name, records, lived.lives, lived.kills, dict(lived.faults), raised.text or violation)


def _prepare() -> None:
    logging.disable(logging.CRITICAL)


def places(seed: int) -> Iterator[Place]:
    """Yield the worlds of a seed, endlessly."""
    return (Place(seed, number) for number in count())


def verdicts(wanted: Iterator[Place]) -> Iterator[Verdict]:
    """Let worlds happen in several processes, the same way each time; one that hangs is the last."""
    os.environ["PYTHONHASHSEED"] = "0"
    context = multiprocessing.get_context("spawn")
    with context.Pool(WORKERS, initializer=_prepare) as pool:
        found = pool.imap(judge, wanted)
        for number in count():
            try:
                yield found.next(WORLD_S)
            except StopIteration:
                return
            except multiprocessing.TimeoutError:
                yield Verdict(Place(0, number), "?", 0, 0, 0, {}, f"the world with number {number} has hung for {WORLD_S:g} s")
                return


def first_violation(seed: int, seconds: float) -> Verdict | None:
    """Return the first world with a violation, None if there is none in time."""
    began = time.monotonic()
    for verdict in verdicts(places(seed)):
        if verdict.violation is not None:
            return verdict
        if time.monotonic() - began > seconds:
            return None
    raise AssertionError


def reduced(verdict: Verdict) -> Verdict:
    """Return a violation of the same topology with less input and fewer lives, if there is one nearby."""
    for records in SMALL:
        nearby = (Place(verdict.place.seed, number, verdict.scenario, records) for number in range(NEARBY))
        violated = [each for each in verdicts(nearby) if each.violation is not None]
        if violated:
            return min(violated, key=lambda each: each.lives)
    return verdict


def as_test(verdict: Verdict) -> str:
    """Return a violation as a test."""
    place = verdict.place
    arguments = f"{place.seed}, {place.number}" + ("" if place.scenario is None else f", {place.scenario!r}, {place.records}")
    return f"def test_a_world() -> None:  # {verdict.lives} lives\n    assert judge(Place({arguments})).violation is None\n"


def main(seed: int, lives: int, seconds: float | None, show: int) -> int:
    """Let worlds happen until there were so many lives, or the time is over; return how many violations there were."""
    began, tally = time.monotonic(), Tally()
    print(f"simulation: seed {seed}", flush=True)
    for verdict in verdicts(places(seed)):
        tally.add(verdict)
        if verdict.violation is not None:
            print(f"  {verdict.place}, {verdict.scenario}:\n{verdict.violation}", flush=True)
        is_late = seconds is not None and time.monotonic() - began >= seconds
        if is_late or tally.lives >= lives or len(tally.violations) == show:
            break
    took = time.monotonic() - began
    a_minute = round(tally.lives * 60 / took)
    figures = {
        "seed": seed,
        "worlds": tally.worlds,
        "lives": tally.lives,
        "kills": tally.kills,
        "faults": dict(tally.faults.most_common()),
        "violations": len(tally.violations),
        "found": [f"{each.place}, {each.scenario}: {each.violation}" for each in tally.violations],
        "left_out": LEFT_OUT,
        "seconds": round(took, 1),
        "lives_per_minute": a_minute,
    }
    add(figures)
    if tally.violations:
        print(f"as a test, with PYTHONHASHSEED=0:\n\n{as_test(reduced(tally.violations[0]))}")
    print(
        f"{tally.worlds} worlds, {tally.lives} lives ({a_minute} a minute), {tally.kills} kills, "
        f"{sum(tally.faults.values())} faults, {len(tally.violations)} violations"
    )
    return len(tally.violations)


def add(figures: dict[str, Any]) -> None:
    """Add figures to the report."""
    known = json.loads(REPORT.read_text(encoding="utf-8")) if REPORT.exists() else {}
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps({**known, **figures}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
