"""Operators without state: each looks at one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from penstock.errors import FAILURES
from penstock.expressions.columns.steps import Columnar, Keep, Pass, Replace, Step, Unwrap
from penstock.expressions.functions import Computed
from penstock.operators.results import PAIR, PAIRS, VALUES, explained
from penstock.processor import Host, Operator, Wrap
from penstock.records import Headers, OfPair, OnRecord, Process, Record, wrapped


@dataclass(frozen=True, slots=True)
class Filter(Operator, Columnar):
    """Keeps records for which the predicate holds (or, negated, does not)."""

    is_repeatable: ClassVar[bool] = True
    predicate: OfPair[Any, Any, Any]
    negate: bool = False

    def in_columns(self) -> Step | None:
        return Keep(self.predicate.node, self.negate) if isinstance(self.predicate, Computed) else None

    def bind(self, host: Host, forward: Process) -> Process:
        predicate, negate, failed = self.predicate, self.negate, host.failed
        if isinstance(predicate, OnRecord):

            def decide(holds: Any, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                if bool(holds) is not negate:
                    forward(key, value, timestamp, headers)

            return _on_record(predicate, host, decide)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                if predicate(key, value):
                    forward(key, value, timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        def process_negated(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                if not predicate(key, value):
                    forward(key, value, timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        return process_negated if negate else process


@dataclass(frozen=True, slots=True)
class Map(Operator):
    """Replaces key and value; the mapper returns a `(key, value)` pair."""

    is_repeatable: ClassVar[bool] = True
    mapper: OfPair[Any, Any, tuple[Any, Any]]

    def bind(self, host: Host, forward: Process) -> Process:
        mapper, failed = self.mapper, host.failed
        if isinstance(mapper, OnRecord):

            def send(pair: Any, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                new_key, new_value = pair
                forward(new_key, new_value, timestamp, headers)

            return _on_record(mapper, host, send, PAIR)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                new_key, new_value = mapper(key, value)
                forward(new_key, new_value, timestamp, headers)
            except FAILURES as error:
                failed(explained(error, PAIR), key)

        return process


@dataclass(frozen=True, slots=True)
class SelectKey(Operator):
    """Replaces the key."""

    is_repeatable: ClassVar[bool] = True
    selector: OfPair[Any, Any, Any]

    def bind(self, host: Host, forward: Process) -> Process:
        selector, failed = self.selector, host.failed
        if isinstance(selector, OnRecord):
            return _on_record(selector, host, lambda new, key, value, *rest: forward(new, value, *rest))

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                forward(selector(key, value), value, timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        return process


@dataclass(frozen=True, slots=True)
class MapValues(Operator, Columnar):
    """Replaces the value; `mapper(value)`, or `mapper(key, value)` with `with_key`."""

    is_repeatable: ClassVar[bool] = True
    mapper: OnRecord[Any, Any, Any] | Callable[..., Any]
    with_key: bool = False

    def in_columns(self) -> Step | None:
        return Replace(self.mapper.node) if isinstance(self.mapper, Computed) else None

    def bind(self, host: Host, forward: Process) -> Process:
        mapper, failed = self.mapper, host.failed
        if isinstance(mapper, OnRecord):
            return _on_record(mapper, host, lambda new, key, value, *rest: forward(key, new, *rest))

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                forward(key, mapper(value), timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        def process_with_key(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                forward(key, mapper(key, value), timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        return process_with_key if self.with_key else process


@dataclass(frozen=True, slots=True)
class FlatMap(Operator):
    """One record in, any number of `(key, value)` pairs out."""

    mapper: OfPair[Any, Any, Iterable[tuple[Any, Any]]]

    def wrapped(self, function: Wrap, supplier: Wrap) -> Operator:
        return replace(self, mapper=function(wrapped(self.mapper, _to_the_end)))

    def bind(self, host: Host, forward: Process) -> Process:
        mapper, failed = self.mapper, host.failed
        if isinstance(mapper, OnRecord):

            def send(pairs: Any, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                for new_key, new_value in pairs:
                    forward(new_key, new_value, timestamp, headers)

            return _on_record(mapper, host, send, PAIRS)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                for new_key, new_value in mapper(key, value):
                    forward(new_key, new_value, timestamp, headers)
            except FAILURES as error:
                failed(explained(error, PAIRS), key)

        return process


@dataclass(frozen=True, slots=True)
class FlatMapValues(Operator):
    """One value in, any number of values out."""

    mapper: OnRecord[Any, Any, Iterable[Any]] | Callable[..., Iterable[Any]]
    with_key: bool = False

    def wrapped(self, function: Wrap, supplier: Wrap) -> Operator:
        return replace(self, mapper=function(wrapped(self.mapper, _to_the_end)))

    def bind(self, host: Host, forward: Process) -> Process:
        mapper, with_key, failed = self.mapper, self.with_key, host.failed
        if isinstance(mapper, OnRecord):

            def send(values: Any, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                for new_value in values:
                    forward(key, new_value, timestamp, headers)

            return _on_record(mapper, host, send, VALUES)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                for new_value in mapper(key, value) if with_key else mapper(value):
                    forward(key, new_value, timestamp, headers)
            except FAILURES as error:
                failed(explained(error, VALUES), key)

        return process


@dataclass(frozen=True, slots=True)
class Peek(Operator):
    """Calls an action for each record and forwards the record; for `foreach` it has no children."""

    is_repeatable: ClassVar[bool] = True
    action: OfPair[Any, Any, object]

    def bind(self, host: Host, forward: Process) -> Process:
        action, failed = self.action, host.failed
        if isinstance(action, OnRecord):
            return _on_record(action, host, lambda _, *record: forward(*record))

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                action(key, value)
                forward(key, value, timestamp, headers)
            except FAILURES as error:
                failed(error, key)

        return process


@dataclass(frozen=True, slots=True)
class Branch(Operator):
    """Sends each record to the child of the first predicate that holds."""

    is_repeatable: ClassVar[bool] = True
    branches: tuple[tuple[Callable[..., Any], str], ...]
    default: str | None = None

    def wrapped(self, function: Wrap, supplier: Wrap) -> Operator:
        return replace(self, branches=tuple((function(predicate), child) for predicate, child in self.branches))

    def bind(self, host: Host, forward: Process) -> Process:
        branches = [(predicate, host.child(child)) for predicate, child in self.branches]
        default = host.child(self.default) if self.default is not None else None
        failed, dropped = host.failed, host.dropped
        if any(isinstance(predicate, OnRecord) for predicate, _ in branches):

            def send(child: Process | None, key: Any, value: Any, timestamp: int, headers: Headers) -> None:
                if child is not None:
                    child(key, value, timestamp, headers)
                else:
                    dropped("no branch")

            return _on_record(_first_of(branches, default), host, send)

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                for predicate, child in branches:
                    if predicate(key, value):
                        child(key, value, timestamp, headers)
                        return
                if default is not None:
                    default(key, value, timestamp, headers)
                else:
                    dropped("no branch")
            except FAILURES as error:
                failed(error, key)

        return process


@dataclass(frozen=True, slots=True)
class PassThrough(Operator, Columnar):
    """Merges several streams into one, or adds a name; records pass unchanged."""

    is_repeatable: ClassVar[bool] = True

    def in_columns(self) -> Step | None:
        return Pass()

    def bind(self, host: Host, forward: Process) -> Process:
        return forward


@dataclass(frozen=True, slots=True)
class NewValue(Operator, Columnar):
    """A table's changes as a stream: the new value of each."""

    def in_columns(self) -> Step | None:
        return Unwrap()

    def bind(self, host: Host, forward: Process) -> Process:
        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            forward(key, value[0], timestamp, headers)

        return process


def _on_record(function: OnRecord[Any, Any, Any], host: Host, then: Callable[..., None], returns: str = "") -> Process:
    """Return a `process` that calls a function with the record, then `then(result, key, value, timestamp, headers)`.

    `returns` says what the function must return, if not any value will do.
    """
    call, failed = function.function, host.failed

    def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
        try:
            then(call(Record(key, value, timestamp, headers)), key, value, timestamp, headers)
        except FAILURES as error:
            failed(explained(error, returns) if returns else error, key)

    return process


def _first_of(branches: list[tuple[Callable[..., Any], Process]], default: Process | None) -> OnRecord[Any, Any, Process | None]:
    """Return the function from a record to the child of the first predicate that holds."""

    def choose(record: Record[Any, Any]) -> Process | None:
        for predicate, child in branches:
            if predicate(record) if isinstance(predicate, OnRecord) else predicate(record.key, record.value):
                return child
        return default

    return OnRecord(choose)


def _to_the_end(mapper: Callable[..., Any]) -> Callable[..., Any]:
    """A generator fails while it is read, when half of what it gives might have gone on already: so read it first."""
    return lambda *arguments: list(mapper(*arguments))
