"""Plants bugs in a copy of Penstock and shows that conformance catches each of them.

The oracle answers the cases once. Each mutant then runs them in a separate process, from a copy of src/ with one piece
of text changed; a mutant whose text does not occur exactly once stops the run, so that the list cannot rot.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from verification.conformance import generator
from verification.conformance.oracle_process import Oracle
from verification.conformance.planted import MUTANTS, Mutant
from verification.conformance.regressions import regressions
from verification.conformance.spec import to_json
from verification.harness.processes import ROOT

REPORT = ROOT / "reports" / "mutants.json"
GENERATED = 3 * len(generator.FOCI)
TIMEOUT_S = 600


class MutantError(Exception):
    """A mutant could not be planted, or did not run as a mutant."""


@dataclass(frozen=True)
class Verdict:
    """Whether and by which case a mutant was caught."""

    name: str
    caught: bool
    by_case: str | None


def main(seed: int, only: str | None) -> int:
    """Plant each mutant; return 1 unless all are caught."""
    chosen = [mutant for mutant in MUTANTS if only in {None, mutant.name}]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants") as name:
        folder = Path(name)
        answers = folder / "answers.jsonl"
        count = _ask(seed, answers)
        disputed = _run(ROOT / "src", answers, stop_early=False)
        print(f"{count} cases answered by the oracle; {len(disputed)} differ without any mutant and are not used", flush=True)
        _leave_out(answers, set(disputed))
        verdicts = []
        for mutant in chosen:
            caught = _run(plant(mutant, folder), answers, stop_early=True)
            verdicts.append(Verdict(mutant.name, bool(caught), caught[0] if caught else None))
            print(f"  {'caught' if caught else 'MISSED'}: {mutant.name}" + (f" (by {caught[0]})" if caught else ""), flush=True)
    _report(seed, verdicts, round(time.monotonic() - begun, 1))
    missed = [verdict.name for verdict in verdicts if not verdict.caught]
    print(f"{len(verdicts)} planted, {len(verdicts) - len(missed)} caught")
    return 1 if missed or not verdicts else 0


def _ask(seed: int, answers: Path) -> int:
    """Write every case with the oracle's answer."""
    cases = [*regressions(), *generator.generate(seed, GENERATED)]
    with Oracle() as oracle, answers.open("w", encoding="utf-8") as file:
        for case, answer in zip(cases, oracle.ask_all(cases), strict=True):
            file.write(json.dumps({"case": to_json(case), "answer": answer}) + "\n")
    return len(cases)


def _leave_out(answers: Path, disputed: set[str]) -> None:
    kept = [line for line in answers.read_text(encoding="utf-8").splitlines() if json.loads(line)["answer"]["id"] not in disputed]
    answers.write_text("\n".join(kept) + "\n", encoding="utf-8")


def plant(mutant: Mutant, folder: Path) -> Path:
    """A copy of src/ with the mutant in it."""
    copy = folder / "src"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    module = copy / "penstock" / mutant.module
    text = module.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise MutantError(
            f"{mutant.name!r}: its text occurs {text.count(mutant.old)} times in {mutant.module}, not once: update the mutant"
        )
    module.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    return copy


def _run(source: Path, answers: Path, *, stop_early: bool) -> list[str]:
    """The cases that differ with the Penstock in `source`."""
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        sys.executable,
        "-m",
        "verification.conformance.replay",
        str(source),
        str(answers),
        *(["--stop"] if stop_early else []),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise MutantError(f"the replay failed:\n{done.stderr}")
    found: list[str] = json.loads(done.stdout)
    return found


def _report(seed: int, verdicts: list[Verdict], seconds: float) -> None:
    report = {
        "seed": seed,
        "planted": len(verdicts),
        "caught": sum(verdict.caught for verdict in verdicts),
        "mutants": [vars(verdict) for verdict in verdicts],
        "seconds": seconds,
    }
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
