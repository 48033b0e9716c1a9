"""The JVM of Spark. It can be started ahead of the context, so that it starts while the driver imports the rest of itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from pyspark import SparkConf
from pyspark.java_gateway import launch_gateway

from penstock.engines.output import LineReader
from penstock.spark.archive import found_at, make_later, place_of, with_option

Heard = Callable[[str], None]

_LAUNCHER = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Options of the JVM that Spark's scripts run first, for a third of a second, to ask for the command of the other."""

_ahead: dict[tuple[Heard, frozenset[tuple[str, str]]], Future[Any]] = {}


def start_ahead(arguments: Mapping[str, str], heard: Heard) -> None:
    """Start a JVM for the next context that needs one like it. If there is none, the JVM ends with the driver."""
    kind = heard, frozenset(arguments.items())
    if kind not in _ahead:
        executor = ThreadPoolExecutor(1, "penstock-jvm")
        _ahead[kind] = executor.submit(_started, arguments, heard)
        executor.shutdown(wait=False)


def gateway_of(arguments: Mapping[str, str], heard: Heard) -> Any:
    """Return the gateway of the JVM that was started ahead, or of a new one; raises if it cannot start."""
    ahead = _ahead.pop((heard, frozenset(arguments.items())), None)
    return _started(arguments, heard) if ahead is None else ahead.result()


def _started(arguments: Mapping[str, str], heard: Heard) -> Any:
    """Start a JVM; pass its standard error, which its workers share, to `heard`."""
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER)
    place = place_of(arguments)
    archive = None if place is None else found_at(place)
    own = arguments if archive is None else with_option(arguments, f"-XX:SharedArchiveFile={archive}")
    conf = SparkConf(loadDefaults=False).setAll(list(own.items()))
    with LineReader(heard) as writing:
        gateway = launch_gateway(conf, {"stderr": writing})  # type: ignore[no-untyped-call]  # pyspark types most, not this
    if place is not None and archive is None:
        make_later(place, arguments)
    return gateway
