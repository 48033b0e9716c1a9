"""Error handlers: they decide what happens to a record that cannot be read, processed or written.

A handler is a value, or a function that takes the failure and returns such a value. It only decides; the caller acts on it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypedDict

from penstock.errors import FAILURES, ConfigError, ProcessingError, text_of
from penstock.records import Headers, RecordMetadata, is_name
from penstock.timing import Duration, duration_ms

LONGEST_BACKOFF_MS = 30_000
"""The maximum of a back-off that doubles, unless it starts longer."""


class FailureKind(Enum):
    """What could not be done with a record."""

    DESERIALIZATION = "deserialization"
    PROCESSING = "processing"
    PRODUCTION = "production"
    LATE = "late"


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that failed, as an error handler function receives it.

    Key, value, timestamp and headers are those of the record as it was read, even if earlier nodes have changed it.
    What a timer or a cache sends does not come from a single record: it has no `metadata`, no key and value, and the stream time
    as its timestamp. A record from a buffer has its `metadata` only. `read_from` is the topic or the exchange that key and
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
        """Where the record came from, for messages."""
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
            raise ConfigError(f"dead_letter(): invalid topic name {self.topic!r}: use letters, digits, '.', '_' and '-'.")


@dataclass(frozen=True, slots=True)
class Retry:
    """See `retry`."""

    attempts: int
    backoff_ms: int
    then: ErrorHandler

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.backoff_ms < 0:
            raise ConfigError(
                f"retry() needs at least 1 attempt and a back-off of 0 or more, not {self.attempts} and {self.backoff_ms} ms."
            )
        if isinstance(self.then, Retry):
            raise ConfigError("retry(): then= cannot be another retry(). Give the first one more attempts.")
        _check(self.then, "retry(): then=")

    def waits_ms(self) -> list[int]:
        """How long to wait before each attempt."""
        return waits_ms(self.attempts, self.backoff_ms)


def waits_ms(attempts: int, backoff_ms: int) -> list[int]:
    """How long to wait before each attempt: twice as long each time, up to a limit."""
    longest = max(backoff_ms, LONGEST_BACKOFF_MS)
    return [min(backoff_ms << attempt, longest) for attempt in range(attempts)]


Outcome = LogAndFail | LogAndContinue | DeadLetter
"""The final result of a failure."""

Decision = Outcome | Retry
"""What an error handler function may return."""

ErrorHandler = Decision | Callable[[Failure], Decision]
"""What the application does about one kind of failure."""

DEFAULT: ErrorHandler = LogAndFail()
"""By default, no failure is ignored."""

_KINDS = (FailureKind.DESERIALIZATION, FailureKind.PROCESSING, FailureKind.PRODUCTION)
"""The kinds that an application has handlers for; late records are handled by each source."""


def log_and_fail() -> LogAndFail:
    """End the application with an error that names the node, the user's line and the record; its epoch is not committed."""
    return LogAndFail()


def log_and_continue() -> LogAndContinue:
    """Skip the record and continue with the next.

    The node that failed forwards nothing more for it. What it had forwarded or stored before it failed stays, as in Kafka
    Streams; in an aggregate a failed record leaves nothing, even if the aggregator has changed it. The record is counted as
    dropped.
    """
    return LogAndContinue()


def dead_letter(topic: str) -> DeadLetter:
    """Continue as with `log_and_continue`, and write the record, as it was read, to a topic.

    It is written in the transaction of its epoch: with the original key, value, timestamp and headers, and with headers that say
    what happened. Those that begin with `__streams.errors.` are Kafka Streams' own: exception, message, stacktrace, topic,
    partition, offset. Those that begin with `__penstock.errors.` are the kind of failure, the node, the application, the epoch,
    the time, and the topic or exchange that the record was read from.
    """
    return DeadLetter(topic)


