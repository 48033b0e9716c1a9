"""The components of a release in CycloneDX's form: the packages that it needs, as they are locked. The wheel bundles none.

`python -m tools.components DIRECTORY` writes `penstock_streams-VERSION.cdx.json` there. The same lock gives the same bytes.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.project import FILES, ROOT, metadata, version

LOCK = ROOT / "requirements.lock"
NAME = str(metadata().name)


class Locked(NamedTuple):
    """A package of the lock."""

    version: str
    hashes: tuple[str, ...]


def locked(text: str) -> dict[str, Locked]:
    """Return the packages of a lock by name."""
    found: dict[str, Locked] = {}
    for entry in text.replace("\\\n", " ").splitlines():
        named = re.match(r"([A-Za-z0-9][\w.-]*)==([\w.!+]+)", entry)
        if named is not None:
            hashes = tuple(sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", entry)))
            found[canonicalize_name(named.group(1))] = Locked(named.group(2), hashes)
    return found


def runtime_dependencies(name: str, extras: frozenset[str] = frozenset()) -> dict[str, set[str]]:
    """Return what a package needs at run time, directly or through others: each package with those that it needs itself.

    It follows what is installed here, on this Python and system.
    """
    edges: dict[str, set[str]] = {}
    waiting = [(canonicalize_name(name), extras)]
    while waiting:
        package, wanted = waiting.pop()
        needed = list(_needed(package, wanted))
        new = {canonicalize_name(each.name) for each in needed} - edges.get(package, set())
        edges.setdefault(package, set()).update(new)
        waiting += [
            (canonicalize_name(each.name), frozenset(each.extras))
            for each in needed
            if canonicalize_name(each.name) in new or each.extras
        ]
    return edges


def _needed(package: str, extras: frozenset[str]) -> Iterator[Requirement]:
    try:
        given = metadata().dependencies if package == NAME else requires(package) or []
    except PackageNotFoundError:
        return
    for text in given:
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def components() -> dict[str, Any]:
    """Return the list of components."""
    lock, edges = locked(LOCK.read_text(encoding="utf-8")), runtime_dependencies(NAME)
    refs = {name: f"pkg:pypi/{name}@{version() if name == NAME else lock[name].version}" for name in edges}
    own = {"type": "library", "bom-ref": refs[NAME], "name": NAME, "version": version(), "purl": refs[NAME]}
    packages = [_component(name, lock[name], refs[name]) for name in sorted(refs.keys() - {NAME})]
    needed = [{"ref": refs[name], "dependsOn": sorted(refs[each] for each in edges[name])} for name in sorted(refs)]
    content = json.dumps([own, packages, needed], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": own},
        "components": packages,
        "dependencies": needed,
    }


def _component(name: str, package: Locked, ref: str) -> dict[str, Any]:
    # A lock has the hash of every file of a package, for each system one: CycloneDX has a place for each.
    files = [{"type": "distribution", "url": ref, "hashes": [{"alg": "SHA-256", "content": digest}]} for digest in package.hashes]
    what = {"type": "library", "bom-ref": ref, "name": name, "version": package.version, "purl": ref}
    return {**what, "externalReferences": files}


def main(directory: str) -> None:
    """Write the list into a directory."""
    path = Path(directory) / f"{FILES}-{version()}.cdx.json"
    path.write_text(json.dumps(components(), indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
