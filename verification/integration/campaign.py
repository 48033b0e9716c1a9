"""One run of the suite: every scenario in every cut, in one process and as an application, compared with the test driver."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from verification.integration.compare import Difference, differences
from verification.integration.cut import LANES, RECUT, Cut
from verification.integration.hosts import driver, in_process
from verification.integration.hosts.application import ApplicationHost, Where
from verification.integration.hosts.in_process import Trouble
from verification.integration.scenario import Judge, Result, Scenario
from verification.integration.scenarios import BY_NAME

RECORDS = {1: 40, 5: 100, 7: 100, 97: 400, 120: 400, 1000: 2500, 5000: 2000}
"""The number of input records, by epoch size: on Spark even the smallest epoch takes a tenth of a second."""

SIZES = (1, 5, 97, 5000)
CHANGES = ((2, (5, 1)), (1, (4, 2)), (5, (2, 8)), (8, (1, 3)))
"""The numbers of lanes of the starts of a scenario's application; scenarios take them in turn."""

QUICK_MOVES = 6
"""In a quick run, one scenario in this many changes its lanes."""

QUICK_SHARES = {"Spark": slice(1, None, 2), "local": slice(0, None, 3), "cluster": slice(None)}
"""The scenarios that run on each host in a quick run."""

APPLICATIONS: dict[str, Where] = {"Spark": "spark", "local": "local", "cluster": "cluster"}
"""Where applications run, by the name of the host."""

AT_A_TIME = 2
"""The number of concurrent applications."""


@dataclass(frozen=True)
class Combination:
    """One run of a scenario."""

    host: str
    cut: Cut
    caching: bool
    trouble: Trouble = Trouble.NONE
    then: tuple[int, ...] = ()
    """The numbers of lanes of later starts."""

    def __str__(self) -> str:
        parts = [self.host, str(self.cut), f"caches {'on' if self.caching else 'off'}", self.trouble.value]
        changes = f"then {' and '.join(map(str, self.then))} lanes" if self.then else ""
        return ", ".join(filter(None, [*parts, changes]))


IN_PROCESS = (
    *(Combination("in process", Cut(size, lanes), caching) for size in SIZES for lanes in LANES for caching in (False, True)),
    *(
        Combination("in process", Cut(97, 2), caching, trouble)
        for caching in (False, True)
        for trouble in (Trouble.RETRIES, Trouble.RESTARTS)
    ),
)
QUICK_IN_PROCESS = tuple(Combination("in process", Cut(97, 5), caching) for caching in (False, True))


def in_one_process(scenario: Scenario, is_quick: bool) -> Sequence[Combination]:
    """The combinations of a scenario in one process."""
    if is_quick:
        return QUICK_IN_PROCESS
    recut = RECUT if scenario.cuts is RECUT else ()
    return [*IN_PROCESS, *(Combination("in process", cut, caching) for cut in recut for caching in (False, True))]


def as_application(scenario: Scenario, host: str, number: int, is_quick: bool) -> Sequence[Combination]:
    """The combinations of an application: all its cuts, with caches in every second one, and a change of lanes; or one."""
    turns = [Combination(host, cut, caching=(number + turn) % 2 == 1) for turn, cut in enumerate(scenario.cuts)]
    first, then = CHANGES[number % len(CHANGES)]
    moves = Combination(host, Cut(97, first), caching=number % 2 == 0, then=then)
    if is_quick:
        return [moves if number % QUICK_MOVES == 0 else turns[4 * number % len(turns)]]
    return [*turns, moves]


Expected = Mapping[tuple[int, bool], Result]
"""The test driver's result, by number of records and caching."""


@dataclass
class Tally:
    """The counts of a run so far."""

    scenarios: set[str] = field(default_factory=set)
    combinations: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=dict)
    found: list[Difference] = field(default_factory=list)

    def add(self, scenario: str, combinations: Sequence[Combination], epochs: int, found: Sequence[Difference]) -> None:
        """Add some runs of a scenario on one host."""
        self.scenarios.add(scenario)
        host = combinations[0].host
        self.combinations[host] = self.combinations.get(host, 0) + len(combinations)
        self.epochs[host] = self.epochs.get(host, 0) + epochs
        self.found += found


def run(scenarios: Sequence[Scenario], seed: int, is_quick: bool, hosts: Sequence[str], report: Path, show: int) -> int:
    """Run the scenarios; return the exit code: 1 if anything differs."""
    begun = time.monotonic()
    tally = Tally()
    expected: dict[str, Expected] = {}
    print(f"integration: seed {seed}, {len(scenarios)} topologies", flush=True)
    if "in-process" in hosts:
        for name, known, seconds, outcome in _in_process(scenarios, seed, is_quick):
            expected[name] = known
            tally.add(name, *outcome)
            _say(name, *outcome, seconds, show)
    for host, where in APPLICATIONS.items():
        if where in hosts:
            is_share = is_quick and len(scenarios) == len(BY_NAME)  # those that are named run everywhere
            some = scenarios[QUICK_SHARES[host]] if is_share else scenarios
            for name, seconds, outcome in _as_applications(host, where, some, seed, is_quick, expected):
                tally.add(name, *outcome)
                _say(name, *outcome, seconds, show)
    seconds = round(time.monotonic() - begun, 1)
    _report(report, seed, is_quick, tally, seconds)
    print(f"epochs: {tally.epochs}, combinations: {tally.combinations}, {seconds} s; see {report}")
    total = sum(tally.combinations.values())
    print(f"{len(tally.scenarios)} topologies, {total} combinations, {len(tally.found)} differences")
    return 1 if tally.found else 0


