"""`Backfill` and `Contents`: what is read with Spark, and written to a topic that the topology reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Made = tuple[Any, Any, "int | datetime"]
"""Key, value and event time of a record; the time is a datetime, or milliseconds."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """What is loaded into `topic`, once: a record for each row of the DataFrame that `read(session)` returns.

    `order_by` are columns that identify a row, and give rows an order that is the same whenever they are read.
    """

    topic: str
    read: Callable[[Any], Any]
    record: Callable[[Mapping[str, Any]], Made]
    order_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """What a global table has: an entry for each row of the DataFrame that `read(session)` returns.

    `entry` returns the key and the value of a row. The rows are read at every start, and again every `refresh_ms`, if given.
    """

    read: Callable[[Any], Any]
    entry: Callable[[Mapping[str, Any]], tuple[Any, Any]]
    refresh_ms: int | None
