"""`python -m penstock.spark.archiving`: makes the archive of classes for Spark's JVM.

It starts such a JVM and a lane's kind of job, and lets the JVM write what it has loaded when it ends. On its standard input it is
told which archive; without, it is that of an application with default settings. When the input ends, so does it.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path

from pyspark import SparkContext

from penstock.spark.archive import JVM_SETTINGS, found_at, name_of, place_of, with_option
from penstock.spark.context import arguments_of, open_context

_KEPT = 4
"""How many archives stay: those of earlier versions of Java and Spark go."""

_UNFINISHED = "unfinished-"
_END_S = 120

_NEEDED = 1 << 30
"""The JVM and its Python workers take half of it. Where there is less, the application would pay for them."""

_AUTOGROUP = Path("/proc/self/autogroup")
_AVAILABLE = re.compile(r"^MemAvailable:\s+(\d+) kB$", re.MULTILINE)
_CGROUP = Path("/sys/fs/cgroup")
_MEMORY = (
    (_CGROUP / "memory.max", _CGROUP / "memory.current"),
    (_CGROUP / "memory" / "memory.limit_in_bytes", _CGROUP / "memory" / "memory.usage_in_bytes"),
)


def main() -> None:
    """Make the archive that is asked for, or the one of default settings."""
    asked = sys.stdin.readline()
    if asked:
        threading.Thread(target=_end_with_input, daemon=True).start()
        give_way()
        place, arguments = json.loads(asked)
        if room() >= _NEEDED:
            make(Path(place), arguments)
        return
    arguments = arguments_of({}, has_frames=False)
    default = place_of(arguments)
    if default is not None:
        make(default, {name: arguments[name] for name in JVM_SETTINGS if name in arguments})


def give_way() -> None:
    """Run only on processors that the application leaves idle."""
    os.nice(19)
    with suppress(
        OSError
    ):  # only in some kernels: there, this session has an equal share, whatever the priority of its processes
        _AUTOGROUP.write_text("19")


def room(files: Sequence[tuple[Path, Path]] = _MEMORY, machine: Path = Path("/proc/meminfo")) -> float:
    """Return the bytes that are left on this machine, and in this container: without a limit, as many as one wants."""
    available = _AVAILABLE.search(machine.read_text()) if machine.exists() else None
    found = [] if available is None else [int(available[1]) * 1024]
    for most, now in files:
        text = most.read_text().strip() if most.exists() else ""
        found += [int(text) - int(now.read_text())] if text.isdecimal() else []
    return min(found, default=inf)


def make(place: Path, arguments: Mapping[str, str]) -> None:
    """Make an archive, unless it is there or another process is about to; nobody sees it before it is complete."""
    with (place.parent / "making").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if found_at(place) is not None:
            return
        for rest in place.parent.glob(f"{_UNFINISHED}*"):  # of a process that was killed
            shutil.rmtree(rest, ignore_errors=True)
        with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=place.parent) as directory:
            made = Path(directory) / "classes.jsa"
            run(arguments, made)
            made.replace(name_of(place, made.read_bytes()))
        for old in sorted(place.parent.glob("*.jsa"), key=lambda path: path.stat().st_mtime_ns)[:-_KEPT]:
            old.unlink()


def run(arguments: Mapping[str, str], made: Path) -> None:
    """Run a JVM that archives its classes when it ends: those of a context, and of a job of Python tasks."""
    settings = {"master": "local[2]", **with_option(arguments, f"-XX:ArchiveClassesAtExit={made}")}
    context = open_context("archive", 1, settings, lambda line: None, has_frames=False)
    context.parallelize(range(2), 2).mapPartitions(list).collect()
    context.stop()
    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_S)


def _end_with_input() -> None:
    with suppress(OSError):
        sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
