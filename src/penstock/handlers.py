"""Error handlers: what is to become of a record that cannot be read, processed or written.

A handler is a value, or a function of the failure that returns one. It only decides; whoever has the record in hand acts on it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from penstock.errors import ConfigError, ProcessingError
from penstock.records import Headers, RecordMetadata, is_name
from penstock.timing import Duration, duration_ms

LONGEST_BACKOFF_MS = 30_000
"""Where a back-off stops doubling, unless it starts longer."""


class FailureKind(Enum):
    """What could not be done with a record."""

    DESERIALIZATION = "deserialization"
    PROCESSING = "processing"
    PRODUCTION = "production"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that failed, as a function that decides about it sees it.

    Key, value, timestamp and headers are those of the record as it was read, whatever has become of it on the way to `node`.
    What a timer or a cache sends on follows from no single record: it has no `metadata`, no key and value, and the stream time
    as its timestamp. What a buffer has held back has its `metadata` only. `read_from` is the topic or the exchange that key and
    value were read from, None if they are not known.
    """

    kind: FailureKind
    error: Exception
    node: str
    metadata: RecordMetadata | None
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    read_from: str | None = None

    @property
    def place(self) -> str:
        """Where the record came from, in words."""
        return "a timer or a cache" if self.metadata is None else "{}-{} at offset {}".format(*self.metadata)


@dataclass(frozen=True, slots=True)
class LogAndFail:
    """See `log_and_fail`."""


@dataclass(frozen=True, slots=True)
class LogAndContinue:
    """See `log_and_continue`."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """See `dead_letter`."""

    topic: str

    def __post_init__(self) -> None:
        if not is_name(self.topic):
            raise ConfigError(f"dead_letter needs the name of a topic, not {self.topic!r}")


@dataclass(frozen=True, slots=True)
class Retry:
    """See `retry`."""

    attempts: int
    backoff_ms: int
    then: ErrorHandler

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.backoff_ms < 0:
            raise ConfigError(
                f"retry needs at least 1 attempt and a back-off of 0 or more: {self.attempts}, {self.backoff_ms} ms"
            )
        if isinstance(self.then, Retry):
            raise ConfigError("what comes after a retry cannot be another one: give the first more attempts")
        _check(self.then, "retry's then=")

    def waits_ms(self) -> list[int]:
        """How long to wait before each attempt."""
        return waits_ms(self.attempts, self.backoff_ms)


def waits_ms(attempts: int, backoff_ms: int) -> list[int]:
    """How long to wait before each of several attempts: twice as long each time, up to a limit."""
    longest = max(backoff_ms, LONGEST_BACKOFF_MS)
    return [min(backoff_ms << attempt, longest) for attempt in range(attempts)]


Outcome = LogAndFail | LogAndContinue | DeadLetter
"""How a failure can end."""

Decision = Outcome | Retry
"""What a function that decides may return."""

ErrorHandler = Decision | Callable[[Failure], Decision]
"""What the application does about failures of one kind."""

DEFAULT: ErrorHandler = LogAndFail()
"""Silence is never the default."""

_KINDS = (FailureKind.DESERIALIZATION, FailureKind.PROCESSING, FailureKind.PRODUCTION)
"""What an application has handlers for; late records are each source's own affair."""


def log_and_fail() -> LogAndFail:
    """End the application with an error that names the node, the user's line and the record; its epoch is not committed."""
    return LogAndFail()


def log_and_continue() -> LogAndContinue:
    """Leave the record out and go on with the next.

    The node that failed sends nothing more on for it; what it had sent on or stored before it failed stays, as in Kafka Streams,
    and so does what it had changed in place. The record is counted as dropped.
    """
    return LogAndContinue()


def dead_letter(topic: str) -> DeadLetter:
    """Go on as with `log_and_continue`, and write the record, as it was read, to a topic.

    It is written in the transaction of its epoch: with the original key, value, timestamp and headers, and with headers that say
    what happened. Those that begin with `__streams.errors.` are Kafka Streams' own: exception, message, stacktrace, topic,
    partition, offset; those that begin with `__penstock.errors.` tell what could not be done (kind), the node, the application,
    the epoch, the time, and which topic or exchange the record was read from.
    """
    return DeadLetter(topic)


