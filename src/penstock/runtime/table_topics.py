"""The global tables of an application, over the topics that they are read from."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from penstock.config import Config
from penstock.epochs.global_tables import GlobalTables
from penstock.epochs.program import Program
from penstock.kafka.clients import consumer_settings
from penstock.kafka.records import RecordReader
from penstock.kafka.topics import Topic, Topics


def global_tables(
    config: Config, program: Program, topics: Topics, sources: Mapping[str, Topic], closers: list[Callable[[], None]]
) -> GlobalTables:
    """Return the global tables; what closes them is added to `closers`."""
    names = [topic for source in program.global_stores.values() for topic in getattr(program.nodes[source], "topics", ())]
    kept_for = [kept_ms for name in names if (kept_ms := sources[name].tombstones_ms) is not None]
    reader = RecordReader(consumer_settings(config, program.application_id), config.broker_timeout_ms)
    tables = GlobalTables(
        program,
        [(name, number) for name in names for number in range(sources[name].partitions)],
        topics.begin_offsets,
        topics.end_offsets,
        reader.read,
        identity=" ".join([topics.cluster_id(), *(sources[name].topic_id for name in sorted(names))]),
        tombstones_ms=min(kept_for, default=None),
    )
    closers += [reader.close, tables.close]
    return tables
