"""Optional dependencies: what to install if one is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from penstock.errors import TopologyError


def extra(name: str, module: str, who: str = "This serde") -> Any:
    """Return a module of an extra; raise if it is not installed."""
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise TopologyError(f"{who} needs the module {module!r}. Install it with: pip install 'penstock[{name}]'.") from None
