"""What an executor of a cluster forks its Python workers from (`python -m penstock.spark.daemon`).

It has imported what tasks need, so that a worker begins at once: after an executor was lost, all of the new one's workers start
at the same time, and importing takes longer than anything else they do. Nothing that is imported here may start a thread, except
NumPy's OpenBLAS and pyarrow's jemalloc, which take care of forks themselves.
"""

from __future__ import annotations

import gc
from importlib import import_module

from pyspark.daemon import manager

PRELOADED = ("pyspark.worker", "penstock.spark.tasks", "penstock.spark.restore", "penstock.spark.writing")

if __name__ == "__main__":
    for module in PRELOADED:
        import_module(module)
    gc.freeze()  # what was imported is never collected, nor copied to workers by a collection
    manager()
