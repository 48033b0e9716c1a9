"""One key's older versions within a segment, in the bytes that Kafka Streams keeps them in."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

_times = Struct(">qq")
_version = Struct(">qi")


class Version(NamedTuple):
    """One version within a row: its place, how long it was valid, its value or None for a tombstone."""

    place: int
    valid_from: int
    valid_to: int
    value: bytes | None


class Row:
    """Versions of one key, newest first. The newest ends at `next_timestamp`, where something newer or a deletion starts.

    A row is degenerate when it is but a tombstone that is valid from and to the same time: then nothing else was known
    of the key when it was deleted.
    """

    __slots__ = ("next_timestamp", "versions")

    def __init__(self, next_timestamp: int, versions: list[tuple[int, bytes | None]]) -> None:
        self.next_timestamp = next_timestamp
        self.versions = versions

    @property
    def min_timestamp(self) -> int:
        """Where the oldest version starts."""
        return self.versions[-1][0]

    @property
    def is_degenerate(self) -> bool:
        """Whether there is nothing in the row but the mark of a deletion."""
        return self.next_timestamp == self.min_timestamp

    def find(self, timestamp: int) -> Version:
        """The version valid at a time that lies between the oldest's start and the newest's end."""
        valid_to = self.next_timestamp
        for index, (valid_from, value) in enumerate(self.versions):
            if valid_from <= timestamp:
                return Version(index, valid_from, valid_to, value)
            valid_to = valid_from
        raise ValueError(f"{timestamp} is before {self.min_timestamp}")

    def insert(self, index: int, timestamp: int, value: bytes | None) -> None:
        """Add a version before the one at `index`."""
        self.versions.insert(index, (timestamp, value))

    def replace(self, index: int, timestamp: int, value: bytes | None) -> None:
        """Put a version in the place of another."""
        self.versions[index] = (timestamp, value)

    def insert_newest(self, valid_from: int, valid_to: int, value: bytes | None) -> None:
        """Add a version on top; if it does not join the one below, the key was deleted in between."""
        if self.is_degenerate and valid_from == self.next_timestamp:
            self.versions.clear()
        elif not self.is_degenerate and valid_from != self.next_timestamp:
            self.versions.insert(0, (self.next_timestamp, None))
        self.versions.insert(0, (valid_from, value))
        self.next_timestamp = valid_to

    def insert_oldest(self, timestamp: int, value: bytes | None) -> None:
        """Add a version at the bottom; the mark of a deletion gives way to it, since it says where that one ends."""
        if self.is_degenerate:
            self.versions.clear()
        self.versions.append((timestamp, value))

    def encode(self) -> bytes:
        """The row's bytes: next and least timestamp, times and sizes newest first, then the values oldest first."""
        heads = [_version.pack(time, -1 if value is None else len(value)) for time, value in self.versions]
        bodies = [value for _, value in reversed(self.versions) if value is not None]
        return b"".join((_times.pack(self.next_timestamp, self.min_timestamp), *heads, *bodies))


def next_timestamp_of(raw: bytes) -> int:
    """Where the newest version of a row ends, without reading the row."""
    time: int = _times.unpack_from(raw)[0]
    return time


def min_timestamp_of(raw: bytes) -> int:
    """Where the oldest version of a row starts, without reading the row."""
    time: int = _times.unpack_from(raw)[1]
    return time


def decode_row(raw: bytes) -> Row:
    """A row from its bytes."""
    next_timestamp, least = _times.unpack_from(raw)
    versions: list[tuple[int, bytes | None]] = []
    offset, end = _times.size, len(raw)
    while not versions or versions[-1][0] != least:
        time, size = _version.unpack_from(raw, offset)
        offset += _version.size
        if size < 0:
            versions.append((time, None))
        else:
            versions.append((time, raw[end - size : end]))
            end -= size
    return Row(next_timestamp, versions)
