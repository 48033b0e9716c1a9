"""An archive of classes is made by itself, and a JVM starts from it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from verification.harness.processes import wait_until

pytestmark = pytest.mark.jvm

MADE_S = 180
STARTED = """
import sys
from pathlib import Path
from penstock.spark import jvm
from penstock.spark.context import open_context
jvm.make_later = lambda *_: print("to be made")
heard = []
context = open_context("started", 2, {"master": "local[2]"}, heard.append, False)
maps = Path(f"/proc/{context._gateway.proc.pid}/maps")
print("mapped" if sys.argv[1] in maps.read_text() else "not mapped")
context.stop()
"""


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    return tmp_path / "penstock" / "spark"


def started(cache: Path) -> list[str]:
    """What a context that is opened says about its archive; nothing else may be on its standard output."""
    command = [sys.executable, "-c", STARTED, str(cache)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=MADE_S).stdout.splitlines()


@pytest.mark.slow  # two starts of Spark, and the archive takes ten seconds of CPU time
def test_the_second_start_uses_what_the_first_has_made(cache: Path) -> None:
    assert started(cache) == ["to be made", "not mapped"]
    making = [sys.executable, "-m", "penstock.spark.archiving"]
    done = subprocess.run(making, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=MADE_S)
    assert (done.stdout, len(list(cache.glob("*.jsa")))) == ("", 1)
    assert started(cache) == ["mapped"]
    [archive] = cache.glob("*.jsa")
    archive.chmod(0o600)
    os.truncate(archive, archive.stat().st_size // 2)
    assert started(cache) == ["to be made", "not mapped"]
    assert not archive.exists()


def test_making_it_ends_with_the_application(cache: Path) -> None:
    """Nothing of it is left that could be used."""
    application = "import sys, time; from pathlib import Path; from penstock.spark.archive import make_later, place_of; "
    make = "place = place_of({}); make_later(place, {}, 0); time.sleep(100)"
    with subprocess.Popen([sys.executable, "-c", application + make]) as process:
        own = psutil.Process(process.pid)
        wait_until("a JVM makes it", lambda: any(each.name() == "java" for each in own.children(recursive=True)), MADE_S)
        family = own.children(recursive=True)
        process.kill()
    gone, alive = psutil.wait_procs(family, MADE_S)
    assert (len(gone), alive) == (len(family), [])
    assert not list(cache.glob("*.jsa"))
