"""Restores a savepoint: writes the changelogs, offsets and facts of an application that has none.

The first transaction notes in the facts that a restore is under way, and only the last one clears that note: an application that
finds it refuses to start. A restore that was interrupted begins again, with new changelogs.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock import faults
from penstock.config import Config
from penstock.epochs.program import lanes_topic
from penstock.epochs.state_directory import StateDirectory
from penstock.errors import ConfigError, StateError, TopicError
from penstock.history.backfilled import backfill_topic
from penstock.history.committed import FACTS_PARTITION, TOPOLOGY, has_state
from penstock.history.copying import Copies, one_row
from penstock.history.savepoint_files import Manifest, SavedTopic, SavepointDirectory
from penstock.history.truth import committed_facts
from penstock.kafka.changelog import read
from penstock.kafka.clients import consumer_settings, open_admin
from penstock.kafka.commit import Committer, SourceOffset
from penstock.kafka.limits import default_size
from penstock.kafka.offsets import refuse_members
from penstock.kafka.publishers import publisher_of
from penstock.kafka.reset import delete_topics, group_offsets
from penstock.kafka.topics import InternalTopic, Topics, partitions_of
from penstock.topology.bindings import changelog_topic
from penstock.topology.plan import TopologyFacts, encode_facts

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_log = logging.getLogger(__name__)


def restore_savepoint(application_id: str, own: Iterable[InternalTopic], config: Config, path: Path) -> Manifest:
    """Restore a savepoint into an application without state; `own` are the internal topics that the application needs.

    The application gets the savepoint's number of shards.
    """
    directory = SavepointDirectory(path)
    manifest = directory.read()
    if config.shards not in (None, manifest.shards):
        raise ConfigError(
            f"The savepoint has shards={manifest.shards}, but the settings say shards={config.shards}. The number of shards "
            f"cannot change: set shards to {manifest.shards}."
        )
    admin = open_admin(config)
    with StateDirectory(str(config.state_dir), application_id).vacant():
        refuse_members(admin, application_id, config.broker_timeout_ms)
        _Restoration(application_id, config, admin, directory, manifest).run({topic.name: topic for topic in own})
    return manifest


class _Restoration:
    """The requests of one restore."""

    def __init__(
        self, application_id: str, config: Config, admin: AdminClient, directory: SavepointDirectory, manifest: Manifest
    ) -> None:
        self._id = application_id
        self._config = config
        self._admin = admin
        self._topics = Topics(admin, config.broker_timeout_ms)
        self._directory = directory
        self._saved = manifest

    def run(self, own: Mapping[str, InternalTopic]) -> None:
        """Restore everything."""
        self._refuse_other_input()
        changelogs = {changelog_topic(self._id, store): topic for store, topic in self._saved.stores.items()}
        shards, lanes = self._saved.shards, replace(own[lanes_topic(self._id)], partitions=self._saved.shards)
        wanted = [InternalTopic(name, shards, own.get(name, topic).config) for name, topic in changelogs.items()]
        sizes = [topic.config["max.message.bytes"] for topic in wanted if "max.message.bytes" in topic.config]
        limits = [default_size(self._topics.broker_settings()), *map(int, sizes)]
        publisher = publisher_of(self._config, self._id, (), limits)
        publisher.start()  # before anything is read: then an instance that starts in between is found, or finds this one
        with closing(publisher):
            is_begun = self._is_begun([lanes.name, *own, *changelogs])
            copies = Copies(Committer(publisher, self._config.broker_timeout_ms), _after_full)
            self._topics.ensure([lanes], self._config.replication_factor)
            self._begin(copies, lanes.name)
            if is_begun:
                delete_topics(self._admin, self._config, changelogs)
            self._topics.ensure(wanted, self._config.replication_factor)
            for name, topic in changelogs.items():
                self._copy(copies, name, topic)
            self._copy(copies, lanes.name, self._saved.registers)
            names = self._incarnations()
            copies.commit(self._offsets(names))
            faults.point("restoration.offsets")
            ids = self._topics.identities([lanes.name, *changelogs])
            known = self._saved.topology
            self._note(copies, msgspec.structs.replace(known, topic_ids=ids, incarnation=names.get(known.incarnation, "")))

    def _begin(self, copies: Copies, lanes: str) -> None:
        """Commit the note that a restore is under way, with what a start does before it finds that note: backfills."""
        backfills, name = self._saved.backfills, backfill_topic(self._id)
        if backfills is not None:
            self._topics.ensure([InternalTopic(name, 1, backfills.config)], self._config.replication_factor)
            if not self._has_rows([name]):
                self._copy(copies, name, backfills)
        stores = {store: self._saved.topology.stores[store] for store in self._saved.stores}
        self._note(copies, TopologyFacts("", stores, [], restoring=self._saved.savepoint_id))
        faults.point("restoration.begun")

    def _note(self, copies: Copies, facts: TopologyFacts) -> None:
        copies.add(lanes_topic(self._id), FACTS_PARTITION, one_row(TOPOLOGY, encode_facts(facts)))
        copies.commit()

    def _copy(self, copies: Copies, name: str, topic: SavedTopic) -> None:
        for file in topic.files:
            copies.add(name, file.partition, self._directory.rows(file))
        _log.info("restored %s: %d records", name, sum(file.rows for file in topic.files))

    # ---- what is there ------------------------------------------------------------------------------------------------

    def _refuse_other_input(self) -> None:
        """Refuse offsets of topics that are not those of the savepoint."""
        read = self._topics.seen({offset.topic for offset in self._saved.offsets})
        is_other = self._topics.cluster_id() != self._saved.cluster_id
        for offset in self._saved.offsets:
            known, found = offset.commit.topic_id, read.get(offset.topic)
            if is_other or found is None or known not in {None, found.topic_id}:
                raise TopicError(
                    f"Topic {offset.topic!r} is not the one that the application has read: it was deleted and created again, or "
                    f"belongs to another cluster. The offsets of the savepoint mean nothing there: it cannot be restored."
                )

    def _is_begun(self, names: Iterable[str]) -> bool:
        """Whether a restore was interrupted; raise if the application has state."""
        facts = committed_facts(self._id, self._config, self._topics)
        if facts is not None and facts.restoring:
            return True
        if group_offsets(self._admin, self._config, self._id) or self._has_rows(names):
            raise StateError(
                f"{self._id!r} has state, which a restore would mix with that of the savepoint. Run `penstock reset` first, or "
                f"restore under another --application-id."
            )
        return False

    def _has_rows(self, names: Iterable[str]) -> bool:
        places = partitions_of(self._topics.describe(names).values())
        begins, ends = self._topics.begin_offsets(places), self._topics.end_offsets(places)
        return has_state(read(consumer_settings(self._config, self._id), begins, ends, self._config.broker_timeout_ms))

    # ---- what is written ----------------------------------------------------------------------------------------------

    def _incarnations(self) -> dict[str, str]:
        """Return new names for the starts that have committed: files of the old ones, wherever they are, are not of these."""
        return {offset.commit.incarnation: uuid.uuid4().hex for offset in self._saved.offsets}

    def _offsets(self, incarnations: Mapping[str, str]) -> list[SourceOffset]:
        return [
            SourceOffset(
                offset.topic,
                offset.partition,
                offset.offset,
                replace(offset.commit, incarnation=incarnations[offset.commit.incarnation]).encode(),
            )
            for offset in self._saved.offsets
        ]


def _after_full(rows: int) -> None:
    _log.info("restoring: %d records", rows)
    faults.point("restoration.chunk")
