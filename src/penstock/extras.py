"""What other packages bring: optional dependencies, and objects by entry points."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from penstock.errors import ConfigError, TopologyError
from penstock.version import DISTRIBUTION


def extra(name: str, module: str, who: str = "This serde") -> Any:
    """Return a module of an extra; raise if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise TopologyError(
            f"{who} needs the module {module!r}. Install it with: pip install '{DISTRIBUTION}[{name}]'."
        ) from None


def provided(group: str, name: str, setting: str) -> Any:
    """Return the object of an installed entry point, which a setting names; raise if there is none, or it cannot be loaded."""
    found = {point.name: point for point in entry_points(group=group)}
    if name not in found:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigError(f"{setting}: there is no entry point {name!r} of group {group!r}. Installed: {known}.")
    try:
        return found[name].load()
    except Exception as error:
        raise ConfigError(f"{setting}: cannot load {name!r}: {type(error).__name__}: {error}") from error
