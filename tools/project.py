"""What `pyproject.toml` of this checkout says about the project; an installed one may be older."""

from __future__ import annotations

from pathlib import Path

from hatchling.metadata.core import CoreMetadata, ProjectMetadata
from hatchling.plugin.manager import PluginManager

ROOT = Path(__file__).resolve().parents[1]
FILES = "penstock_streams"
"""What names of wheels and sdists begin with: the name of the distribution, as a name of files."""


def metadata(root: Path = ROOT) -> CoreMetadata:
    """Return the project's metadata: name, version, dependencies."""
    return ProjectMetadata(str(root), PluginManager()).core


def version(root: Path = ROOT) -> str:
    """Return the project's version."""
    return str(ProjectMetadata(str(root), PluginManager()).version)
