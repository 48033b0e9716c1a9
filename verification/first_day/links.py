"""Links that lead nowhere: between the pages of the built site, and from any Markdown file of the repository to its files."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from tools.site_check import dead_links
from verification.harness.processes import PARTS, ROOT

_TIMEOUT_S = 300
_CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//|#", re.IGNORECASE)


def all_dead_links(directory: Path) -> list[str]:
    """Build the site into a directory, and return what leads nowhere there or in the repository."""
    site = directory / "site"
    build = [str(PARTS / "site" / "bin" / "mkdocs"), "build", "--strict", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    said = done.stdout + done.stderr
    warnings = [line for line in said.splitlines() if line.startswith(("WARNING", "ERROR"))]
    if done.returncode != 0 and not warnings:
        warnings = [f"the site cannot be built: {said.strip()[-500:]}"]
    listing = subprocess.run(["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [name for name in listing.split("\0") if name]
    return [*warnings, *dead_links(site), *(dead for name in files for dead in dead_in_file(ROOT, name))]


def dead_in_file(root: Path, name: str) -> Iterator[str]:
    """Yield the links of a Markdown file to files that do not exist."""
    for link in _LINK.findall(_CODE.sub("", (root / name).read_text(encoding="utf-8"))):
        target = unquote(link.partition("#")[0])
        if not _ELSEWHERE.match(link) and not ((root / name).parent / target).exists():
            yield f"{name}: the link {link} leads nowhere"
