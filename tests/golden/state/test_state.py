"""State of every release is used by this version, and the application continues with the results that the release had."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from penstock.epochs.program import lanes_topic
from penstock.history.past import past
from penstock.history.savepoint_files import SavedTopic, SavepointDirectory
from penstock.state import FORMAT, EngineKind
from penstock.topology.bindings import changelog_topic
from penstock.topology.plan import facts, fingerprint, incompatibilities
from tests.golden.state.keeper import HERE, LANES, Continued, Kafka, kept, release
from tests.golden.state.write import BEFORE, INPUT_ID
from tests.unit.epochs.application import ID, SHARDS, Application, Raw, by_key

RELEASES = sorted(path.stem for path in HERE.glob("*.zip"))
ENGINES = pytest.mark.parametrize("engine", [EngineKind.LMDB, EngineKind.ROCKSDB], ids=lambda kind: kind.value)


@pytest.fixture(params=RELEASES)
def kept_of(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The state of a release, in a directory."""
    return unpacked(request.param, tmp_path)


def unpacked(name: str, directory: Path) -> Path:
    shutil.unpack_archive(HERE / f"{name}.zip", directory / "kept")
    return directory / "kept"


def read_brokers(kept_of: Path) -> Kafka:
    return msgspec.json.decode((kept_of / "kafka.json").read_bytes(), type=Kafka)


def killed(kept_of: Path, directory: Path, engine: EngineKind) -> Application:
    """The application as the release has left it: topics, the last commit, the files of lanes."""
    known = read_brokers(kept_of)
    app = Application(directory / "state", kept, engine)
    app.now_ms = known.now_ms
    app.topics.ids.update(known.ids)
    for place, rows in known.logs.items():
        topic, _, partition = place.rpartition("/")
        app.topics.logs[topic, int(partition)] = list(rows)
    app.past = past({("in", 0): (known.offset, known.commit)}, {"in": INPUT_ID}, SHARDS)
    home = directory / "state" / ID
    shutil.copytree(kept_of / engine.value, home / f"lanes-{LANES}")
    (home / "clean").touch()  # as if the machine had not crashed
    return app


def continues(app: Application, kept_of: Path) -> None:
    """Every lane is what the changelogs say, and the next records have the results that they had."""
    app.check()
    expected = msgspec.json.decode((kept_of / "continued.json").read_bytes(), type=Continued)
    app.step([Raw(*record) for record in expected.records])
    assert by_key(app.sent) == by_key(expected.sent)
    assert {topic for topic, *_ in expected.sent} == {"counts", "totals", "final", "visits", "pairs", "reminders"}


def test_there_is_state_of_this_release(tmp_path: Path) -> None:
    assert release() in RELEASES, "run `python -m tests.golden.state.write`"
    found = read_brokers(unpacked(release(), tmp_path))
    assert found.format == FORMAT, "the format has changed before the release: remove its archive, and write it again"


@ENGINES
def test_files_of_lanes_are_rolled_back_and_used_or_rebuilt_if_their_format_is_another(
    kept_of: Path, engine: EngineKind, tmp_path: Path
) -> None:
    app = killed(kept_of, tmp_path, engine)
    found = {lane.found for lane in app.start(LANES)}
    assert found == ({"up to date"} if read_brokers(kept_of).format == FORMAT else {"rebuilt"})
    assert app.position < len(BEFORE), "an epoch was in flight"
    continues(app, kept_of)


def test_other_lanes_are_composed_of_the_files(kept_of: Path, tmp_path: Path) -> None:
    app = killed(kept_of, tmp_path, EngineKind.LMDB)
    assert {lane.found for lane in app.start(LANES + 1)} == {"composed"}
    continues(app, kept_of)


def test_changelogs_are_read_if_the_files_are_lost_and_the_number_of_lanes_is_another(kept_of: Path, tmp_path: Path) -> None:
    app = killed(kept_of, tmp_path, EngineKind.LMDB)
    shutil.rmtree(app.directory / ID)
    assert {lane.found for lane in app.start(LANES + 1)} == {"rebuilt"}
    continues(app, kept_of)


def test_another_store_engine_rebuilds_its_stores(kept_of: Path, tmp_path: Path) -> None:
    app = killed(kept_of, tmp_path, EngineKind.LMDB)
    app.engine = EngineKind.ROCKSDB
    assert {lane.found for lane in app.start(LANES)} == {"rebuilt"}
    continues(app, kept_of)


def test_a_savepoint_is_restored(kept_of: Path, tmp_path: Path) -> None:
    directory = SavepointDirectory(kept_of / "savepoint")
    manifest = directory.read()
    app = Application(tmp_path / "state", kept)

    def write(topic: str, saved: SavedTopic) -> None:
        for file in saved.files:
            rows = [row for batch in directory.rows(file) for row in batch.to_pylist()]
            app.topics.append((topic, file.partition, row["key"], row["value"]) for row in rows)

    for store, saved in manifest.stores.items():
        write(changelog_topic(ID, store), saved)
    write(lanes_topic(ID), manifest.registers)
    [offset] = manifest.offsets
    app.past = past({("in", 0): (offset.offset, offset.commit.encode())}, {"in": INPUT_ID}, manifest.shards, manifest.topology)
    assert {lane.found for lane in app.start(LANES)} == {"rebuilt"}
    continues(app, kept_of)


def test_the_state_is_taken_for_that_of_the_same_topology(kept_of: Path) -> None:
    """A start compares these facts: a layout that is described in other words would be refused."""
    committed = SavepointDirectory(kept_of / "savepoint").read().topology
    assert incompatibilities(committed, facts(kept(), fingerprint(kept()))) == []
    assert committed.fingerprint == fingerprint(kept())
