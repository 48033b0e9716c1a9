"""The build hook: puts the jars of Spark's Kafka connector into the wheel, and into the sdist so that it can become a wheel."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

JARS = ".parts/connector"
SUMS = "tools/connector/jars.sha256"
BUNDLED = "penstock/spark/jars"


class ConnectorJars(BuildHookInterface[Any]):
    """Bundles the pinned jars, or ends the build."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the jars and their sums to what is built; an editable install finds them in the checkout instead."""
        if version == "editable":
            return
        root = Path(self.root)
        files = [SUMS]
        for line in (root / SUMS).read_text().splitlines():
            pinned, name = line.split()
            jar = root / JARS / name
            if not jar.is_file() or hashlib.sha256(jar.read_bytes()).hexdigest() != pinned:
                raise FileNotFoundError(
                    f"{JARS}/{name} is missing or not the jar pinned in {SUMS}; run `make setup`, then build again"
                )
            files.append(f"{JARS}/{name}")
        into_wheel = self.target_name == "wheel"
        for file in files:
            build_data["force_include"][str(root / file)] = f"{BUNDLED}/{Path(file).name}" if into_wheel else file