def retry(attempts: int = 3, backoff: Duration = "100ms", then: ErrorHandler = DEFAULT) -> Retry:
    """Call the function that failed again, up to `attempts` times, waiting twice as long each time; `then` decides if all fail.

    For processing errors only. What is called again is the function given to a verb (mapper, predicate, aggregator, joiner and
    so on) with the same arguments; what a generator gives is only sent on once it has come to its end. A processor's `process`
    and a transformer's `transform` are called again unless they have already forwarded a record or written to a store: that
    would happen twice, so `then` decides at once. It does so too when a punctuator fails, or a store. An aggregate that is
    changed in place stays changed: change it last, or return a new one.

    The lane waits, and with it the epoch. The test driver does not wait.
    """
    return Retry(attempts, duration_ms(backoff, "backoff"), then)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorHandlers:
    """The handlers of an application, by what failed."""

    deserialization: ErrorHandler = DEFAULT
    processing: ErrorHandler = DEFAULT
    production: ErrorHandler = DEFAULT

    def __post_init__(self) -> None:
        for kind in _KINDS:
            handler = self.of(kind)
            _check(handler, f"{kind.value}_errors=")
            if isinstance(handler, Retry) and kind is not FailureKind.PROCESSING:
                raise ConfigError(f"{kind.value}_errors= cannot be retry(...): the same bytes would give the same error again")

    def of(self, kind: FailureKind) -> ErrorHandler:
        """The handler of one kind of failure."""
        handler: ErrorHandler = getattr(self, kind.value)
        return handler

    def dead_letter_topics(self) -> frozenset[str]:
        """The topics known to be written to, for a check before the start; a function may name others."""
        handlers = [self.of(kind) for kind in _KINDS]
        outcomes = [handler.then if isinstance(handler, Retry) else handler for handler in handlers]
        return frozenset(outcome.topic for outcome in outcomes if isinstance(outcome, DeadLetter))

    @property
    def may_retry(self) -> bool:
        """Whether a function of the topology may have to be called again."""
        return isinstance(self.processing, Retry) or callable(self.processing)


def decide(handler: ErrorHandler, failure: Failure) -> Decision:
    """What the handler says about a failure.

    A function that fails, or returns what is no decision about this kind of failure, ends the application: there is nobody left
    to ask.
    """
    if isinstance(handler, Decision):
        return handler
    about = f"{type(failure.error).__name__}: {failure.error} ({failure.node}, on the record from {failure.place})"
    named = f"the function {_name(handler)} that handles {failure.kind.value} errors"
    try:
        decision = handler(failure)
    except Exception as error:
        raise ProcessingError(f"{named} failed itself: {type(error).__name__}: {error}\n  it was asked about {about}") from error
    may_be = Decision if failure.kind is FailureKind.PROCESSING else Outcome
    if not isinstance(decision, may_be):
        raise ProcessingError(
            f"{named} returned {decision!r}; it must return log_and_fail(), log_and_continue() or dead_letter(...)"
            f"{', or retry(...)' if may_be is Decision else ''}\n  it was asked about {about}"
        ) from failure.error
    return decision


def settle(handler: ErrorHandler, failure: Failure) -> Outcome:
    """What the handler says about a failure when nothing can be tried again."""
    decision = decide(handler, failure)
    if not isinstance(decision, Retry):
        return decision
    after = decide(decision.then, failure)
    if isinstance(after, Retry):
        raise ProcessingError(f"the function {_name(decision.then)} asks for a retry after a retry") from failure.error
    return after


def check_late_policy(handler: ErrorHandler, where: str) -> None:
    """That it says what becomes of late records."""
    if isinstance(handler, Retry):
        raise ConfigError(f"{where} cannot be retry(...): a late record stays late")
    _check(handler, where)


def _check(handler: ErrorHandler, where: str) -> None:
    """That a handler is one; a function's form is found out now, not at the first failure."""
    if isinstance(handler, Decision):
        return
    if not callable(handler):
        raise ConfigError(f"{where} takes log_and_fail(), log_and_continue(), dead_letter(...) or a function, not {handler!r}")
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # built-ins without a signature are taken on trust
        return
    try:
        signature.bind(None)
    except TypeError:
        raise ConfigError(
            f"{where} calls its function with (failure), but {_name(handler)}{signature} does not take that"
        ) from None


def _name(handler: object) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)
