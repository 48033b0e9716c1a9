"""Copies of lanes in a directory that all hosts reach: a local directory, or a URI of any file system that pyarrow knows.

A copy is the compact file of a lane's store, compressed, and a manifest in JSON, which is written last: without one, there is no
copy. Others may have written or damaged what is there, so nothing of it counts before its size and its checksum are right.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
from pyarrow import fs

from penstock.advance import advanced
from penstock.errors import StateError
from penstock.state.engines.engine import Engine
from penstock.state.epochs import HEAD, MARK_LIFE_MS, META, Mark, decode_head
from penstock.state.files import CHUNK, compact_copy, created, refuse_if_too_large, size_of

_log = logging.getLogger(__name__)

KEPT = 2
"""How many copies of a lane are kept: the newest, and one more for a restore that has begun to read it."""

_COMPRESSION = "zstd"
_DATA, _MANIFEST, _FRESH = ".lmdb.zst", ".json", ".json.new"
_LONGEST_MANIFEST = 1 << 20
_LAYOUT = re.compile(r"([0-9]{1,5})-shards-([0-9]{1,5})-lanes")
_DIGEST_BYTES = 32


class Layout(NamedTuple):
    """How the shards of an application are divided into lanes."""

    shards: int
    lanes: int

    @property
    def name(self) -> str:
        """The name of its directory."""
        return f"{self.shards}-shards-{self.lanes}-lanes"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a copy is of. `size` and `checksum` are those of the store's file, before it was compressed."""

    format: Literal["penstock-lane"] = "penstock-lane"
    version: Literal[1] = 1
    application_id: str
    shards: int
    lanes: int
    lane: int
    epoch: int
    mark: Mark
    created_ms: int
    size: int
    checksum: str

    @property
    def layout(self) -> Layout:
        """The layout that the lane belongs to."""
        return Layout(self.shards, self.lanes)

    @property
    def name(self) -> str:
        """The name of the copy in the directory of its layout."""
        return f"{self.lane:04}-{self.epoch}"


_decode = msgspec.json.Decoder(Manifest).decode


