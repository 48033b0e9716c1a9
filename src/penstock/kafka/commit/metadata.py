"""The metadata committed with each source partition's offset: what a start must know and cannot learn elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from penstock.errors import StateError

MAX_BYTES = 4_096
"""The most that brokers accept by default (`offset.metadata.max.bytes`)."""

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitMetadata:
    """One source partition at the end of an epoch.

    `incarnation` names the start of the application that committed it, `high_time` is the partition's highest event time so far
    (-1: none), `topic_id` changes when the topic is deleted and created again under the same name. `watermark` is the
    partition's, `application_watermark` that of all partitions together (-1: none). `partitions` is how many partitions of the
    topic were committed together, so that a later start can tell a new partition from one whose offset is lost (0: not known).

    Example:
        >>> from penstock.kafka.commit import CommitMetadata
        >>> text = CommitMetadata(
        ...     epoch=7, incarnation="a1", fingerprint="c0ffee", lanes=2, shards=32, high_time=99, topic_id=None
        ... ).encode()
        >>> text
        '{"epoch":7,"incarnation":"a1","fingerprint":"c0ffee","lanes":2,"shards":32,"high_time":99,"topic_id":null,"watermark":-1,"application_watermark":-1,"partitions":0,"version":1}'
        >>> CommitMetadata.decode(text).epoch
        7
    """

    epoch: Count
    incarnation: str
    fingerprint: str
    lanes: Positive
    shards: Positive
    high_time: int
    topic_id: str | None
    watermark: int = -1
    application_watermark: int = -1
    partitions: Count = 0
    version: Literal[1] = 1

    def encode(self) -> str:
        """The metadata as text."""
        data = msgspec.json.encode(self)
        if len(data) > MAX_BYTES:
            raise StateError(f"Commit metadata of {len(data)} bytes exceeds the {MAX_BYTES} bytes that brokers accept.")
        return data.decode()

    @classmethod
    def decode(cls, text: str) -> CommitMetadata:
        """The metadata from its text."""
        try:
            return _decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise StateError(f"This version cannot read the committed metadata {text[:200]!r}: {error}") from None


_decode = msgspec.json.Decoder(CommitMetadata).decode
