"""A short way to write a case by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from verification.conformance.spec import Advance, Case, Op, Pipe, Settings

TEXT = ("string", "string")
Step = tuple[Any, ...] | int


def fixed(
    name: str,
    ops: Sequence[tuple[Any, ...]],
    steps: Sequence[Step],
    *,
    caching: bool = False,
    kind: str = "dsl",
    topics: dict[str, tuple[str, str]] | None = None,
) -> Case:
    """A case from `(id, verb, *inputs, args)` operations and `(topic, key, value, at, *headers)` steps.

    A step that is a number advances the wall clock. Topics contain text by default.
    """
    pipes = [Advance(step) if isinstance(step, int) else _pipe(*step) for step in steps]
    read = {step.topic: TEXT for step in pipes if isinstance(step, Pipe)} | (topics or {})
    times = tuple(sorted({step.at for step in pipes if isinstance(step, Pipe)}))
    return Case(
        id=name,
        ops=tuple(_op(*op) for op in ops),
        steps=tuple(pipes),
        topics=read,
        kind=kind,
        settings=Settings(caching=caching),
        probe_keys=("a", "b", "c"),
        probe_times=times,
    )


def _pipe(topic: str, key: Any, value: Any, at: int, *headers: tuple[str, str | None]) -> Pipe:
    return Pipe(topic, key, value, at, headers)


def _op(name: str, verb: str, *rest: Any) -> Op:
    *inputs, last = rest if rest and isinstance(rest[-1], dict) else (*rest, {})
    return Op(name, verb, tuple(inputs), last)


def stream(name: str = "s", topic: str = "in", **args: Any) -> tuple[Any, ...]:
    """A source of a stream."""
    return (name, "builder_stream", {"topic": topic, **args})


def table(name: str = "t", topic: str = "in", **args: Any) -> tuple[Any, ...]:
    """A source of a table."""
    return (name, "builder_table", {"topic": topic, **args})


def out(of: str, topic: str = "out", **args: Any) -> tuple[Any, ...]:
    """A sink under a stream."""
    return (f"{of}-{topic}", "stream_to", of, {"topic": topic, **args})


def out_table(of: str, topic: str = "out", **args: Any) -> list[tuple[Any, ...]]:
    """A sink under a table."""
    return [(f"{of}-stream", "table_to_stream", of), out(f"{of}-stream", topic, **args)]
