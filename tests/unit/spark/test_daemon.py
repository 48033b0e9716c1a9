"""The process that executors fork Python workers from."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.spark.daemon import PRELOADED
from penstock.spark.session import session_settings

THREADS = """
import sys
from importlib import import_module
from pathlib import Path
for module in sys.argv[1:]:
    import_module(module)
names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
print(sum(name != "jemalloc_bg_thd" for name in names))
"""


def test_executors_of_a_cluster_use_it() -> None:
    cluster = {"master": "spark://master:7077", "spark.authenticate.secret": "known"}
    assert session_settings(2, cluster)["spark.python.daemon.module"] == "penstock.spark.daemon"
    assert "spark.python.daemon.module" not in session_settings(2, {"master": "local[2]"})


@pytest.mark.skipif(sys.platform != "linux", reason="threads are listed in /proc")
def test_nothing_that_it_imports_starts_a_thread() -> None:
    """A lock that a thread holds would stay locked in every worker. OpenBLAS and jemalloc release theirs."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", THREADS, *PRELOADED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "1"
