"""One session of the epoch oracle: runs cases in two processes, shrinks differences, writes `reports/conformance-epochs.json`."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from verification.conformance.compare import Difference
from verification.conformance.coverage import features
from verification.conformance.epochs import generator, report
from verification.conformance.epochs.compare import differences
from verification.conformance.epochs.course import counted
from verification.conformance.epochs.host import play
from verification.conformance.epochs.left_out import LEFT_OUT
from verification.conformance.epochs.spec import EpochCase, Restart
from verification.conformance.shrink import shrink

WORKERS = 2
CHUNK = 8
COLLECT_EVERY = 100_000
REDUCED = 3
"""How many differing cases are shrunk: each takes some hundred attempts."""


class Verdict(NamedTuple):
    """The outcome of a case."""

    case: str
    found: list[Difference]
    verbs: set[str]
    counts: dict[str, int]


@dataclass
class Tally:
    """The counts of a session so far."""

    cases: int = 0
    found: list[Difference] = field(default_factory=list)
    verbs: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)


def judge(case: EpochCase) -> Verdict:
    """Compare one case."""
    outcome = play(case)
    if outcome.is_left_out:
        return Verdict(case.id, [], set(), {"left_out": 1})
    counts = {**counted(case.steps), "lane_changes": outcome.lane_changes}
    counts |= {"in_flight": outcome.in_flight, "shards_in_columns": outcome.in_columns, "shards_in_threads": outcome.in_threads}
    return Verdict(case.id, differences(case, outcome), {name for op in case.ops for name in features(op)}, counts)


def _judged(place: tuple[int, int]) -> Verdict:
    return judge(generator.case(*place))


def _prepare() -> None:
    """Collect garbage as rarely as a lane's process, and do not log: failures of lanes are part of some cases."""
    gc.set_threshold(COLLECT_EVERY)
    logging.disable(logging.CRITICAL)


def verdicts(seed: int, cases: int) -> Iterator[Verdict]:
    """Judge all cases of a seed, in several processes."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(WORKERS, initializer=_prepare) as pool:
        yield from pool.imap(_judged, ((seed, index) for index in range(cases)), chunksize=CHUNK)


def main(seed: int, cases: int, *, show: int) -> bool:
    """Run generated cases; return whether nothing differs."""
    begun = time.monotonic()
    tally = Tally()
    print(f"conformance of epochs: seed {seed}, {cases} cases")
    for verdict in verdicts(seed, cases):
        _note(tally, verdict, show)
    seconds = round(time.monotonic() - begun, 1)
    _prepare()
    for name in list(dict.fromkeys(difference.case for difference in tally.found))[:REDUCED]:
        print("\nreduced:")
        print_case(reduced(find(name)))
    _report(seed, cases, tally, seconds)
    print("not compared:")
    for item in LEFT_OUT:
        print(f"  {item.name}: {item.reason}")
    kinds = Counter(difference.kind for difference in tally.found)
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in sorted(tally.counts.items()))
    print(f"{counts}; {len(tally.verbs)} verbs and kinds")
    print(
        f"{tally.cases} cases, {len(tally.found)} differences {dict(kinds)} in {seconds} s ({tally.cases / seconds:.1f} cases/s)"
    )
    return not tally.found


def _note(tally: Tally, verdict: Verdict, show: int) -> None:
    tally.cases += 1
    tally.verbs.update(verdict.verbs)
    tally.counts.update(verdict.counts)
    for difference in verdict.found:
        if len(tally.found) < show:
            print(f"\n{difference}", flush=True)
        tally.found.append(difference)
    if tally.cases % 250 == 0:
        print(f"  {tally.cases} cases, {len(tally.found)} differences", flush=True)


def find(name: str) -> EpochCase:
    """A case by `seed/index`."""
    seed, _, index = name.partition("/")
    return generator.case(int(seed), int(index))


def reduced(case: EpochCase) -> EpochCase:
    """The case, shrunk without losing its first kind of difference: fewer steps, operations, shards and lanes."""
    found = differences(case, play(case))
    if not found:
        return case
    kind = found[0].kind

    def fails(one: EpochCase) -> bool:
        try:
            return any(difference.kind == kind for difference in differences(one, play(one)))
        except Exception:  # noqa: BLE001 - a topology that cannot be built is not a smaller case
            return False

    small = shrink(case, fails)
    for shards in range(1, small.shards):
        fewer = _with_shards(small, shards)
        if fails(fewer):
            return shrink(fewer, fails)
    return small


def _with_shards(case: EpochCase, shards: int) -> EpochCase:
    steps = tuple(replace(step, lanes=min(step.lanes, shards)) if isinstance(step, Restart) else step for step in case.steps)
    return replace(case, shards=shards, lanes=min(case.lanes, shards), steps=steps)


def print_case(case: EpochCase) -> None:
    """Print a case and its differences."""
    print(f"case {case.id}: {case.shards} shards, {case.lanes} lanes at first, {case.in_flight} in flight, {case.settings}")
    for op in case.ops:
        print(f"  {op.id} = {op.verb}({', '.join(op.inputs)}) {op.args}")
    for index, step in enumerate(case.steps):
        print(f"  step {index}: {step}")
    for difference in differences(case, play(case)):
        print(difference)


def show(name: str, *, small: bool) -> int:
    """Show one case in detail."""
    _prepare()
    case = find(name)
    print_case(reduced(case) if small else case)
    return 1 if differences(case, play(case)) else 0


def _report(seed: int, cases: int, tally: Tally, seconds: float) -> None:
    figures = {
        "seed": seed,
        "cases": cases,
        "differences": len(tally.found),
        "differing_cases": sorted({difference.case for difference in tally.found}),
        "verbs": dict(sorted(tally.verbs.items())),
        **{name: tally.counts[name] for name in ("lane_changes", "restarts", "roll_backs", "in_flight")},
        "cases_left_out": tally.counts["left_out"],
        "seconds": seconds,
        "cases_per_second": round(tally.cases / seconds, 1),
        "left_out": [{"name": item.name, "reason": item.reason} for item in LEFT_OUT],
    }
    report.write(figures)
