"""A dry run of a start: what it would do to the committed state and offsets, and every reason to refuse it.

It makes the same requests as `penstock.runtime.start`, and the same checks. Nothing is created, fenced or written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from penstock.config import Config
from penstock.errors import ConfigError, StateError, TopicError, TopologyError
from penstock.handlers import ErrorHandlers
from penstock.history.committed import refuse_lost_changelogs, refuse_state_without_offsets
from penstock.history.shards import looking
from penstock.kafka.clients import open_admin
from penstock.kafka.offsets import refuse_members
from penstock.kafka.topics import InternalTopic, Topic, Topics, check, partitions_of
from penstock.topology import Topology
from penstock.topology.bindings import changelog_topic
from penstock.topology.plan import Changes, Verdict, convertible, renamed_stores, source_changes, store_changes

T = TypeVar("T")


def rehearse(application_id: str, topology: Topology, handlers: ErrorHandlers, config: Config) -> Changes:
    """Return what a start would do."""
    admin = open_admin(config)
    topics = Topics(admin, config.broker_timeout_ms)
    truth = looking(application_id, topology, handlers, config, topics)
    program, committed = truth.program, truth.last_facts
    refusals: list[str] = []

    def attempt(step: Callable[[], T]) -> T | None:
        try:
            return step()
        except (ConfigError, StateError, TopicError, TopologyError) as error:
            refusals.append(str(error))
            return None

    wanted = attempt(lambda: truth.internal_topics) or []
    internal = topics.describe(topic.name for topic in wanted)
    if not config.create_topics:
        attempt(truth.existing_topics)
    sources = topics.describe(truth.read_topics)
    partitions = attempt(lambda: truth.partitions(sources)) or []
    before = truth.last_topics()
    offsets = truth.offsets(partitions_of(topics.seen({*sources, *before}).values()))
    ids = {name: topic.topic_id for name, topic in sources.items()}
    refused_so_far = len(refusals)
    position = attempt(lambda: truth.position(partitions, ids)) if partitions else None
    earlier = None if position is None else position.before
    judged = source_changes(
        {topic: truth.read_topics[topic] for topic in truth.source_of(truth.read_topics if config.create_topics else sources)},
        {topic for (topic, _), found in offsets.items() if found is not None},
        before,
        resumed={} if earlier is None else earlier.resumed,
        added=() if earlier is None else earlier.added,
        lost={} if position is None else {lost.topic: f"{lost}; resumes at offset {lost.goes_on_at}" for lost in position.lost},
    )
    if any(change.verdict is Verdict.REFUSED for change in judged):
        del refusals[refused_so_far:]  # already reported for the source
    elif position is not None:
        own = partitions_of(topic for name, topic in internal.items() if name not in truth.table_topics)
        begins, ends = topics.begin_offsets(own), topics.end_offsets(own)
        if earlier is None:
            attempt(lambda: refuse_state_without_offsets(application_id, truth.rows(begins, ends)))
        elif earlier.has_state:
            attempt(lambda: refuse_lost_changelogs(application_id, committed, topics.identities(internal), wanted, begins))
    attempt(lambda: refuse_members(admin, application_id, config.broker_timeout_ms))
    refused, others = _refused_topics(application_id, wanted, internal, program.logged_stores)
    logged = {store for store in program.logged_stores if changelog_topic(application_id, store) in internal}
    stores = store_changes(
        committed,
        truth.facts,
        refused=refused,
        unlogged=topology.stores.keys() - logged,
        convertible=convertible(topology.stores),
        declared=renamed_stores(topology.stores),
        global_stores=topology.global_stores,
    )
    return Changes(stores, judged, (*refusals, *others))


def _refused_topics(
    application_id: str, topics: list[InternalTopic], internal: Mapping[str, Topic], stores: tuple[str, ...]
) -> tuple[dict[str, str], list[str]]:
    """Return why a start refuses existing changelogs, by store; and why it refuses the lanes' topic."""
    store_of = {changelog_topic(application_id, store): store for store in stores}
    refused: dict[str, str] = {}
    others = []
    for wanted in topics:
        if wanted.name not in internal:
            continue
        try:
            check(wanted, internal[wanted.name])
        except TopicError as error:
            if wanted.name in store_of:
                refused[store_of[wanted.name]] = str(error)
            else:
                others.append(str(error))
    return refused, others
