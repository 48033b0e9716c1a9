"""The files that git tracks or would track, as text."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path, PurePosixPath

from tests.tidy.rules import SourceFile

ROOT = Path(__file__).resolve().parents[2]


@cache
def files() -> tuple[SourceFile, ...]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, text=True)
    found = []
    for name in sorted(filter(None, listed.stdout.split("\0"))):
        path = ROOT / name
        if path.is_file():  # git still lists a file whose deletion is not committed
            try:
                found.append(SourceFile(PurePosixPath(name), path.read_text(encoding="utf-8")))
            except UnicodeDecodeError:
                continue  # not a text file
    return tuple(found)