class CopyDirectory:
    """The copies of one application. `uri` is an absolute path or a URI."""

    def __init__(self, uri: str, application_id: str) -> None:
        self._id = application_id
        self._files: Any
        self._files, path = fs.FileSystem.from_uri(uri)
        self._root = f"{path.rstrip('/')}/{application_id}"

    def publish(self, layout: Layout, lane: int, snapshot: Engine, scratch: Path) -> Manifest | None:
        """Copy a lane, and remove its older copies; closes the snapshot. `scratch` is a directory for the file on its way.

        Returns None if nothing was written to the lane yet.
        """
        with ExitStack() as opened:
            with closing(snapshot):  # at once after the copy: it keeps old pages alive
                head = decode_head(snapshot.get(META, HEAD))
                if head.epoch < 0 or head.mark is None:
                    return None
                file = opened.enter_context(compact_copy(snapshot, scratch))
            manifest = Manifest(
                application_id=self._id,
                shards=layout.shards,
                lanes=layout.lanes,
                lane=lane,
                epoch=head.epoch,
                mark=head.mark,
                created_ms=int(time.time() * 1000),
                size=size_of(file),
                checksum="",
            )
            self._prepare(layout)
            self._remove(self._path(manifest, _MANIFEST))  # of the same epoch, before a reset
            digest = blake2b(digest_size=_DIGEST_BYTES)
            with self._files.open_output_stream(self._path(manifest, _DATA), compression=_COMPRESSION) as out:
                while chunk := file.read(CHUNK):
                    digest.update(chunk)
                    out.write(chunk)
        manifest = msgspec.structs.replace(manifest, checksum=digest.hexdigest())
        with self._files.open_output_stream(self._path(manifest, _FRESH), compression=None) as out:
            out.write(msgspec.json.encode(manifest))
        self._files.move(self._path(manifest, _FRESH), self._path(manifest, _MANIFEST))
        self._remove_older(manifest)
        return manifest

    def newest(self, layout: Layout, lane: int) -> list[Manifest]:
        """Return the copies of a lane, the newest first."""
        return sorted(self._manifests(layout, f"{lane:04}-"), key=lambda manifest: -manifest.created_ms)

    def layouts(self) -> list[Layout]:
        """Return the layouts of which there are copies."""
        found = [_LAYOUT.fullmatch(info.base_name) for info in self._listed(self._root)]
        return sorted(Layout(int(match[1]), int(match[2])) for match in found if match is not None)

    def fetch(self, manifest: Manifest, path: Path) -> None:
        """Write the store of a copy to a new file; raises if it is not the one that the manifest describes."""
        refuse_if_too_large(manifest.size, path.parent)
        name, left = self._path(manifest, _DATA), manifest.size
        digest = blake2b(digest_size=_DIGEST_BYTES)
        with created(path) as file, self._files.open_input_stream(name, compression=_COMPRESSION) as data:
            while left >= 0 and (chunk := data.read(min(CHUNK, left + 1))):  # one byte more than there should be
                left -= len(chunk)
                digest.update(chunk)
                file.write(chunk)
                advanced(f"fetching {name}, with {left} bytes left")
        if left or digest.hexdigest() != manifest.checksum:
            raise StateError(f"Copy {name} is damaged: its size or its checksum is not that of its manifest. Remove it.")

    def _manifests(self, layout: Layout, prefix: str = "") -> Iterator[Manifest]:
        """Yield the manifests that can be read, and belong where they are."""
        for info in self._listed(f"{self._root}/{layout.name}"):
            if not info.base_name.startswith(prefix) or not info.base_name.endswith(_MANIFEST):
                continue
            try:
                with self._files.open_input_stream(info.path, compression=None) as file:
                    manifest = _decode(file.read(_LONGEST_MANIFEST))
            except FileNotFoundError:
                continue  # replaced meanwhile
            except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                _log.warning("ignoring a copy of a lane, because %s cannot be read: %s", info.path, error)
                continue
            if (manifest.application_id, manifest.layout, info.base_name) != (self._id, layout, f"{manifest.name}{_MANIFEST}"):
                _log.warning("ignoring a copy of a lane, because %s describes another one", info.path)
                continue
            yield manifest

    def _prepare(self, layout: Layout) -> None:
        """Create the directory; state may be confidential, so that only the user may read it if the directory is local."""
        if isinstance(self._files, fs.LocalFileSystem):
            Path(self._root).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._files.create_dir(f"{self._root}/{layout.name}", recursive=True)

    def _remove_older(self, newest: Manifest) -> None:
        """Remove all but the newest copies of a lane, what uploads that failed have left, and copies too old to be used."""
        others = [each.name for each in self.newest(newest.layout, newest.lane) if each.name != newest.name]
        kept = {newest.name, *others[: KEPT - 1]}  # whatever the clocks of the hosts say that have copied the lane
        for info in self._listed(f"{self._root}/{newest.layout.name}"):
            if info.base_name.startswith(f"{newest.lane:04}-") and info.base_name.partition(".")[0] not in kept:
                self._remove(info.path)
        for layout in self.layouts():
            if layout != newest.layout and not any(self._can_be_used(each, newest) for each in self._manifests(layout)):
                self._files.delete_dir(f"{self._root}/{layout.name}")

    @staticmethod
    def _can_be_used(manifest: Manifest, newest: Manifest) -> bool:
        return manifest.mark.time_ms > newest.created_ms - MARK_LIFE_MS

    def _remove(self, path: str) -> None:
        if self._files.get_file_info(path).type is fs.FileType.File:
            self._files.delete_file(path)

    def _listed(self, path: str) -> Sequence[Any]:
        found: Sequence[Any] = self._files.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return found

    def _path(self, manifest: Manifest, kind: str) -> str:
        return f"{self._root}/{manifest.layout.name}/{manifest.name}{kind}"
