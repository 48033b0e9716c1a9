"""Which processes run an application's functions, and whether each is a Python worker that an executor of Spark has forked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

DAEMON = "penstock.spark.daemon"
EXECUTOR, DRIVER = "org.apache.spark.executor.CoarseGrainedExecutorBackend", "org.apache.spark.deploy.SparkSubmit"
"""The classes of JVMs that have executors: those of a cluster, and the driver's own on one machine."""


def noted(directory: Path) -> dict[str, set[int]]:
    """The processes by the stage whose functions they have run."""
    found: dict[str, set[int]] = {}
    for path in directory.glob("*-[0-9]*"):
        stage, _, process = path.name.rpartition("-")
        found.setdefault(stage, set()).add(int(process))
    return found


def is_task(process: int, *, in_driver: bool = True) -> bool:
    """Whether a process is a Python worker of an executor: forked by its daemon, which the executor's JVM has started.

    On a cluster, no executor is `in_driver`, in the driver's JVM.
    """
    try:
        above = [psutil.Process(process).cmdline(), *map(psutil.Process.cmdline, _above(process))]
    except psutil.Error:
        return False
    commands = [" ".join(command) for command in above]
    executors = (EXECUTOR, DRIVER) if in_driver else (EXECUTOR,)
    has_executor = any(name in command for command in commands[2:] for name in executors)
    return len(commands) > 2 and all(_is_daemon(command) for command in commands[:2]) and has_executor


def host_of(process: int) -> str:
    """The address of the host that a Python worker belongs to, "" if it has ended."""
    try:
        return str(psutil.Process(process).environ().get("SPARK_LOCAL_IP", ""))
    except psutil.Error:
        return ""


def _above(process: int) -> Iterator[psutil.Process]:
    parent = psutil.Process(process).parent()
    while parent is not None:
        yield parent
        parent = parent.parent()


def _is_daemon(command: str) -> bool:
    return f"-m {DAEMON}" in command
