"""Operators without state: each looks at one record at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from penstock.columns.steps import Columnar, Keep, Pass, Replace, Step, Unwrap
from penstock.errors import ATTRIBUTED
from penstock.expressions.functions import Computed
from penstock.processor import Host, Operator, Wrap
from penstock.records import Headers, Process


@dataclass(frozen=True, slots=True)
class Filter(Operator, Columnar):
    """Keeps records for which the predicate holds (or, negated, does not)."""

    is_repeatable: ClassVar[bool] = True
    predicate: Callable[[Any, Any], Any]
    negate: bool = False

    def in_columns(self) -> Step | None:
        return Keep(self.predicate.node, self.negate) if isinstance(self.predicate, Computed) else None

    def bind(self, host: Host, forward: Process) -> Process:
        predicate, negate, failed = self.predicate, self.negate, host.failed

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                if predicate(key, value):
                    forward(key, value, timestamp, headers)
            except ATTRIBUTED:
                raise
            except Exception as error:
                failed(error, key, value, timestamp, headers)

        def process_negated(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                if not predicate(key, value):
                    forward(key, value, timestamp, headers)
            except ATTRIBUTED:
                raise
            except Exception as error:
                failed(error, key, value, timestamp, headers)

        return process_negated if negate else process


@dataclass(frozen=True, slots=True)
class Map(Operator):
    """Replaces key and value; the mapper returns a `(key, value)` pair."""

    is_repeatable: ClassVar[bool] = True
    mapper: Callable[[Any, Any], tuple[Any, Any]]

    def bind(self, host: Host, forward: Process) -> Process:
        mapper, failed = self.mapper, host.failed

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                new_key, new_value = mapper(key, value)
                forward(new_key, new_value, timestamp, headers)
            except ATTRIBUTED:
                raise
            except Exception as error:
                failed(error, key, value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class SelectKey(Operator):
    """Replaces the key."""

    is_repeatable: ClassVar[bool] = True
    selector: Callable[[Any, Any], Any]

    def bind(self, host: Host, forward: Process) -> Process:
        selector, failed = self.selector, host.failed

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                forward(selector(key, value), value, timestamp, headers)
            except ATTRIBUTED:
                raise
            except Exception as error:
                failed(error, key, value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class MapValues(Operator, Columnar):
    """Replaces the value; `mapper(value)`, or `mapper(key, value)` with `with_key`."""

    is_repeatable: ClassVar[bool] = True
    mapper: Callable[..., Any]
    with_key: bool = False

    def in_columns(self) -> Step | None:
        return Replace(self.mapper.node) if isinstance(self.mapper, Computed) else None

    def bind(self, host: Host, forward: Process) -> Process:
        mapper, failed = self.mapper, host.failed

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                forward(key, mapper(value), timestamp, headers)
            except ATTRIBUTED:
                raise
            except Exception as error:
                failed(error, key, value, timestamp, headers)

        def process_with_key(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                forward(key, mapper(key, value), timestamp, headers)
            except ATTRIBUTED:
                raise
            except Exception as error:
                failed(error, key, value, timestamp, headers)

        return process_with_key if self.with_key else process


@dataclass(frozen=True, slots=True)
class FlatMap(Operator):
    """One record in, any number of `(key, value)` pairs out."""

    mapper: Callable[[Any, Any], Iterable[tuple[Any, Any]]]

    def wrapped(self, function: Wrap, supplier: Wrap) -> Operator:
        return replace(self, mapper=function(_to_the_end(self.mapper)))

    def bind(self, host: Host, forward: Process) -> Process:
        mapper, failed = self.mapper, host.failed

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                for new_key, new_value in mapper(key, value):
                    forward(new_key, new_value, timestamp, headers)
            except ATTRIBUTED:
                raise
            except Exception as error:
                failed(error, key, value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class FlatMapValues(Operator):
    """One value in, any number of values out."""

    mapper: Callable[..., Iterable[Any]]
    with_key: bool = False

    def wrapped(self, function: Wrap, supplier: Wrap) -> Operator:
        return replace(self, mapper=function(_to_the_end(self.mapper)))

    def bind(self, host: Host, forward: Process) -> Process:
        mapper, with_key, failed = self.mapper, self.with_key, host.failed

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                for new_value in mapper(key, value) if with_key else mapper(value):
                    forward(key, new_value, timestamp, headers)
            except ATTRIBUTED:
                raise
            except Exception as error:
                failed(error, key, value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class Peek(Operator):
    """Calls an action for each record and forwards the record; for `foreach` it has no children."""

    is_repeatable: ClassVar[bool] = True
    action: Callable[[Any, Any], object]

    def bind(self, host: Host, forward: Process) -> Process:
        action, failed = self.action, host.failed

        def process(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                action(key, value)
                forward(key, value, timestamp, headers)
            except ATTRIBUTED:
                raise
            except Exception as error:
                failed(error, key, value, timestamp, headers)

        return process


@dataclass(frozen=True, slots=True)
class Branch(Operator):
    """Sends each record to the child of the first predicate that holds."""

    is_repeatable: ClassVar[bool] = True
    branches: tuple[tuple[Callable[[Any, Any], Any], str], ...]
    default: str | None = None

    def wrapped(self, function: Wrap, supplier: Wrap) -> Operator:
        return replace(self, branches=tuple((function(predicate), child) for predicate, child in self.branches))

    def bind(self, host: Host, forward: Process) -> Process:
        branches = [(predicate, host.child(child)) for predicate, child in self.branches]
        default = host.child(self.default) if self.default is not None else None
        failed, dropped = host.failed, host.dropped

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
            except ATTRIBUTED:
                raise
            except Exception as error:
                failed(error, key, value, timestamp, headers)

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


def _to_the_end(mapper: Callable[..., Any]) -> Callable[..., Any]:
    """A generator fails while it is read, when half of what it gives might have gone on already: so read it first."""
    return lambda *arguments: list(mapper(*arguments))
