"""Plants bugs in a copy of Penstock, and shows that worlds of a seed that nobody has chosen catch each of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from verification.conformance.mutants import MutantError, plant
from verification.conformance.planted import Mutant
from verification.harness.processes import ROOT
from verification.simulation import session
from verification.simulation.planted import MUTANTS

PATIENCE_S = 600.0


def print_first(seed: int, seconds: float) -> int:
    """Print the first world that is violated, for who has planted a bug."""
    found = session.first_violation(seed, seconds)
    print(json.dumps(None if found is None else [str(found.place), found.scenario, (found.violation or "").strip()[-300:]]))
    return 0


def plant_all(seed: int, only: str | None = None) -> bool:
    """Plant each bug, or one; add the figures to the report, and return whether all are caught."""
    chosen = [mutant for mutant in MUTANTS if only in {None, mutant.name}]
    caught: dict[str, str | None] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        for mutant in chosen:
            began = time.monotonic()
            found = _first(plant(mutant, Path(name)), seed, mutant)
            took = time.monotonic() - began
            caught[mutant.name] = None if found is None else f"{found[0]}, {found[1]}, {took:.0f} s"
            by = f" in {took:.0f} s ({found[0]}, {found[1]})" if found else ""
            print(f"  {'caught' if found else 'MISSED'}: {mutant.name}{by}", flush=True)
    count = sum(by is not None for by in caught.values())
    session.add({"planted": len(caught), "caught": count, "by": caught})
    print(f"{len(caught)} planted, {count} caught")
    return bool(caught) and count == len(caught)


def _first(source: Path, seed: int, mutant: Mutant) -> list[str] | None:
    """Return the first world that is violated with the Penstock in `source`: where it is, its topology, and how."""
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "verification.simulation", "--first", "--seed", str(seed), "--seconds", str(PATIENCE_S)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MutantError(f"{mutant.name!r}: the worlds failed:\n{done.stderr[-3000:]}")
    found: list[str] | None = json.loads(done.stdout.strip().splitlines()[-1])
    return found
