"""The default size limit of an epoch on this machine, from the memory of Spark's JVM and of the machine."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

SPARK_MEMORY = 1 << 30
"""Spark's default for `spark.driver.memory`."""

PART_OF_SPARK = 8
"""The JVM holds rows several times: as Arrow in direct memory, which is as large as the heap, and as results of tasks."""

PART_OF_MACHINE = 64
"""In Python's workers a record is several times as large as in Arrow; and the machine needs memory for other things."""

LEAST, MOST = 8 << 20, 1 << 30

_UNITS = {"": 1 << 20, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+)\s*([kmgtb]?)b?", re.IGNORECASE)
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def default_epoch_bytes(spark: Mapping[str, str], machine_bytes: int | None = None) -> int:
    """Return the default of `max_epoch_bytes` for these settings of Spark, on this machine or one of `machine_bytes`.

    Example:
        >>> default_epoch_bytes({"spark.driver.memory": "2g"}, machine_bytes=64 << 30) >> 20
        256
        >>> default_epoch_bytes({}, machine_bytes=4 << 30) >> 20
        64
    """
    machine = machine_memory() if machine_bytes is None else machine_bytes
    found = min(_bytes(spark.get("spark.driver.memory", "")) // PART_OF_SPARK, machine // PART_OF_MACHINE)
    return max(LEAST, min(MOST, found))


def machine_memory(limits: tuple[Path, ...] = _LIMITS) -> int:
    """Return the memory of the machine, or the container's limit if that is lower."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in limits:
        text = path.read_text().strip() if path.exists() else ""
        if text.isdecimal():
            found = min(found, int(text))
    return found


def _bytes(text: str) -> int:
    """Parse a size in Spark's notation (`512m`, `2g`); return Spark's default if it is missing or invalid."""
    found = _SIZE.fullmatch(text.strip())
    return int(found[1]) * _UNITS[found[2].lower()] if found else SPARK_MEMORY
