"""The announcement of the active instance: a record in the lanes' topic that tells standbys how to watch it.

An instance that may be watched writes it in a transaction of its own, as soon as it has fenced the others. Who can read that
topic can watch the instance, and pretend to be it towards standbys; nothing else follows from the key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import msgspec

from penstock.epochs.program import lanes_topic
from penstock.errors import StateError
from penstock.history.committed import ACTIVE, FACTS_PARTITION
from penstock.history.copying import Copies, one_row
from penstock.kafka.commit import Committer
from penstock.kafka.records import RecordReader
from penstock.kafka.topics import Topics
from penstock.state.remote.channel import KEY_BYTES

Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]
Key = Annotated[bytes, msgspec.Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]


class Announcement(msgspec.Struct, frozen=True):
    """Where the active instance listens for standbys, and the key by which they recognise it.

    `only_on` is the name of its host if it cannot be reached from others, "" if it can.
    """

    incarnation: str
    host: str
    port: Port
    key: Key
    only_on: str = ""
    version: Literal[1] = 1


encode_announcement: Callable[[Announcement], bytes] = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Announcement).decode


def decode_announcement(data: bytes) -> Announcement:
    """Deserialize an announcement."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise StateError(
            f"This version cannot read which instance is active from the lanes' topic ({error}). Stop all instances, and start "
            f"one without standby."
        ) from None


def announce(found: Announcement, application_id: str, committer: Committer) -> None:
    """Commit an announcement; raises `FencedError` if another instance has taken over already."""
    copies = Copies(committer, lambda rows: None)
    copies.add(lanes_topic(application_id), FACTS_PARTITION, one_row(ACTIVE, encode_announcement(found)))
    copies.commit()


class Announcements:
    """Reads who is active; each look reads only what was committed since the one before."""

    def __init__(self, application_id: str, topics: Topics, reader: RecordReader) -> None:
        self._place = (lanes_topic(application_id), FACTS_PARTITION)
        self._topics = topics
        self._reader = reader
        self._read_to = -1
        self._last: Announcement | None = None

    def last(self) -> Announcement | None:
        """Return the last announcement; None if there is none."""
        place = self._place
        if self._read_to < 0 and not self._topics.seen([place[0]]):
            return None
        end = self._topics.end_offsets([place])[place]
        if not 0 <= self._read_to <= end:  # the first look, or the topic was created again
            self._read_to, self._last = self._topics.begin_offsets([place])[place], None
        for record in self._reader.read({place: self._read_to}, {place: end}):
            if record.key == ACTIVE and record.value is not None:
                self._last = decode_announcement(record.value)
        self._read_to = end
        return self._last
