"""A dead letter's headers: how lanes write them and how letters are read, in one place so that both agree.

Names that start with `__streams.errors.` are Kafka Streams' own. A replayed record has no `errors.` headers any more, but has
headers that start with `__penstock.replay.`.
"""

from __future__ import annotations

from dataclasses import dataclass
from traceback import format_exception

from penstock.errors import text_of
from penstock.handlers import Failure
from penstock.records import Headers, RecordMetadata

EXCEPTION = "__streams.errors.exception"
MESSAGE = "__streams.errors.message"
STACKTRACE = "__streams.errors.stacktrace"
TOPIC = "__streams.errors.topic"
PARTITION = "__streams.errors.partition"
OFFSET = "__streams.errors.offset"
KIND = "__penstock.errors.kind"
NODE = "__penstock.errors.node"
APPLICATION = "__penstock.errors.application"
EPOCH = "__penstock.errors.epoch"
TIME = "__penstock.errors.time"
READ_FROM = "__penstock.errors.read-from"
SIZE_HEADER = "__penstock.errors.size"
"""On a dead letter without its value, because the record was too large: the size of the record."""

REPLAY_LETTER = "__penstock.replay.letter"
REPLAY_ATTEMPT = "__penstock.replay.attempt"
REPLAY_NODE = "__penstock.replay.node"
"""The only node that a replayed record enters; its source's other nodes skip it."""

_OURS = ("__streams.errors.", "__penstock.errors.", "__penstock.replay.")

LONGEST_MESSAGE = 4_096
LONGEST_TRACE = 16_384
"""Limits on what an error adds to a record, so that the letter still fits into its topic."""


def failure_headers(failure: Failure, fatal: Exception, application_id: str, epoch: int, now_ms: int) -> Headers:
    """Return the headers that are added to a failed record; `fatal` is the error that names node, line and record."""
    error = failure.error
    topic, partition, offset = failure.metadata or (None, -1, -1)
    trace = "".join(format_exception(type(fatal), fatal, fatal.__traceback__))
    return (
        (EXCEPTION, _class_name(error).encode()),
        (MESSAGE, _bytes(text_of(error))[:LONGEST_MESSAGE]),
        (STACKTRACE, _bytes(trace)[-LONGEST_TRACE:]),  # the innermost call comes last
        (TOPIC, None if topic is None else topic.encode()),
        (PARTITION, str(partition).encode()),
        (OFFSET, str(offset).encode()),
        (KIND, failure.kind.value.encode()),
        (NODE, failure.node.encode()),
        (APPLICATION, application_id.encode()),
        (EPOCH, str(epoch).encode()),
        (TIME, str(now_ms).encode()),
        (READ_FROM, None if failure.read_from is None else failure.read_from.encode()),
    )


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter: the record in the dead-letter topic, and what its headers say.

    `place` is where the letter itself is. `source` is where the record came from, None if it does not come from a single record.
    `attempt` is how many replays led to this letter. What another writer left out is empty, or -1.
    """

    place: RecordMetadata
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers

    @property
    def error(self) -> str:
        """The class of the error."""
        return self._text(EXCEPTION)

    @property
    def message(self) -> str:
        """The error's message."""
        return self._text(MESSAGE)

    @property
    def stack(self) -> str:
        """The stack trace of the error."""
        return self._text(STACKTRACE)

    @property
    def node(self) -> str:
        """The node that failed."""
        return self._text(NODE)

    @property
    def application(self) -> str:
        """The application that failed on the record."""
        return self._text(APPLICATION)

    @property
    def kind(self) -> str:
        """The kind of failure: a value of `FailureKind`."""
        return self._text(KIND)

    @property
    def epoch(self) -> int:
        """The epoch in which it failed."""
        return self._number(EPOCH)

    @property
    def time_ms(self) -> int:
        """When it failed, by the wall clock; the record's timestamp if the letter does not say."""
        found = self._number(TIME)
        return self.timestamp if found < 0 else found

    @property
    def source(self) -> RecordMetadata | None:
        """Where the record came from."""
        topic, offset = self._text(TOPIC), self._number(OFFSET)
        return RecordMetadata(topic, self._number(PARTITION), offset) if topic and offset >= 0 else None

    @property
    def is_whole(self) -> bool:
        """Whether key, value and headers are those of the record in its source topic.

        After an exchange they are those that the exchange carried, and a record that was held back or too large has none.
        """
        source = self.source
        return source is not None and self._text(READ_FROM) == source.topic and not self._text(SIZE_HEADER)

    @property
    def attempt(self) -> int:
        """How many replays from this topic led to it."""
        return attempts(self.headers, self.place.topic)

    @property
    def record_headers(self) -> Headers:
        """The record's own headers."""
        return _own(self.headers)

    def _text(self, name: str) -> str:
        return _text(self.headers, name)

    def _number(self, name: str) -> int:
        return _number(self.headers, name)


def attempts(headers: Headers, topic: str) -> int:
    """Return how often a record was replayed from a dead-letter topic; replays from other topics do not count."""
    replayed = _text(headers, REPLAY_LETTER).rsplit("-", 2)[0]
    return max(0, _number(headers, REPLAY_ATTEMPT)) if replayed == topic else 0


def replay_headers(letter: Letter, record: Headers, node: str | None) -> Headers:
    """Return the headers of a replayed record; `record` are the record's own."""
    told = (
        (REPLAY_LETTER, "{}-{}-{}".format(*letter.place).encode()),
        (REPLAY_ATTEMPT, str(max(letter.attempt, attempts(record, letter.place.topic)) + 1).encode()),
    )
    return _own(record) + told + (() if node is None else ((REPLAY_NODE, node.encode()),))


def replayed_into(headers: Headers) -> str | None:
    """Return the only node that a record enters; None for an ordinary record."""
    found = next((value or b"" for name, value in headers if name == REPLAY_NODE), None)
    return None if found is None else found.decode("utf-8", "backslashreplace")


def without_replay_node(headers: Headers) -> Headers:
    """Return the headers without the node: once the record has reached it, it is like any other."""
    return tuple(header for header in headers if header[0] != REPLAY_NODE)


def _own(headers: Headers) -> Headers:
    return tuple(header for header in headers if not header[0].startswith(_OURS))


def _last(headers: Headers, name: str) -> bytes:
    """Return the last header of that name: headers that were added come after the record's own."""
    return next((value or b"" for known, value in reversed(headers) if known == name), b"")


def _text(headers: Headers, name: str) -> str:
    return _last(headers, name).decode("utf-8", "backslashreplace")


def _number(headers: Headers, name: str) -> int:
    text = _last(headers, name)
    return int(text) if text.isdigit() and len(text) < 20 else -1


def _class_name(error: Exception) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
