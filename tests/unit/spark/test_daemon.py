"""The process that executors fork Python workers from."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from penstock.spark.context import context_settings
from penstock.spark.daemon import PRELOADED, without_archives

THREADS = """
import sys
from importlib import import_module
from pathlib import Path
for module in sys.argv[1:]:
    import_module(module)
names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
print(sum(name != "jemalloc_bg_thd" for name in names))
"""

STARTED = """
import json, sys
from types import SimpleNamespace
from penstock.spark import daemon

def manager():
    import pyspark
    print(json.dumps([pyspark.__file__, *(entry for entry in sys.path_importer_cache if "pyspark.zip" in entry)]))

sys.modules["pyspark.daemon"] = SimpleNamespace(manager=manager)
daemon.main()
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


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A directory with packages, Spark's among them, with archives of its own."""
    packages = tmp_path / "packages"
    for name in ("pyspark/python/lib", "pyspark/jars", "py4j"):
        (packages / name).mkdir(parents=True)
    for name in ("python/lib/pyspark.zip", "python/lib/py4j-src.zip", "jars/spark-core.jar"):
        (packages / "pyspark" / name).touch()
    return packages


def archives(packages: Path) -> list[str]:
    return [str(path) for path in sorted((packages / "pyspark").rglob("*")) if path.is_file()]


def test_spark_is_imported_from_where_it_is_installed(installed: Path, tmp_path: Path) -> None:
    others = [str(installed), str(tmp_path / "own.zip"), str(tmp_path), "", "/nowhere/lib.zip"]
    (tmp_path / "own.zip").touch()
    assert without_archives([*archives(installed), *others]) == others


def test_through_a_link_too(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(installed)
    assert without_archives([*archives(tmp_path / "link"), str(installed)]) == [str(installed)]


@pytest.mark.parametrize("missing", ["pyspark", "py4j"])
def test_or_from_its_archives_if_it_is_not(installed: Path, tmp_path: Path, missing: str) -> None:
    """An executor's Spark may be of another version than the one that is installed for Python."""
    (installed / missing).rename(tmp_path / missing)
    path = [*(archives(installed) or archives(tmp_path)), str(installed)]
    assert without_archives(path) == path


def test_no_worker_has_to_read_them() -> None:
    """Spark lets each worker forget what importers know, and those of archives would read them again."""
    [spark] = map(Path, pyspark.__path__)
    path = [*map(str, sorted((spark / "python" / "lib").glob("*.zip"))), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(
        [sys.executable, "-c", STARTED], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(done.stdout) == [str(spark / "__init__.py")]
