"""The build hook: puts the jars of Spark's Kafka connector into the wheel, and into the sdist so that it can become a wheel.

The wheel also says what is in it: a list of the jars in CycloneDX's form, where PEP 770 wants it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import tempfile
import uuid
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

JARS = ".parts/connector"
SUMS = "tools/connector/jars.sha256"
NAMES = "tools/connector/bring"
BUNDLED = "penstock/spark/jars"


class ConnectorJars(BuildHookInterface[Any]):
    """Bundles the pinned jars, or ends the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the jars and their sums to what is built; an editable install finds them in the checkout instead."""
        if version == "editable":
            return
        root = Path(self.root)
        files = [SUMS, NAMES]
        for line in (root / SUMS).read_text().splitlines():
            pinned, name = line.split()
            jar = root / JARS / name
            if not jar.is_file() or hashlib.sha256(jar.read_bytes()).hexdigest() != pinned:
                raise FileNotFoundError(
                    f"{JARS}/{name} is missing or not the jar pinned in {SUMS}. Run `make setup`, then build again."
                )
            files.append(f"{JARS}/{name}")
        into_wheel = self.target_name == "wheel"
        if into_wheel:
            files.remove(NAMES)
            self._sboms = Path(tempfile.mkdtemp(prefix="sboms-"))
            listing = self._sboms / "penstock.cdx.json"
            listing.write_text(json.dumps(bill_of_materials(root, self.metadata.version), indent=2) + "\n")
            build_data["sbom_files"].append(str(listing))
        for file in files:
            build_data["force_include"][str(root / file)] = f"{BUNDLED}/{Path(file).name}" if into_wheel else file

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what was made for the build only."""
        if self.target_name == "wheel" and version != "editable":
            shutil.rmtree(self._sboms)


def bill_of_materials(root: Path, version: str) -> dict[str, Any]:
    """What the wheel bundles, in CycloneDX's form; the same for the same jars, whenever it is made."""
    sums = {name: digest for digest, name in (line.split() for line in (root / SUMS).read_text().splitlines())}
    known = re.findall(r"^  ([\w.-]+):([\w.-]+):([\w.-]+)", (root / NAMES).read_text(), re.MULTILINE)
    jars = {f"{name}-{number}.jar": (group, name, number) for group, name, number in known}
    components = []
    for jar, digest in sums.items():
        group, name, number = jars[jar]
        purl = f"pkg:maven/{group}/{name}@{number}"
        hashes = [{"alg": "SHA-256", "content": digest}]
        what = {"type": "library", "bom-ref": purl, "group": group, "name": name, "version": number, "purl": purl}
        components.append({**what, "hashes": hashes})
    own = {"type": "library", "bom-ref": f"pkg:pypi/penstock@{version}", "name": "penstock", "version": version}
    content = json.dumps([own, components], sort_keys=True)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": {**own, "purl": own["bom-ref"]}},
        "components": components,
        "dependencies": [{"ref": own["bom-ref"], "dependsOn": [component["bom-ref"] for component in components]}],
    }
