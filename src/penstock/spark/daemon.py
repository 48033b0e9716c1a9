"""What an executor forks its Python workers from (`python -m penstock.spark.daemon`).

It has imported what slots need, so that a worker begins at once: at the start, and after an executor was lost, all of its workers
start at the same time, and importing takes longer than anything else they do. Nothing that is imported here may start a thread,
except NumPy's OpenBLAS and pyarrow's jemalloc, which take care of forks themselves.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from penstock.deferred_pandas import defer_pandas

PRELOADED = ("pyspark.worker", "penstock.spark.lane_task")
_IN_ARCHIVES = ("pyspark", "py4j")


def without_archives(path: Sequence[str]) -> list[str]:
    """Return a module path without the archives of a Spark whose packages are installed on that path as well.

    Spark puts its archives first. Nothing in them is compiled, and each worker would read their contents again: that took five
    times as long as the import of what is installed.
    """
    places = {entry: Path(entry).resolve() for entry in path}
    installed = {place for place in places.values() if all((place / name).is_dir() for name in _IN_ARCHIVES)}
    return [entry for entry in path if not (places[entry].is_file() and installed.intersection(places[entry].parents))]


def main() -> None:
    """Import what workers need, then fork one whenever the executor wants it."""
    sys.path[:] = without_archives(sys.path)
    for entry in set(sys.path_importer_cache).difference(sys.path):
        del sys.path_importer_cache[entry]  # otherwise each worker reads them again
    defer_pandas()
    for module in PRELOADED:
        import_module(module)
    gc.freeze()  # what was imported is never collected, nor copied to workers by a collection
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
