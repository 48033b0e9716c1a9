"""One conformance session: runs cases on both sides, prints differences, writes `reports/conformance.json`."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field

from verification.conformance import generator
from verification.conformance.compare import Difference, differences, record_text
from verification.conformance.coverage import exercised, features
from verification.conformance.left_out import LEFT_OUT
from verification.conformance.oracle_process import Oracle
from verification.conformance.regressions import regressions
from verification.conformance.run import run
from verification.conformance.shrink import shrink
from verification.conformance.spec import Case, to_json
from verification.harness.processes import ROOT

REPORT = ROOT / "reports" / "conformance.json"
LEAST_EXERCISED = 30
CASES_FOR_COVERAGE = 2000


@dataclass
class Tally:
    """The counts of a session so far."""

    cases: int = 0
    failed_on_both: int = 0
    silent: int = 0
    found: list[Difference] = field(default_factory=list)
    verbs: Counter[str] = field(default_factory=Counter)


def compare_all(oracle: Oracle, cases: list[Case], tally: Tally, show: int) -> None:
    """Run the cases on both sides; the oracle works ahead."""
    for case, expected in zip(cases, oracle.ask_all(cases), strict=True):
        found = differences(expected, run(case))
        tally.cases += 1
        tally.failed_on_both += "error" in expected and not found
        tally.silent += (
            "error" not in expected and not any(expected["outputs"].values()) and not any(expected["effects"].values())
        )
        tally.verbs.update({feature: 0 for op in case.ops for feature in features(op)})
        tally.verbs.update(exercised(case, expected))
        for difference in found:
            if len(tally.found) < show:
                print(f"\n{difference}", flush=True)
            tally.found.append(difference)
        if tally.cases % 250 == 0:
            print(f"  {tally.cases} cases, {len(tally.found)} differences", flush=True)


def main(seed: int, cases: int, *, show: int, regressions: bool) -> int:
    """Run generated cases and the fixed set; return 1 if anything differs or was exercised too rarely."""
    begun = time.monotonic()
    fixed = fixed_cases() if regressions else []
    tally = Tally()
    print(f"conformance: seed {seed}, {cases} generated cases, {len(fixed)} fixed ones")
    with Oracle() as oracle:
        compare_all(oracle, fixed + list(generator.generate(seed, cases)), tally, show)
    rare = rarely_exercised(tally.verbs) if cases >= CASES_FOR_COVERAGE else {}
    seconds = round(time.monotonic() - begun, 1)
    _report(seed, cases, len(fixed), tally, seconds)
    print("not compared:")
    for item in LEFT_OUT:
        print(f"  {item.name}: {item.reason}")
    for name, count in sorted(rare.items()):
        print(f"exercised only {count} times, at least {LEAST_EXERCISED} are needed: {name}")
    kinds = Counter(difference.kind for difference in tally.found)
    print(f"{tally.cases} cases, {len(tally.found)} differences {dict(kinds)} in {seconds} s")
    print(f"{tally.failed_on_both} cases fail on both sides, {tally.silent} write nothing")
    return 1 if tally.found or rare else 0


def fixed_cases() -> list[Case]:
    """The regression set."""
    return list(regressions())


def rarely_exercised(verbs: Counter[str]) -> dict[str, int]:
    """The features that were exercised too rarely."""
    return {name: count for name, count in verbs.items() if count < LEAST_EXERCISED}


def _report(seed: int, cases: int, fixed: int, tally: Tally, seconds: float) -> None:
    report = {
        "seed": seed,
        "cases": cases,
        "regression_cases": fixed,
        "differences": len(tally.found),
        "differing_cases": sorted({difference.case for difference in tally.found}),
        "failed_on_both": tally.failed_on_both,
        "silent": tally.silent,
        "verbs": dict(sorted(tally.verbs.items())),
        "left_out": [{"name": item.name, "reason": item.reason} for item in LEFT_OUT],
        "seconds": seconds,
    }
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def find(seed: int, name: str) -> Case:
    """A generated case by its index, or a fixed one by its name."""
    if name.isdigit():
        return generator.case(seed, int(name))
    if "/" in name:
        of_seed, _, index = name.partition("/")
        return generator.case(int(of_seed), int(index))
    return next(case for case in fixed_cases() if case.id == name)


def _smallest(oracle: Oracle, case: Case) -> Case:
    """The case, shrunk without losing its worst kind of difference."""
    kinds = {difference.kind for difference in differences(oracle.ask(case), run(case))}
    worst = next((kind for kind in ("error", "output", "effect", "describe", "store") if kind in kinds), None)
    if worst is None:
        return case
    return shrink(case, lambda one: any(found.kind == worst for found in differences(oracle.ask(one), run(one))))


def show(seed: int, name: str, *, small: bool) -> int:
    """Show one case in detail: its operations and input, and both results."""
    case = find(seed, name)
    with Oracle() as oracle:
        if small:
            case = _smallest(oracle, case)
        expected = oracle.ask(case)
    actual = run(case)
    print(to_json(case))
    print(f"{case.settings}")
    for op in case.ops:
        print(f"  {op.id} = {op.verb}({', '.join(op.inputs)}) {op.args}")
    for index, step in enumerate(case.steps):
        print(f"  step {index}: {step}")
    print(expected.get("describe", ""))
    for side, result in (("Kafka Streams", expected), ("Penstock", actual)):
        print(side)
        for topic, rows in sorted(result.get("outputs", {}).items()):
            print(f"  {topic}")
            for row in rows:
                print(f"    {record_text(row)}")
        for what in ("effects", "stores"):
            for key, value in sorted(result.get(what, {}).items()):
                print(f"  {what} {key}: {value}")
        if "error" in result:
            print(f"  error {result['error']}")
    found = differences(expected, actual)
    for difference in found:
        print(f"\n{difference}")
    return 1 if found else 0
