"""The process that executors fork Python workers from."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from penstock.spark.context import context_settings
from penstock.spark.daemon import PRELOADED

THREADS = """
import sys
from importlib import import_module
from pathlib import Path
for module in sys.argv[1:]:
    import_module(module)
names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
print(sum(name != "jemalloc_bg_thd" for name in names))
"""


@pytest.mark.parametrize("settings", [{"master": "spark://master:7077"}, {"master": "local[2]"}, {}])
def test_python_workers_come_from_it_everywhere(settings: dict[str, str]) -> None:
    assert context_settings(2, settings)["spark.python.daemon.module"] == "penstock.spark.daemon"


@pytest.mark.skipif(sys.platform != "linux", reason="threads are listed in /proc")
def test_nothing_that_it_imports_starts_a_thread() -> None:
    """A lock that a thread holds would stay locked in every worker. OpenBLAS and jemalloc release theirs."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", THREADS, *PRELOADED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "1"
