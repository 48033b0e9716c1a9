"""Applications of a single test, small enough to start and stop in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def settings_of_a_case(servers: str, directory: Path) -> dict[str, Any]:
    """Two lanes over four shards, with files below `directory`, and no admin server."""
    return {
        "bootstrap_servers": servers,
        "lanes": 2,
        "shards": 4,
        "state_dir": directory / "state",
        "admin_address": "off",
    }
