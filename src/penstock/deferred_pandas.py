"""Keeps pyarrow from loading pandas until someone uses pandas.

pandas is installed because pyspark's Arrow functions want it; Penstock does not use it. Still, pyarrow imports it with the first
value that it converts, which costs every process 0.3 s and 50 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import pyarrow as pa


def defer_pandas() -> None:
    """Let pyarrow find no pandas now; it looks again when pandas is imported, or needed for a `to_pandas`."""
    if "pandas" in sys.modules or any(isinstance(finder, _Pandas) for finder in sys.meta_path):
        return
    finder = _Pandas()
    sys.meta_path.insert(0, finder)
    pa.array([0])  # pyarrow looks for pandas once
    finder.is_hidden = False


class _Pandas(MetaPathFinder):
    """Finds pandas, unless it is hidden."""

    def __init__(self) -> None:
        self.is_hidden = True

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "pandas":
            return None
        if self.is_hidden:
            raise ModuleNotFoundError("No module named 'pandas'", name=name)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _AlsoForArrow(spec.loader)
        return spec


class _AlsoForArrow(Loader):
    """Loads pandas, and lets pyarrow know: from now on it must recognise a Series."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _ = pa.lib._pandas_api.pd  # imports pandas and keeps its types
