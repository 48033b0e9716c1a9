"""The wheel as installed by a user, and the errors that mypy and pyright find in it and in programs that use it.

The wheel is installed into a separate environment. Its dependencies are those of the running environment, which has what
`requirements.lock` pins.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tests.types.verdicts import Error

ROOT = Path(__file__).resolve().parents[2]
PYRIGHT = ROOT / ".parts" / "pyright" / "node_modules" / "pyright" / "index.js"
OLDEST_PYTHON = "3.10"
_SETTINGS = {"typeCheckingMode": "strict", "pythonVersion": OLDEST_PYTHON}


class CheckError(Exception):
    """A tool failed, so the result is unknown."""


class Environment:
    """A virtual environment with the wheel, and a directory of programs beside it."""

    def __init__(self, directory: Path, pyright: Path = PYRIGHT) -> None:
        if not pyright.is_file():
            raise CheckError(f"there is no {pyright}: run `make types`, which installs it")
        self._pyright = pyright
        self._home = directory / "environment"
        self._programs = directory / "programs"
        self._cache = directory / "cache"
        self._python = self._home / "bin" / "python"
        venv.create(self._home, with_pip=False)
        self._install(_built(directory / "dist"))

    def put(self, programs: Mapping[str, str]) -> None:
        """Write the programs to check."""
        self._programs.mkdir()
        for name, text in programs.items():
            (self._programs / name).write_text(text, encoding="utf-8")
        (self._programs / "pyrightconfig.json").write_text(json.dumps(_SETTINGS), encoding="utf-8")

    def mypy(self) -> list[Error]:
        """What `mypy --strict` finds in the programs."""
        options = ["--strict", "--config-file=", "--output=json", f"--python-version={OLDEST_PYTHON}"]
        where = [f"--python-executable={self._python}", f"--cache-dir={self._cache}"]
        output = self._run([sys.executable, "-m", "mypy", *options, *where, "."])
        found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        return [Error(each["file"], each["line"], each["code"], each["message"]) for each in found if each["severity"] == "error"]

    def pyright(self) -> list[Error]:
        """What pyright finds in the programs, in its strict mode."""
        found = json.loads(self._run(["node", str(self._pyright), "--outputjson"]))["generalDiagnostics"]
        return [
            Error(Path(each["file"]).name, each["range"]["start"]["line"] + 1, each.get("rule", "syntax"), each["message"])
            for each in found
            if each["severity"] == "error"
        ]

    def completeness(self) -> tuple[float, list[str]]:
        """The percentage of public names with complete types, and the names without."""
        command = ["node", str(self._pyright), "--verifytypes", "penstock", "--ignoreexternal", "--outputjson"]
        report: dict[str, Any] = json.loads(self._run(command))["typeCompleteness"]
        marker = report.get("pyTypedPath")
        if marker is None or not Path(marker).is_relative_to(self._home):
            raise CheckError(f"pyright checked another penstock than the wheel's: {marker}")
        guessed = [each["name"] for each in report["symbols"] if each["isExported"] and not each["isTypeKnown"]]
        return report["completenessScore"] * 100, guessed

    def _install(self, wheel: Path) -> None:
        options = ["--quiet", "--no-deps", "--no-index", "--no-compile", "--disable-pip-version-check"]
        _checked([sys.executable, "-m", "pip", "--python", str(self._python), "install", *options, str(wheel)], cwd=ROOT)
        [packages] = self._home.glob("lib/python*/site-packages")
        (packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")

    def _run(self, command: list[str]) -> str:
        """Return the output of a checker that runs with the variables of an activated environment."""
        variables = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "MYPYPATH", "PYTHONHOME"}}
        variables |= {"VIRTUAL_ENV": str(self._home), "PATH": f"{self._python.parent}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(command, cwd=self._programs, env=variables, capture_output=True, text=True, check=False)
        if done.returncode not in {0, 1}:  # 1: errors were found
            raise CheckError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout


def _built(directory: Path) -> Path:
    """Build a wheel of the checkout, and check that it is marked as typed."""
    _checked([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)], cwd=ROOT)
    [wheel] = directory.glob("*.whl")
    with ZipFile(wheel) as content:
        if "penstock/py.typed" not in content.namelist():
            raise CheckError(f"{wheel.name} has no penstock/py.typed, so type checkers ignore its types")
    return wheel


def _checked(command: list[str], cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CheckError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
