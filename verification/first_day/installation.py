"""What a reader installs: the built wheel, with the versions that are tested, in an environment that knows no checkout."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from penstock.version import DISTRIBUTION
from verification.harness.processes import ROOT, HarnessError

_KEPT = re.compile(
    r"HOME|LANG|LC_\w+|TZ|TMPDIR|JAVA_HOME|PIP_\w+|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|(?:http|https|no|all)_proxy",
    re.IGNORECASE,
)
"""Variables that a reader's machine has, too: where packages come from, and where Java is."""
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?(==[^\s;\\]+)[ \t]*(;[^\\\n]*)?", re.MULTILINE)
_BUILD_S = 300


def build_wheel(directory: Path) -> Path:
    """Build the wheel as `make dist` does, and return it."""
    committed = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)],
        cwd=ROOT,
        env={**os.environ, "SOURCE_DATE_EPOCH": committed.stdout.strip()},
        capture_output=True,
        text=True,
        timeout=_BUILD_S,
        check=False,
    )
    if done.returncode != 0:
        raise HarnessError(f"the wheel cannot be built:\n{done.stdout}{done.stderr}")
    [wheel] = directory.glob("penstock_streams-*.whl")
    return wheel


def constraints(lock: str, wheel: Path) -> str:
    """Return constraints for pip: the locked versions, without hashes, and the built wheel as the only Penstock.

    With hashes, pip would ask for one of the wheel as well, and constraints may not have extras.
    """
    locked = [f"{name}{version} {marker}".strip() for name, version, marker in _LOCKED.findall(lock)]
    return "".join(f"{line.strip()}\n" for line in [*locked, f"{DISTRIBUTION} @ {wheel.as_uri()}"])


def reader_environment(given: Mapping[str, str], programs: Path) -> dict[str, str]:
    """Return the variables of a reader's terminal; `programs` is a directory that comes first in the path.

    Nothing in it leads to the checkout: neither PYTHONPATH nor the environment in which this runs.
    """
    environments = {str(Path(sys.prefix) / "bin"), str(ROOT / ".venv" / "bin")}
    path = [part for part in given.get("PATH", os.defpath).split(os.pathsep) if part and part not in environments]
    kept = {name: value for name, value in given.items() if _KEPT.fullmatch(name)}
    return {**kept, "PATH": os.pathsep.join([str(programs), *path]), "BROWSER": "echo", "PYTHONUNBUFFERED": "1"}


def provide_python(programs: Path) -> None:
    """Let `python` be the interpreter that the checkout's environment was made with."""
    interpreter = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    programs.mkdir(parents=True)
    command = programs / "python"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(str(interpreter))} "$@"\n', encoding="utf-8")
    command.chmod(0o755)
