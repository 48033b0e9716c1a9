"""Which source files of an application have changed since the last look."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_SKIPPED = frozenset({"__pycache__", "node_modules"})
_SUFFIXES = (".py", ".toml")


class SourceFiles:
    """The Python and TOML files below a directory, without hidden directories and virtual environments."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known = self._look()

    def changed(self) -> list[Path]:
        """Return the files that were changed, added or removed since the last call, relative to the directory."""
        before, self._known = self._known, self._look()
        paths = {path for path, _ in before.items() ^ self._known.items()}
        return sorted(path.relative_to(self._directory) for path in paths)

    def _look(self) -> dict[Path, tuple[int, int]]:
        found = {}
        for path in _files(self._directory):
            try:
                about = path.stat()
            except FileNotFoundError:  # removed meanwhile
                continue
            found[path] = (about.st_mtime_ns, about.st_size)
        return found


def source_directory(application: str) -> Path:
    """Return the directory of `file.py:app`; that of a module is the current one."""
    place = application.rpartition(":")[0] if ":" in application else application
    return Path(place).absolute().parent if place.endswith(".py") else Path.cwd()


def _files(directory: Path) -> Iterator[Path]:
    for place, inner, names in os.walk(directory):
        inner[:] = [name for name in inner if _is_walked(Path(place, name))]
        yield from (Path(place, name) for name in names if name.endswith(_SUFFIXES))


def _is_walked(directory: Path) -> bool:
    is_environment = (directory / "pyvenv.cfg").exists()
    return not directory.name.startswith(".") and directory.name not in _SKIPPED and not is_environment
