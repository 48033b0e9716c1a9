"""Which processes run an application's functions, and whether each is a Python worker that an executor of Spark has forked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

DAEMON = "penstock.spark.daemon"
EXECUTORS = ("org.apache.spark.deploy.SparkSubmit", "org.apache.spark.executor.CoarseGrainedExecutorBackend")
"""The classes of JVMs that have executors: the driver's own on one machine, and those of a cluster."""


def noted(directory: Path) -> dict[str, set[int]]:
    """The processes by the stage whose functions they have run."""
    found: dict[str, set[int]] = {}
    for path in directory.glob("*-[0-9]*"):
        stage, _, process = path.name.rpartition("-")
        found.setdefault(stage, set()).add(int(process))
    return found


def is_task(process: int) -> bool:
    """Whether a process is a Python worker of an executor: forked by its daemon, which the executor's JVM has started."""
    try:
        above = [psutil.Process(process).cmdline(), *map(psutil.Process.cmdline, _above(process))]
    except psutil.Error:
        return False
    commands = [" ".join(command) for command in above]
    return len(commands) > 2 and all(_is_daemon(command) for command in commands[:2]) and any(map(_has_executor, commands[2:]))


def _above(process: int) -> Iterator[psutil.Process]:
    parent = psutil.Process(process).parent()
    while parent is not None:
        yield parent
        parent = parent.parent()


def _is_daemon(command: str) -> bool:
    return f"-m {DAEMON}" in command


def _has_executor(command: str) -> bool:
    return any(name in command for name in EXECUTORS)
