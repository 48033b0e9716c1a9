"""One key's older versions within a segment, in Kafka Streams' byte format."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

_times = Struct(">qq")
_version = Struct(">qi")


class Version(NamedTuple):
    """One version within a row: its place, its validity, its value or None for a tombstone."""

    place: int
    valid_from: int
    valid_to: int
    value: bytes | None


class Row:
    """Versions of one key, newest first. The newest ends at `next_timestamp`, where a newer version or a deletion starts.

    A row is degenerate if it is only a tombstone that is valid from and to the same time: the key had no other versions when it
    was deleted.
    """

    __slots__ = ("next_timestamp", "versions")

    def __init__(self, next_timestamp: int, versions: list[tuple[int, bytes | None]]) -> None:
        self.next_timestamp: int = next_timestamp
        self.versions: list[tuple[int, bytes | None]] = versions

    @property
    def min_timestamp(self) -> int:
        """Where the oldest version starts."""
        return self.versions[-1][0]

    @property
    def is_degenerate(self) -> bool:
        """Whether the row is only a tombstone."""
        return self.next_timestamp == self.min_timestamp

    def find(self, timestamp: int) -> Version:
        """Return the version valid at a time, which must be between the oldest's start and the newest's end."""
        valid_to = self.next_timestamp
        for index, (valid_from, value) in enumerate(self.versions):
            if valid_from <= timestamp:
                return Version(index, valid_from, valid_to, value)
            valid_to = valid_from
        raise ValueError(f"Timestamp {timestamp} is before the oldest version at {self.min_timestamp}.")

    def insert(self, index: int, timestamp: int, value: bytes | None) -> None:
        """Add a version before the one at `index`."""
        self.versions.insert(index, (timestamp, value))

    def replace(self, index: int, timestamp: int, value: bytes | None) -> None:
        """Replace a version."""
        self.versions[index] = (timestamp, value)

    def insert_newest(self, valid_from: int, valid_to: int, value: bytes | None) -> None:
        """Add a version as the newest; if it does not start where the previous one ends, the key was deleted in between."""
        if self.is_degenerate and valid_from == self.next_timestamp:
            self.versions.clear()
        elif not self.is_degenerate and valid_from != self.next_timestamp:
            self.versions.insert(0, (self.next_timestamp, None))
        self.versions.insert(0, (valid_from, value))
        self.next_timestamp = valid_to

    def insert_oldest(self, timestamp: int, value: bytes | None) -> None:
        """Add a version as the oldest; it replaces a lone tombstone, whose time is where the version ends."""
        if self.is_degenerate:
            self.versions.clear()
        self.versions.append((timestamp, value))

    def encode(self) -> bytes:
        """Serialize the row: next and minimum timestamp, times and sizes newest first, then the values oldest first."""
        heads = [_version.pack(time, -1 if value is None else len(value)) for time, value in self.versions]
        bodies = [value for _, value in reversed(self.versions) if value is not None]
        return b"".join((_times.pack(self.next_timestamp, self.min_timestamp), *heads, *bodies))


def next_timestamp_of(raw: bytes) -> int:
    """Return where the newest version of a row ends, without decoding the row."""
    time: int = _times.unpack_from(raw)[0]
    return time


def min_timestamp_of(raw: bytes) -> int:
    """Return where the oldest version of a row starts, without decoding the row."""
    time: int = _times.unpack_from(raw)[1]
    return time


def decode_row(raw: bytes) -> Row:
    """Deserialize a row."""
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
