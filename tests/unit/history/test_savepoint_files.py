"""The files of a savepoint are read as they were written, or not at all."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.errors import StateError
from penstock.history.copying import batches_of
from penstock.history.savepoint_files import MANIFEST, Manifest, SavedOffset, SavedTopic, SavepointDirectory
from penstock.kafka.commit import CommitMetadata
from penstock.kafka.records import TopicRecord
from penstock.topology.plan import TopologyFacts

COMMIT = CommitMetadata(epoch=7, incarnation="a1", fingerprint="f", lanes=2, shards=4, high_time=99, topic_id="t")
RECORDS = [
    TopicRecord("app-counts-changelog", 3, 0, b"k", b"1", 10, ()),
    TopicRecord("app-counts-changelog", 3, 2, b"k", None, 20, (("h", b"x"), ("n", None))),
]
PAGE = Path(__file__).parents[3] / "docs" / "evolution.md"


@pytest.fixture
def saved(tmp_path: Path) -> SavepointDirectory:
    directory = SavepointDirectory(tmp_path / "backups" / "savepoint")
    directory.create()
    file = directory.write("store.counts", 3, batches_of(RECORDS))
    assert file is not None
    assert directory.write("store.counts", 0, batches_of([])) is None
    directory.complete(
        Manifest(
            savepoint_id="s1",
            created="2026-01-31T12:00:00+00:00",
            penstock="1",
            application_id="app",
            cluster_id="c",
            epoch=7,
            shards=4,
            topology=TopologyFacts("f", {"counts": {"kind": "timestamped"}}, ["in"]),
            offsets=[SavedOffset("in", 0, 5, COMMIT)],
            stores={"counts": SavedTopic({"cleanup.policy": "compact"}, [file])},
            registers=SavedTopic({}, []),
        )
    )
    return directory


def test_everything_is_read_as_it_was_written(saved: SavepointDirectory) -> None:
    manifest = saved.read()
    assert manifest.offsets == [SavedOffset("in", 0, 5, COMMIT)]
    [file] = manifest.files
    assert (file.path, file.partition, file.rows) == ("store.counts.3.arrow", 3, 2)
    rows = [row for batch in saved.rows(file) for row in batch.to_pylist()]
    assert rows == [
        {"key": b"k", "value": b"1", "timestamp": 10, "headers": None},
        {"key": b"k", "value": None, "timestamp": 20, "headers": [{"name": "h", "value": b"x"}, {"name": "n", "value": None}]},
    ]


def test_only_the_user_can_read_it(saved: SavepointDirectory) -> None:
    assert saved.path.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in saved.path.iterdir()} == {0o600}


def test_the_example_of_the_documentation_reads_it(saved: SavepointDirectory) -> None:
    [block] = [block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "open_stream" in block]
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    assert names["content"](saved.path, "counts") == {}  # its last row is a deletion
    assert names["offsets"](saved.path) == {("in", 0): 5}


def test_a_directory_with_content_is_not_overwritten(saved: SavepointDirectory) -> None:
    with pytest.raises(StateError, match="is not empty"):
        saved.create()


def test_a_savepoint_without_a_manifest_is_not_one(saved: SavepointDirectory) -> None:
    (saved.path / MANIFEST).unlink()
    with pytest.raises(StateError, match="was not completed"):
        saved.read()


def _flip(directory: Path) -> None:
    path = directory / "store.counts.3.arrow"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cut(directory: Path) -> None:
    path = directory / "store.counts.3.arrow"
    path.write_bytes(path.read_bytes()[:-1])


def _remove(directory: Path) -> None:
    (directory / "store.counts.3.arrow").unlink()


def _link(directory: Path) -> None:
    path = directory / "store.counts.3.arrow"
    path.rename(directory / "elsewhere")
    path.symlink_to(directory / "elsewhere")


@pytest.mark.parametrize(
    ("damage", "why"),
    [(_flip, "is damaged"), (_cut, "is damaged"), (_remove, "has no file"), (_link, "has no file")],
    ids=["flipped", "cut", "removed", "linked"],
)
def test_damage_is_found_before_anything_is_restored(saved: SavepointDirectory, damage: Callable[[Path], None], why: str) -> None:
    damage(saved.path)
    with pytest.raises(StateError, match=why):
        saved.read()


@pytest.mark.parametrize(
    ("field", "value"),
    [("format", "other"), ("version", 2), ("shards", "many"), ("topology", None)],
)
def test_a_manifest_of_another_kind_is_refused(saved: SavepointDirectory, field: str, value: object) -> None:
    path = saved.path / MANIFEST
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))
    with pytest.raises(StateError, match="This version cannot read"):
        saved.read()


def test_no_file_outside_of_the_directory_is_read(saved: SavepointDirectory) -> None:
    path = saved.path / MANIFEST
    (saved.path / "store.counts.3.arrow").rename(saved.path.parent / "outside.arrow")
    path.write_text(path.read_text().replace("store.counts.3.arrow", "../outside.arrow"))
    with pytest.raises(StateError, match="has no file"):
        saved.read()


def test_rows_of_another_form_are_refused(saved: SavepointDirectory) -> None:
    [file] = saved.read().files
    with pa.OSFile(str(saved.path / file.path), "wb") as opened, pa.ipc.new_stream(opened, pa.schema([("key", pa.string())])):
        pass
    with pytest.raises(StateError, match="has other columns"):
        list(saved.rows(file))