def retry(attempts: int = 3, backoff: Duration = "100ms", then: ErrorHandler = DEFAULT) -> Retry:
    """Call the function that failed again, up to `attempts` times, waiting twice as long each time; `then` decides if all fail.

    For processing errors only. It calls the function given to a verb (mapper, predicate, aggregator, joiner and so on) with the
    same arguments; results of a generator are forwarded only once it has finished. Each attempt of an aggregator or reducer gets
    the aggregate as it is stored. A processor's `process` and a transformer's `transform` are called again unless they have
    already forwarded a record or written to a store: that would happen twice, so `then` decides at once. It also decides at once
    when a punctuator fails, or a write to a store. A value that a function changes in place stays changed: change it last, or
    return a new one.

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
                raise ConfigError(f"{kind.value}_errors= cannot be retry(...): the same bytes would fail again.")

    def of(self, kind: FailureKind) -> ErrorHandler:
        """The handler of one kind of failure."""
        handler: ErrorHandler = getattr(self, kind.value)
        return handler

    def dead_letter_topics(self) -> frozenset[str]:
        """The known dead-letter topics, to be checked before the start; a function may name others."""
        handlers = [self.of(kind) for kind in _KINDS]
        outcomes = [handler.then if isinstance(handler, Retry) else handler for handler in handlers]
        return frozenset(outcome.topic for outcome in outcomes if isinstance(outcome, DeadLetter))

    @property
    def may_retry(self) -> bool:
        """Whether a function of the topology may be called again."""
        return isinstance(self.processing, Retry) or callable(self.processing)


class HandlerKeywords(TypedDict, total=False):
    """The error handlers as keywords."""

    deserialization_errors: ErrorHandler
    processing_errors: ErrorHandler
    production_errors: ErrorHandler


def handlers_of(who: str, given: HandlerKeywords) -> ErrorHandlers:
    """Return the handlers that were given as keywords; raises if there are others."""
    for name in given.keys() - HandlerKeywords.__annotations__.keys():
        raise TypeError(f"{who}() got an unexpected keyword argument {name!r}")
    return ErrorHandlers(
        deserialization=given.get("deserialization_errors", DEFAULT),
        processing=given.get("processing_errors", DEFAULT),
        production=given.get("production_errors", DEFAULT),
    )


def decide(handler: ErrorHandler, failure: Failure) -> Decision:
    """Return the handler's decision about a failure.

    If a handler function fails, or returns an invalid decision for this kind of failure, the application ends.
    """
    if isinstance(handler, Decision):
        return handler
    about = f"{type(failure.error).__name__}: {text_of(failure.error)} ({failure.node}, on the record from {failure.place})"
    named = f"The {failure.kind.value} error handler {_name(handler)}"
    try:
        decision = handler(failure)
    except FAILURES as error:
        raise ProcessingError(f"{named} failed: {type(error).__name__}: {text_of(error)}\n  while handling {about}") from error
    may_be = Decision if failure.kind is FailureKind.PROCESSING else Outcome
    if not isinstance(decision, may_be):
        raise ProcessingError(
            f"{named} returned {decision!r}. It must return log_and_fail(), log_and_continue() or dead_letter(...)"
            f"{', or retry(...)' if may_be is Decision else ''}.\n  while handling {about}"
        ) from failure.error
    return decision


def settle(handler: ErrorHandler, failure: Failure) -> Outcome:
    """Return the handler's decision about a failure that cannot be retried."""
    decision = decide(handler, failure)
    if not isinstance(decision, Retry):
        return decision
    after = decide(decision.then, failure)
    if isinstance(after, Retry):
        raise ProcessingError(f"The error handler {_name(decision.then)} returned a retry after a retry.") from failure.error
    return after


def check_late_policy(handler: ErrorHandler, where: str) -> None:
    """Raise if a handler cannot decide about late records."""
    if isinstance(handler, Retry):
        raise ConfigError(f"{where} cannot be retry(...): a late record stays late.")
    _check(handler, where)


def _check(handler: ErrorHandler, where: str) -> None:
    """Raise if a handler is invalid; a function's signature is checked now, not at the first failure."""
    if isinstance(handler, Decision):
        return
    if not callable(handler):
        raise ConfigError(f"{where} takes log_and_fail(), log_and_continue(), dead_letter(...) or a function, not {handler!r}.")
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):  # built-ins without a signature cannot be checked
        return
    try:
        signature.bind(None)
    except TypeError:
        raise ConfigError(
            f"{where} calls its function with one argument, (failure), but {_name(handler)}{signature} does not accept it."
        ) from None


def _name(handler: object) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)
