"""`python -m tests.golden.state.write` keeps the state of an application as this version writes it, for tests of later ones.

Run it once for a release, when the formats of state will not change any more, and commit the archive. It never overwrites one.
Without Kafka: epochs and lanes are real, topics are lists in memory. An archive has

- `lmdb/`, `rocksdb/`: the files of two lanes. Three epochs are committed; a fourth is written and not committed.
- `kafka.json`: what the brokers had. `continued.json`: the records that come next, and the results.
- `savepoint/`: the committed state, as `penstock savepoint` writes it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from penstock.epochs.program import lanes_topic
from penstock.history.copying import batches_of
from penstock.history.savepoint_files import Manifest, SavedOffset, SavedTopic, SavepointDirectory
from penstock.kafka.commit import CommitMetadata
from penstock.kafka.records import TopicRecord
from penstock.state import FORMAT, EngineKind, last_registers
from penstock.topology.bindings import changelog_topic
from penstock.topology.plan import facts, fingerprint
from penstock.version import __version__
from tests.golden.state.keeper import HERE, LANES, Continued, Kafka, kept, release
from tests.unit.epochs.application import ID, SHARDS, Application, far_future, some_records

BEFORE = some_records(seed=11, count=80)
AFTER = [*some_records(seed=12, count=30, start=2_400), *far_future()]
INPUT_ID = "input-topic-id"
OF_ONE_MACHINE = shutil.ignore_patterns("lock.mdb", "LOCK", "LOG*")


def run(directory: Path, engine: EngineKind) -> Application:
    """An application that was killed in its fourth epoch: lanes have written it, and the transaction was not committed."""
    app = Application(directory, kept, engine)
    for topic in (lanes_topic(ID), *(changelog_topic(ID, store) for store in app.topology.stores)):
        app.topics.ids[topic] = f"id-of-{topic}"  # the same for every engine
    app.start(LANES)
    app.step(BEFORE[:20])
    app.step(BEFORE[20:40])
    app.note_mark()
    app.step(BEFORE[40:60])
    app.run(BEFORE[60:])
    return app


def commit_of(app: Application) -> CommitMetadata:
    """What was committed with the offset of the input."""
    return CommitMetadata(
        epoch=app.epoch,
        incarnation=app.running.incarnation,
        fingerprint=fingerprint(app.topology),
        lanes=LANES,
        shards=SHARDS,
        high_time=app.high_time,
        topic_id=INPUT_ID,
        partitions=1,
    )


def brokers(app: Application) -> Kafka:
    """What the topics in memory have."""
    logs = {f"{topic}/{partition}": rows for (topic, partition), rows in app.topics.logs.items()}
    return Kafka(FORMAT, app.now_ms, dict(app.topics.ids), logs, app.position, commit_of(app).encode())


def save(app: Application, path: Path) -> None:
    """Write the committed state as a savepoint."""
    directory = SavepointDirectory(path)
    directory.create()

    def saved(name: str, topic: str) -> SavedTopic:
        files = [directory.write(name, shard, batches_of(_records(app, topic, shard))) for shard in range(SHARDS)]
        return SavedTopic({"cleanup.policy": "compact"}, [file for file in files if file is not None])

    known = facts(app.topology, fingerprint(app.topology), app.running.incarnation)
    directory.complete(
        Manifest(
            savepoint_id="kept",
            created="2026-01-01T00:00:00+00:00",
            penstock=__version__,
            application_id=ID,
            cluster_id="cluster",
            epoch=app.epoch,
            shards=SHARDS,
            topology=msgspec.structs.replace(known, topic_ids={topic: app.topics.ids[topic] for topic in app.changelogs()}),
            offsets=[SavedOffset("in", 0, app.position, commit_of(app))],
            stores={store: saved(f"store.{store}", changelog_topic(ID, store)) for store in app.running.logged_stores},
            registers=saved("registers", lanes_topic(ID)),
        )
    )


def _records(app: Application, topic: str, shard: int) -> Iterator[TopicRecord]:
    """The records of a changelog's partition; of the registers, the last ones."""
    rows = [(offset, *row) for offset, row in enumerate(app.topics.logs[topic, shard]) if row is not None]
    if topic == lanes_topic(ID):
        rows = [row for row in rows if last_registers([row[1]], [row[2]]) is not None][-1:]
    for offset, key, value in rows:
        yield TopicRecord(topic, shard, offset, key, value, app.now_ms, ())


def main() -> None:
    """Write everything."""
    archive = HERE / f"{release()}.zip"
    if archive.exists():
        sys.exit(f"{archive} exists: state of a release is never written again. Remove it if there was no release yet.")
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "kept"
        for engine in (EngineKind.LMDB, EngineKind.ROCKSDB):
            app = run(Path(scratch) / engine.value, engine)
            shutil.copytree(app.lane_directory(0).parent, target / engine.value, ignore=OF_ONE_MACHINE)
            if engine is EngineKind.LMDB:
                (target / "kafka.json").write_bytes(msgspec.json.encode(brokers(app)))
                save(app, target / "savepoint")
                app.start(LANES)
                app.sent.clear()
                app.step(AFTER)
                (target / "continued.json").write_bytes(
                    msgspec.json.encode(Continued([(*record,) for record in AFTER], app.sent))
                )
        shutil.make_archive(str(archive.with_suffix("")), "zip", target)


if __name__ == "__main__":
    main()
