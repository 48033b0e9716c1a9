"""Takes a savepoint: a copy of what Kafka has committed for an application that does not run.

The application is fenced first, which completes or aborts its last transaction, and again at the end, which shows that no
instance has started meanwhile: so everything in between belongs to the last commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

from penstock.config import Config
from penstock.epochs.program import lanes_topic
from penstock.epochs.standing import LOST_CHANGELOG
from penstock.errors import StateError, TopicError
from penstock.history.backfilled import are_loaded, backfill_topic
from penstock.history.committed import refuse_incomplete_restore, refuse_lost_changelogs
from penstock.history.copying import batches_of
from penstock.history.past import past
from penstock.history.remains import fenced, find_remains
from penstock.history.savepoint_files import Manifest, SavedOffset, SavedTopic, SavepointDirectory
from penstock.history.truth import committed_facts
from penstock.kafka.clients import consumer_settings, open_admin
from penstock.kafka.commit import CommitMetadata
from penstock.kafka.records import RecordReader, TopicRecord
from penstock.kafka.reset import group_offsets
from penstock.kafka.topics import InternalTopic, Topic, Topics, partitions_of
from penstock.records import Partition
from penstock.state import last_registers
from penstock.topology.bindings import changelog_topic
from penstock.topology.plan import UNLOGGED
from penstock.version import __version__

_SETTINGS = (
    "cleanup.policy",
    "delete.retention.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.compaction.lag.ms",
    "retention.ms",
)
"""The settings of a changelog that decide what it accepts and keeps."""


def take_savepoint(application_id: str, config: Config, path: Path) -> Manifest:
    """Write what Kafka has committed for an application to a new directory; raise if the application is running."""
    admin = open_admin(config)
    remains = find_remains(application_id, None, config)
    if remains.lanes is None or not remains.offsets:
        raise StateError(f"{application_id!r} has committed no state: there is nothing to save.")
    directory = SavepointDirectory(path)
    directory.create()
    with fenced(application_id, config, admin, remains) as fence:
        offsets = group_offsets(admin, config, application_id)  # the fence may have completed a transaction
        with closing(RecordReader(consumer_settings(config, application_id), config.broker_timeout_ms)) as reader:
            topics = Topics(admin, config.broker_timeout_ms)
            manifest = _Saving(application_id, config, topics, reader, directory).save(offsets)
        if fence is not None:
            fence.prove()
        directory.complete(manifest)
    return manifest


class _Saving:
    """The requests of one savepoint."""

    def __init__(
        self, application_id: str, config: Config, topics: Topics, reader: RecordReader, directory: SavepointDirectory
    ) -> None:
        self._id = application_id
        self._config = config
        self._topics = topics
        self._reader = reader
        self._directory = directory

    def save(self, offsets: dict[Partition, tuple[int, str]]) -> Manifest:
        """Write all files but the manifest, and return that."""
        saved = [SavedOffset(*place, at, CommitMetadata.decode(text)) for place, (at, text) in sorted(offsets.items())]
        newest = max((found.commit for found in saved), key=lambda found: found.epoch)
        facts = committed_facts(self._id, self._config, self._topics)
        refuse_incomplete_restore(self._id, facts)
        read = self._topics.seen({topic for topic, _ in offsets})
        past(offsets, {name: topic.topic_id for name, topic in read.items()}, newest.shards, facts)  # raises if they disagree
        logged = [] if facts is None else [store for store, layout in facts.stores.items() if UNLOGGED not in layout]
        changelogs = {store: changelog_topic(self._id, store) for store in logged}
        found = self._topics.describe([lanes_topic(self._id), *changelogs.values()])
        own = [InternalTopic(topic.name, topic.partitions, topic.config) for topic in found.values()]
        begins = self._topics.begin_offsets(partitions_of(found.values()))
        refuse_lost_changelogs(self._id, facts, self._topics.identities(found), own, begins)
        assert facts is not None  # else it was refused
        missing = [changelogs[store] for store in logged if store not in facts.gone and changelogs[store] not in found]
        if missing:
            raise TopicError(f"Topics do not exist: {', '.join(missing)}. Their state is lost. {LOST_CHANGELOG}")
        return Manifest(
            savepoint_id=uuid.uuid4().hex,
            created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            penstock=__version__,
            application_id=self._id,
            cluster_id=self._topics.cluster_id(),
            epoch=newest.epoch,
            shards=newest.shards,
            topology=facts,
            offsets=saved,
            stores={store: self._saved(f"store.{store}", found[name]) for store, name in changelogs.items() if name in found},
            registers=self._registers(found[lanes_topic(self._id)]),
            backfills=self._backfills(),
            left_out=sorted(facts.stores.keys() - set(logged) - set(facts.gone)),
        )

    def _saved(self, name: str, topic: Topic) -> SavedTopic:
        """Write all committed records of a topic."""
        files = [self._directory.write(name, number, batches_of(records)) for number, records in self._records(topic)]
        config = {setting: topic.config[setting] for setting in _SETTINGS if setting in topic.config}
        return SavedTopic(config, [file for file in files if file is not None])

    def _registers(self, topic: Topic) -> SavedTopic:
        """Write the last registers of each shard; the topology's facts, which are beside them, are in the manifest."""
        files = []
        for number, records in self._records(topic):
            last: list[TopicRecord] = []
            for record in records:
                if last_registers([record.key or b""], [record.value]) is not None:
                    last = [record]
            files.append(self._directory.write("registers", number, batches_of(last)))
        return SavedTopic({}, [file for file in files if file is not None])

    def _backfills(self) -> SavedTopic | None:
        """Write that backfills are loaded, so that a restored application does not load them again."""
        for topic in self._topics.describe([backfill_topic(self._id)]).values():
            known = ((record.key or b"", record.value) for _, records in self._records(topic) for record in records)
            if not are_loaded(known):
                raise StateError(f"{self._id!r} has not loaded all of its backfills. Start it, and stop it once it is running.")
            return self._saved("backfills", topic)
        return None

    def _records(self, topic: Topic) -> Iterator[tuple[int, Iterator[TopicRecord]]]:
        """Yield each partition of a topic with its committed records."""
        places = partitions_of([topic])
        begins, ends = self._topics.begin_offsets(places), self._topics.end_offsets(places)
        for place in places:
            yield place[1], self._reader.read({place: begins[place]}, {place: ends[place]})
