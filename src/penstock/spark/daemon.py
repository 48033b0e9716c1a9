"""What an executor forks its Python workers from (`python -m penstock.spark.daemon`).

It has imported what slots need, so that a worker begins at once: at the start, and after an executor was lost, all of its workers
start at the same time, and importing takes longer than anything else they do. Nothing that is imported here may start a thread,
except NumPy's OpenBLAS and pyarrow's jemalloc, which take care of forks themselves.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark.daemon import manager

from penstock.deferred_pandas import defer_pandas

PRELOADED = ("pyspark.worker", "penstock.spark.lane_task", "penstock.spark.tasks")

if __name__ == "__main__":
    defer_pandas()
    for module in PRELOADED:
        import_module(module)
    gc.freeze()  # what was imported is never collected, nor copied to workers by a collection
    manager()
