"""Checks that a release is complete: `python -m tools.release DIRECTORY` reads what `make dist` has built, and changes nothing.

It prints everything that is missing, and exits with 1 if anything is. It publishes nothing.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

from packaging.version import InvalidVersion, Version

from tools.project import FILES, ROOT, version

PACKAGE = "src/penstock"
VERSION = f"{PACKAGE}/version.py"


def problems(directory: Path, root: Path = ROOT) -> list[str]:
    """Return what keeps the content of a directory from being released, each with its cure."""
    number = version(root)
    return [
        *version_problems(number),
        *changelog_problems(number, (root / "CHANGELOG.md").read_text(encoding="utf-8")),
        *tag_problems(number, root),
        *_built(number, directory, root),
    ]


def version_problems(number: str) -> Iterator[str]:
    """Check that the version is one that can be released."""
    try:
        found = Version(number)
    except InvalidVersion:
        yield f"version: {number!r} is not a version by PEP 440. Correct it in {VERSION}."
        return
    if str(found) != number:
        yield f"version: {number!r} is not in its normal form. Write {str(found)!r} in {VERSION}."
    if found.is_devrelease or found.local:
        yield f"version: {number} is one of development. Set the version of the release in {VERSION}."


def changelog_problems(number: str, text: str) -> Iterator[str]:
    """Check that the changelog has a dated section for the version, with something in it, and nothing unreleased."""
    sections = dict(re.findall(r"^## \[([^\]]+)\](.*(?:\n(?!## ).*)*)", text, re.MULTILINE))
    if number not in sections:
        yield f"changelog: CHANGELOG.md has no section [{number}]. Rename [Unreleased], and add the date."
    else:
        title, _, body = sections[number].partition("\n")
        if not re.fullmatch(r" - \d{4}-\d{2}-\d{2}", title):
            yield f"changelog: the title of section [{number}] has no date. Write ## [{number}] - YYYY-MM-DD."
        if "- " not in body:
            yield f"changelog: section [{number}] lists nothing. Say what has changed."
    if "- " in sections.get("Unreleased", "").partition("\n")[2]:
        yield "changelog: section [Unreleased] still lists changes. Move them to the section of the version."


def tag_problems(number: str, root: Path) -> Iterator[str]:
    """Check that the checkout is clean, and tagged with the version."""
    if _git(root, "status", "--porcelain"):
        yield "tag: the checkout has changes that are not committed. Commit or remove them."
    if f"v{number}" not in _git(root, "tag", "--points-at", "HEAD").split():
        yield f"tag: the commit has no tag v{number}. Run: git tag --annotate v{number}"


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True).stdout


def _built(number: str, directory: Path, root: Path) -> Iterator[str]:
    stem = f"{FILES}-{number}"
    wheel, sdist, listing = (directory / f"{stem}{rest}" for rest in ("-py3-none-any.whl", ".tar.gz", ".cdx.json"))
    missing = [path.name for path in (wheel, sdist, listing) if not path.is_file()]
    if missing:
        yield f"files: {directory} has no {', '.join(missing)}. Run: make dist"
        return
    strange = sorted({path.name for path in directory.iterdir()} - {wheel.name, sdist.name, listing.name})
    if strange:
        yield f"files: {directory} also has {', '.join(strange)}, which would be published. Remove them."
    yield from wheel_problems(wheel, number, root)
    yield from sdist_problems(sdist, number, root)
    if json.loads(listing.read_text(encoding="utf-8")).get("bomFormat") != "CycloneDX":
        yield f"files: {listing.name} is not a list of components in CycloneDX's form. Run: make dist"


def wheel_problems(wheel: Path, number: str, root: Path) -> Iterator[str]:
    """Check that the wheel has all files of the package and its license, and no more."""
    info = f"{FILES}-{number}.dist-info"
    wanted = {f"penstock/{path}" for path in _tracked(root)}
    with ZipFile(wheel) as content:
        found = {name for name in content.namelist() if not name.startswith(f"{info}/")}
        own = {name.removeprefix(f"{info}/") for name in content.namelist()} - found
        yield from _differences("wheel", wanted, found)
        needed = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
        yield from (f"wheel: {info} has no {name}. See pyproject.toml." for name in sorted(needed - own))
        if "METADATA" in own:
            said = Parser().parsestr(content.read(f"{info}/METADATA").decode())
            if said["Version"] != number:
                yield f"wheel: its metadata has version {said['Version']}. Run: make dist"


def sdist_problems(sdist: Path, number: str, root: Path) -> Iterator[str]:
    """Check that the sdist has all files of the package, and what a wheel is built with."""
    with tarfile.open(sdist) as content:
        found = {name.removeprefix(f"{FILES}-{number}/") for name in content.getnames()}
    files = {"pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "PKG-INFO"}
    wanted = {f"{PACKAGE}/{path}" for path in _tracked(root)} | files
    cure = "See tool.hatch.build.targets.sdist in pyproject.toml."
    yield from (f"sdist: {name} is missing. {cure}" for name in sorted(wanted - found))


def _tracked(root: Path) -> list[str]:
    """Return the files of the package that git knows, relative to it."""
    return [name.removeprefix(f"{PACKAGE}/") for name in _git(root, "ls-files", "-z", PACKAGE).split("\0") if name]


def _differences(what: str, wanted: set[str], found: set[str]) -> Iterator[str]:
    cure = "Is it ignored by git, or excluded in pyproject.toml?"
    yield from (f"{what}: {name} is missing. {cure}" for name in sorted(wanted - found))
    yield from (f"{what}: {name} is not a file of the package. Remove it." for name in sorted(found - wanted))


def main(directory: str) -> int:
    """Print all problems, and return the exit code."""
    found = problems(Path(directory))
    for problem in found:
        sys.stdout.write(f"{problem}\n")
    sys.stdout.write(f"{len(found)} problems\n" if found else "ready to be released\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
