"""The components of a release: all packages that it needs, with the versions and hashes of the lock."""

from __future__ import annotations

import json
from pathlib import Path

from penstock.version import DISTRIBUTION
from tools.components import LOCK, components, locked, main, runtime_dependencies
from tools.project import version


def test_a_lock_is_read_with_all_hashes() -> None:
    one, two = "0" * 64, "1" * 64
    text = f"My_Package==1.2 ; python_version < '3.11' \\\n    --hash=sha256:{two} \\\n    --hash=sha256:{one}\nother==2\n"
    assert locked(text) == {"my-package": ("1.2", (one, two)), "other": ("2", ())}


def test_dependencies_are_followed_to_the_end() -> None:
    found = runtime_dependencies(DISTRIBUTION)
    assert {"pyspark", "lmdb", "typer"} <= found[DISTRIBUTION]
    assert "py4j" in found["pyspark"]
    assert set().union(*found.values()) <= found.keys()
    assert not {"pytest", "ruff", "pip-audit", "fastavro"} & found.keys()  # neither tools nor extras


def test_every_package_has_its_version_and_hashes_from_the_lock() -> None:
    listing, lock = components(), locked(LOCK.read_text())
    packages = [part for part in listing["components"] if part["purl"].startswith("pkg:pypi/")]
    assert {part["name"] for part in packages} == runtime_dependencies(DISTRIBUTION).keys() - {DISTRIBUTION}
    for part in packages:
        assert part["version"] == lock[part["name"]].version
        hashes = {file["hashes"][0]["content"] for file in part["externalReferences"]}
        assert hashes == set(lock[part["name"]].hashes)
        assert hashes


def test_the_graph_is_closed() -> None:
    listing = components()
    known = {part["bom-ref"] for part in listing["components"]} | {listing["metadata"]["component"]["bom-ref"]}
    edges = listing["dependencies"]
    assert {edge["ref"] for edge in edges} <= known
    assert {ref for edge in edges for ref in edge["dependsOn"]} <= known
    assert {edge["ref"] for edge in edges} == known
    assert all(part["purl"].startswith("pkg:pypi/") for part in listing["components"])


def test_the_same_lock_gives_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for _ in range(2):
        main(str(tmp_path))
        texts.append((tmp_path / f"penstock_streams-{version()}.cdx.json").read_bytes())
    assert texts[0] == texts[1]
    assert json.loads(texts[0])["bomFormat"] == "CycloneDX"
