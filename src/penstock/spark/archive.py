"""The archive of classes from which Spark's JVM starts in half the time: where it is, when it is used, and that it is made.

There is one for each Java, Spark and command line of a JVM, in the user's cache. If there is none, a process of its own makes it
while the application runs (`penstock.spark.archiving`), for the next starts. A JVM that cannot use one starts without;
a JVM with a damaged one crashes, so it is checked before.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

from penstock.spark.java import java_command, record_of

OPTIONS = "spark.driver.defaultJavaOptions"
JVM_SETTINGS = (OPTIONS, "spark.driver.extraJavaOptions", "spark.driver.extraClassPath")
"""What a JVM compares with its archive, or may; one with a heap of 32 GB or more starts without."""

_VARIABLES = (
    *("SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"),
    *("SPARK_CONF_DIR", "SPARK_DIST_CLASSPATH", "HADOOP_CONF_DIR", "YARN_CONF_DIR"),
)
_CHOSEN = ("SharedArchiveFile", "ArchiveClassesAtExit", "AutoCreateSharedArchive", "-Xshare")
"""In a JVM's options: somebody has decided about its archive."""

_QUIET = "-Xlog:cds*=off"
"""A JVM would say on its standard output why it does not use an archive."""

AFTER_S = 20.0
"""How long after its start an application begins to make a missing archive: not while it restores its lanes."""


def place_of(arguments: Mapping[str, str]) -> Path | None:
    """Return the path that the archive of a JVM with such settings begins with; None if it is not to have one, or nowhere to."""
    settings = {name: arguments.get(name, "") for name in JVM_SETTINGS}
    variables = {name: os.environ.get(name, "") for name in _VARIABLES}
    if any(chosen in text for text in (*settings.values(), *variables.values()) for chosen in _CHOSEN):
        return None
    directory, java = _directory(), java_command()
    if directory is None or java is None:
        return None
    jars = Path(_find_spark_home()) / "jars"
    installed = (str(Path(java).resolve()), record_of(java), pyspark.__version__, str(jars), _changed(jars))
    known = json.dumps([installed, settings, variables], sort_keys=True)
    return directory / hashlib.sha256(known.encode()).hexdigest()[:16]


def name_of(place: Path, content: bytes) -> Path:
    """Return the path of an archive at a place: it ends with a checksum."""
    return place.with_name(f"{place.name}-{zlib.crc32(content):08x}.jsa")


def found_at(place: Path) -> Path | None:
    """Return the archive at a place, if it is there, our own, and undamaged."""
    for path in place.parent.glob(f"{place.name}-*.jsa"):
        with suppress(OSError):
            if _is_own(path, stat.S_ISREG) and name_of(place, path.read_bytes()) == path:
                return path
            path.unlink()
    return None


def with_option(arguments: Mapping[str, str], option: str) -> dict[str, str]:
    """Return settings with one more option of the JVM, about its archive."""
    return {**arguments, OPTIONS: f"{arguments.get(OPTIONS, '')} {shlex.quote(option)} {_QUIET}".strip()}


def make_later(place: Path, arguments: Mapping[str, str], after_s: float = AFTER_S) -> None:
    """Make an archive in a while, with low priority, unless this process ends before."""
    timer = threading.Timer(after_s, _make, (place, {name: arguments[name] for name in JVM_SETTINGS if name in arguments}))
    timer.daemon = True
    timer.start()


def _make(place: Path, arguments: Mapping[str, str]) -> None:
    """Start the process that makes it. The process ends with this one: its standard input is closed then."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.spark.archiving"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry or str(Path.cwd()) for entry in sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    with process as making:
        end = partial(os.killpg, making.pid, signal.SIGKILL)  # with its JVM
        atexit.register(end)
        assert making.stdin is not None
        with suppress(BrokenPipeError):
            making.stdin.write(json.dumps([str(place), arguments]).encode() + b"\n")
            making.stdin.flush()
        making.wait()
    atexit.unregister(end)


def _directory() -> Path | None:
    """Return the directory of archives, which only this user can read or write; None if there cannot be one."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    directory = Path(cache).expanduser() / "penstock" / "spark"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # read-only, or there is no home
        return None
    is_usable = directory.is_absolute() and ":" not in str(directory)  # a JVM would take that for two archives
    return directory if is_usable and _is_own(directory, stat.S_ISDIR) else None


def _is_own(path: Path, is_kind: Callable[[int], bool]) -> bool:
    """Whether a path is a file or directory of this user's, no link, and nobody else may write to it."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return is_kind(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _changed(directory: Path) -> int:
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0
