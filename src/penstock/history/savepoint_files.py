"""The files of a savepoint: a manifest in JSON, and one Arrow stream of rows per partition of a changelog.

The manifest is written last and has the checksums of all others: a directory without one is not a savepoint. Nothing in these
files is code. See docs/evolution.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa

from penstock.errors import StateError
from penstock.history.copying import ROWS
from penstock.kafka.commit import CommitMetadata
from penstock.state.files import created
from penstock.topology.plan import TopologyFacts

MANIFEST = "manifest.json"
_CHUNK = 1 << 20


class SavedFile(msgspec.Struct, frozen=True):
    """The rows of one partition. `sha256` is of the file's bytes."""

    path: str
    partition: int
    rows: int
    bytes: int
    sha256: str


class SavedTopic(msgspec.Struct, frozen=True):
    """A topic: the settings that decide what it accepts and keeps, and the files of those partitions that are not empty."""

    config: dict[str, str]
    files: list[SavedFile]


class SavedOffset(msgspec.Struct, frozen=True):
    """A committed offset with its metadata."""

    topic: str
    partition: int
    offset: int
    commit: CommitMetadata


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a savepoint is of, and what it consists of.

    `registers` are the last registers of each shard: clocks, and what stores have counted. `left_out` are stores without a
    changelog, whose content is not in Kafka.
    """

    format: Literal["penstock-savepoint"] = "penstock-savepoint"
    version: Literal[1] = 1
    savepoint_id: str
    created: str
    penstock: str
    application_id: str
    cluster_id: str
    epoch: int
    shards: int
    topology: TopologyFacts
    offsets: list[SavedOffset]
    stores: dict[str, SavedTopic]
    registers: SavedTopic
    backfills: SavedTopic | None = None
    left_out: list[str] = []

    @property
    def files(self) -> list[SavedFile]:
        """All files besides the manifest."""
        others = [self.registers] if self.backfills is None else [self.registers, self.backfills]
        return [file for topic in (*self.stores.values(), *others) for file in topic.files]


_decode = msgspec.json.Decoder(Manifest).decode


class SavepointDirectory:
    """A directory that has, or will have, a savepoint."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(self) -> None:
        """Create the directory; raise if it has content. State may be confidential: only the user may read it."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(self.path.iterdir()):
            raise StateError(f"Directory {self.path} is not empty. Use a new one: a savepoint is never overwritten.")

    def write(self, name: str, partition: int, batches: Iterable[pa.RecordBatch]) -> SavedFile | None:
        """Write the rows of a partition; return None if there are none."""
        path, rows, left = self.path / f"{name}.{partition}.arrow", 0, iter(batches)
        first = next(left, None)
        if first is None:
            return None
        with created(path) as file, pa.ipc.new_stream(file, ROWS, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
            for batch in chain([first], left):
                stream.write_batch(batch)
                rows += batch.num_rows
        return SavedFile(path.name, partition, rows, path.stat().st_size, _checksum(path))

    def complete(self, manifest: Manifest) -> None:
        """Write the manifest: from then on, it is a savepoint."""
        fresh = self.path / f"{MANIFEST}.new"
        with created(fresh) as file:
            file.write(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        fresh.replace(self.path / MANIFEST)

    def read(self) -> Manifest:
        """Return the manifest after checking that every file is as it was written."""
        path = self.path / MANIFEST
        if not path.is_file():
            raise StateError(f"Directory {self.path} has no {MANIFEST}: it is not a savepoint, or was not completed.")
        try:
            manifest = _decode(path.read_bytes())
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise StateError(f"This version cannot read {path}: {error}. Use the version that has written it.") from None
        for file in manifest.files:
            self._verify(file)
        return manifest

    def _verify(self, file: SavedFile) -> None:
        path = self.path / file.path
        if Path(file.path).name != file.path or not path.is_file() or path.is_symlink():
            raise StateError(f"Savepoint {self.path} has no file {file.path!r}. Restore the directory from a copy.")
        if path.stat().st_size != file.bytes or _checksum(path) != file.sha256:
            raise StateError(f"File {path} is damaged: its checksum is another one. Restore the directory from a copy.")

    def rows(self, file: SavedFile) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file."""
        with (self.path / file.path).open("rb") as opened, pa.ipc.open_stream(opened) as stream:
            if stream.schema != ROWS:
                raise StateError(f"File {self.path / file.path} has other columns than rows of a savepoint: {stream.schema}.")
            for batch in stream:
                batch.validate(full=True)
                yield batch


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