Outcome = tuple[Sequence[Combination], int, list[Difference]]
"""What was run, in how many epochs, and what differs."""


def _in_process(scenarios: Sequence[Scenario], seed: int, is_quick: bool) -> Iterator[tuple[str, Expected, float, Outcome]]:
    """Run scenarios in parallel, one process each: they are independent."""
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        futures = [pool.submit(_one_in_process, scenario.name, seed, is_quick) for scenario in scenarios]
        for future in futures:
            yield future.result()


def _one_in_process(name: str, seed: int, is_quick: bool) -> tuple[str, Expected, float, Outcome]:
    begun = time.monotonic()
    scenario = BY_NAME[name]
    expected: dict[tuple[int, bool], Result] = {}
    combinations = in_one_process(scenario, is_quick)
    epochs, found = 0, []
    for combination in combinations:
        records = RECORDS[combination.cut.epoch_records]
        known = _expected(expected, scenario, seed, records, combination.caching)
        try:
            phases = scenario.phases(seed, records)
            result = in_process.run(scenario, phases, combination.caching, combination.cut, combination.trouble)
        except Exception as error:  # noqa: BLE001 - a run that fails is a difference
            found.append(_failure(scenario, combination, error))
            continue
        epochs += result.epochs
        found += differences(scenario, str(combination), combination.caching, known, result)
    return name, expected, time.monotonic() - begun, (combinations, epochs, found)


def _as_applications(
    name: str,
    where: Where,
    scenarios: Sequence[Scenario],
    seed: int,
    is_quick: bool,
    expected: Mapping[str, Expected],
) -> Iterator[tuple[str, float, Outcome]]:
    with ApplicationHost(where) as host, ThreadPoolExecutor(AT_A_TIME) as pool:
        futures = []
        for number, scenario in enumerate(scenarios):
            combinations = as_application(scenario, name, number, is_quick)
            known = dict(expected.get(scenario.name, {}))
            futures.append(pool.submit(_one_application, host, scenario, combinations, seed, known))
        try:
            for scenario, future in zip(scenarios, futures, strict=True):
                yield scenario.name, *future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _one_application(
    host: ApplicationHost,
    scenario: Scenario,
    combinations: Sequence[Combination],
    seed: int,
    expected: dict[tuple[int, bool], Result],
) -> tuple[float, Outcome]:
    begun = time.monotonic()
    epochs, found = 0, []
    for combination in combinations:
        records = RECORDS[combination.cut.epoch_records]
        known = _expected(expected, scenario, seed, records, combination.caching)
        try:
            phases = scenario.phases(seed, records)
            result = host.run(scenario, phases, combination.caching, combination.cut, combination.then)
        except Exception as error:  # noqa: BLE001 - as above
            found.append(_failure(scenario, combination, error))
            continue
        epochs += result.epochs
        found += differences(scenario, str(combination), combination.caching, known, result)
    return time.monotonic() - begun, (combinations, epochs, found)


def _expected(known: dict[tuple[int, bool], Result], scenario: Scenario, seed: int, records: int, caching: bool) -> Result:
    if (records, caching) not in known:
        phases = scenario.phases(seed, records)
        if scenario.judge is Judge.DRIVER:
            known[records, caching] = driver.run(scenario, phases, caching)
        else:
            known[records, caching] = in_process.run(scenario, phases, caching, Cut(1, 1))
    return known[records, caching]


def _failure(scenario: Scenario, combination: Combination, error: Exception) -> Difference:
    return Difference(scenario.name, str(combination), "the run failed", f"  {type(error).__name__}: {error}")


def _say(
    name: str, combinations: Sequence[Combination], epochs: int, found: Sequence[Difference], seconds: float, show: int
) -> None:
    print(
        f"  {combinations[0].host:10}  {name:42} {len(combinations):3} combinations, {epochs:5} epochs, "
        f"{len(found)} differences, {seconds:.1f} s",
        flush=True,
    )
    for difference in found[:show]:
        print(f"{difference}\n", flush=True)


def _report(path: Path, seed: int, is_quick: bool, tally: Tally, seconds: float) -> None:
    report = {
        "seed": seed,
        "quick": is_quick,
        "topologies": len(tally.scenarios),
        "combinations": sum(tally.combinations.values()),
        "differences": len(tally.found),
        "combinations_by_host": tally.combinations,
        "epochs_by_host": tally.epochs,
        "records_by_epoch_size": RECORDS,
        "found": [str(difference) for difference in tally.found],
        "seconds": seconds,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
