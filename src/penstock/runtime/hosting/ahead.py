"""What takes longest at a start, begun before the start imports anything else: Spark's JVM, or the process that forks slots."""

from __future__ import annotations

from collections.abc import Callable

from penstock.config import Config
from penstock.engines.forked.forking import start_ahead
from penstock.spark.installed import require_pyspark
from penstock.topology import SourceNode, Topology


def begin(config: Config, topology: Topology, heard: Callable[[str], None], *, has_jvm: bool) -> None:
    """Start the process that the engine of the settings needs; with `has_jvm`, also if that is Spark's JVM."""
    if config.engine == "local":
        start_ahead(heard)
    elif has_jvm:
        require_pyspark()
        from penstock.spark.context import start_jvm_ahead  # noqa: PLC0415 - the local engine has no pyspark

        start_jvm_ahead(config.spark, heard, has_frames=reads_frames(topology))


def reads_frames(topology: Topology) -> bool:
    """Whether a source of the topology reads DataFrames."""
    sources = [node for node in topology.nodes.values() if isinstance(node, SourceNode)]
    return any(node.backfill is not None or node.contents is not None for node in sources)
