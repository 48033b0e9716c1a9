"""Plants bugs in a copy of Penstock and shows that the epoch oracle catches each of them.

Each mutant runs the cases of a seed in a separate process, from a copy of src/ with one piece of text changed, up to the first
case that differs; cases that differ without any mutant are not used. A mutant whose text does not occur exactly once stops
the run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from verification.conformance.epochs.planted import MUTANTS
from verification.conformance.epochs.report import add
from verification.conformance.epochs.session import verdicts
from verification.conformance.mutants import MutantError, Verdict, plant
from verification.conformance.planted import Mutant
from verification.harness.processes import ROOT

GENERATED = 600
AT_ONCE = 2
TIMEOUT_S = 900


def main(seed: int, only: str | None) -> int:
    """Plant each mutant; return 1 unless all are caught."""
    disputed = [verdict.case for verdict in verdicts(seed, GENERATED) if verdict.found]
    print(f"{len(disputed)} of {GENERATED} cases differ without any mutant and are not used", flush=True)
    return 0 if plant_all(seed, disputed, only) else 1


def plant_all(seed: int, disputed: list[str], only: str | None = None) -> bool:
    """Plant each mutant, or one, and add the figures to the report; return whether all are caught."""
    chosen = [mutant for mutant in MUTANTS if only in {None, mutant.name}]
    with tempfile.TemporaryDirectory(prefix="mutants") as name, ThreadPoolExecutor(AT_ONCE) as threads:
        folder = Path(name)

        def judged(mutant: Mutant) -> Verdict:
            own = folder / str(MUTANTS.index(mutant))
            own.mkdir()
            found = _first(plant(mutant, own), seed, disputed)
            by = "" if found is None else f" (by {found})"
            print(f"  {'MISSED' if found is None else 'caught'}: {mutant.name}{by}", flush=True)
            return Verdict(mutant.name, found is not None, found)

        found = list(threads.map(judged, chosen))
    _report(found)
    print(f"{len(found)} planted, {sum(verdict.caught for verdict in found)} caught")
    return bool(found) and all(verdict.caught for verdict in found)


def _first(source: Path, seed: int, skipped: list[str]) -> str | None:
    """The first case that differs with the Penstock in `source`."""
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    cases = json.dumps({"seed": seed, "count": GENERATED, "skipped": skipped})
    command = [sys.executable, "-m", "verification.conformance.epochs.replay", str(source), cases]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise MutantError(f"the replay failed:\n{done.stderr}")
    found: str | None = json.loads(done.stdout)
    return found


def _report(verdicts: list[Verdict]) -> None:
    caught = sum(verdict.caught for verdict in verdicts)
    add({"mutants": {"planted": len(verdicts), "caught": caught, "by": {one.name: one.by_case for one in verdicts}}})
