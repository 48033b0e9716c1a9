"""The global tables of an application, over the topics that they are read from, which are watched while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.epochs.global_tables import GlobalTables
from penstock.epochs.program import GlobalTopics
from penstock.kafka.clients import consumer_settings, for_tasks
from penstock.kafka.records import RecordReader, read_records
from penstock.kafka.topics import Topic, Topics
from penstock.records import Partition
from penstock.runtime.input.topic_watch import TopicWatch
from penstock.runtime.instance import Instance


class TableTopics:
    """The topics of global tables, watched as those that epochs read are: see `global_tables.Watch`."""

    def __init__(self, watch: TopicWatch) -> None:
        self._watch = watch

    def added(self) -> Iterable[Partition]:
        """Return the partitions that were added since the last call."""
        while (growth := self._watch.growth()) is not None:
            yield from growth.begins

    def look(self) -> None:
        """Look now."""
        self._watch.look()


def global_tables(
    instance: Instance, topics: Topics, sources: Mapping[str, Topic], closers: list[Callable[[], None]]
) -> GlobalTables:
    """Return the global tables, which follow their topics, as far as these go now; what closes them is added to `closers`."""
    config, program = instance.config, instance.program
    names = [topic for source in program.global_stores.values() for topic in getattr(program.nodes[source], "topics", ())]
    kept_for = [kept_ms for name in names if (kept_ms := sources[name].tombstones_ms) is not None]
    reader = RecordReader(consumer_settings(config, program.application_id), config.broker_timeout_ms)
    known = {name: sources[name] for name in names}
    watch = TopicWatch(known, lambda: topics.seen(known), topics.begin_offsets, cure=_start_again)
    tables = GlobalTables(
        program,
        [(name, number) for name in names for number in range(sources[name].partitions)],
        topics.begin_offsets,
        topics.end_offsets,
        reader.read,
        identity=" ".join([topics.cluster_id(), *(sources[name].topic_id for name in sorted(names))]),
        tombstones_ms=min(kept_for, default=None),
    )
    tables.watch = TableTopics(watch)
    closers += [reader.close, tables.close, watch.stop]
    if names:
        watch.start(f"penstock-{program.application_id}-tables")
    tables.refresh(at_once=True)
    return tables


def topics_of_hosts(instance: Instance, tables: GlobalTables | None) -> GlobalTopics | None:
    """Return what each host of a cluster reads into its global tables: as far as the driver has."""
    if tables is None or not instance.program.global_stores:
        return None
    return tables.topics(for_tasks(instance.config, instance.application_id, read_records))


def _start_again(topic: str) -> str:
    return "Start again: its global table is then read from the topic's beginning"
