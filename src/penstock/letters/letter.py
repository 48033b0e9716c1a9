"""A dead letter's headers, written by a lane and read by whoever looks at letters: both sides, so that they stay the same.

Names that begin with `__streams.errors.` are Kafka Streams' own. A record that is replayed carries no `errors.` headers any more,
but those that begin with `__penstock.replay.`.
"""

from __future__ import annotations

from dataclasses import dataclass
from traceback import format_exception

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
"""On a dead letter that had to leave its value behind: how large the record was."""

REPLAY_LETTER = "__penstock.replay.letter"
REPLAY_ATTEMPT = "__penstock.replay.attempt"
REPLAY_NODE = "__penstock.replay.node"
"""The node that a record is to enter, and no other that it could come to from its source."""

_OURS = ("__streams.errors.", "__penstock.errors.", "__penstock.replay.")

LONGEST_MESSAGE = 4_096
LONGEST_TRACE = 16_384
"""Bounds on what an error may add to a record, which has to fit into its topic with it."""


def failure_headers(failure: Failure, fatal: Exception, application_id: str, epoch: int, now_ms: int) -> Headers:
    """What is added to a record that failed; `fatal` is the error that names node, line and record."""
    error = failure.error
    topic, partition, offset = failure.metadata or (None, -1, -1)
    trace = "".join(format_exception(type(fatal), fatal, fatal.__traceback__))
    return (
        (EXCEPTION, _class_name(error).encode()),
        (MESSAGE, _bytes(str(error))[:LONGEST_MESSAGE]),
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
    """A dead letter: the record that lies in the dead-letter topic, and what its headers say.

    `place` is where the letter itself lies. `source` is where the record came from, None if it followed from no single record.
    `attempt` is how many replays have led to this letter. What a foreign writer has left out is empty, or -1.
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
        """What the error said."""
        return self._text(MESSAGE)

    @property
    def stack(self) -> str:
        """Where it was raised."""
        return self._text(STACKTRACE)

    @property
    def node(self) -> str:
        """The node that failed."""
        return self._text(NODE)

    @property
    def application(self) -> str:
        """The application that could not go on with the record."""
        return self._text(APPLICATION)

    @property
    def kind(self) -> str:
        """What could not be done with it: a value of `FailureKind`."""
        return self._text(KIND)

    @property
    def epoch(self) -> int:
        """In which epoch."""
        return self._number(EPOCH)

    @property
    def time_ms(self) -> int:
        """When it failed, by the wall clock; the record's own time where the letter does not say."""
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

        Behind an exchange they are what came through it, and a record that was held back or was too large has none.
        """
        source = self.source
        return source is not None and self._text(READ_FROM) == source.topic and not self._text(SIZE_HEADER)

    @property
    def attempt(self) -> int:
        """How many replays out of this topic have led to it."""
        return attempts(self.headers, self.place.topic)

    @property
    def record_headers(self) -> Headers:
        """The headers of the record itself."""
        return _own(self.headers)

    def _text(self, name: str) -> str:
        return _text(self.headers, name)

    def _number(self, name: str) -> int:
        return _number(self.headers, name)


def attempts(headers: Headers, topic: str) -> int:
    """How many replays out of a dead-letter topic a record has behind it; those out of other topics do not count."""
    replayed = _text(headers, REPLAY_LETTER).rsplit("-", 2)[0]
    return max(0, _number(headers, REPLAY_ATTEMPT)) if replayed == topic else 0


def replay_headers(letter: Letter, record: Headers, node: str | None) -> Headers:
    """The headers that a letter's record is replayed with; `record` are those it has itself."""
    told = (
        (REPLAY_LETTER, "{}-{}-{}".format(*letter.place).encode()),
        (REPLAY_ATTEMPT, str(max(letter.attempt, attempts(record, letter.place.topic)) + 1).encode()),
    )
    return _own(record) + told + (() if node is None else ((REPLAY_NODE, node.encode()),))


def replayed_into(headers: Headers) -> str | None:
    """The node that a record is to enter and no other, None for any ordinary record."""
    found = next((value or b"" for name, value in headers if name == REPLAY_NODE), None)
    return None if found is None else found.decode("utf-8", "backslashreplace")


def without_replay_node(headers: Headers) -> Headers:
    """The headers once the record has come to its node: from there on it is like any other."""
    return tuple(header for header in headers if header[0] != REPLAY_NODE)


def _own(headers: Headers) -> Headers:
    return tuple(header for header in headers if not header[0].startswith(_OURS))


def _last(headers: Headers, name: str) -> bytes:
    """The last header of that name: what was added to a record stands behind what it had."""
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
