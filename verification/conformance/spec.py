"""A conformance case: operations, input and settings, as plain values that both sides read as one JSON line.

An operation's verb is `<handle>_<method>`: `stream_filter`, `windowed_count`, `topology_add_sink`. Its inputs are the
ids of earlier operations; the branches of a split are `<id>.0`, `<id>.1`, and so on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

Args = dict[str, Any]
Scalar = str | int | float | None


@dataclass(frozen=True)
class Op:
    """One call of the DSL or of `Topology`; functions, serdes and windows are named, never code."""

    id: str
    verb: str
    inputs: tuple[str, ...] = ()
    args: Args = field(default_factory=dict)


class Step:
    """The next step of a case: a record arrives, or time passes."""


@dataclass(frozen=True)
class Pipe(Step):
    """One input record. Bytes are hex text; header values are text or None."""

    topic: str
    key: Scalar
    value: Scalar
    at: int
    headers: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True)
class Advance(Step):
    """The wall clock advances."""

    ms: int


@dataclass(frozen=True)
class Settings:
    """How the case runs. `engine` is the kind of store on the Java side: `rocksdb`, or `mixed` (see MixedStores.java)."""

    caching: bool = False
    engine: str = "mixed"
    wall_clock: int = 0


@dataclass(frozen=True)
class Case:
    """A topology and its input. `kind` is `dsl` or `topology` (the Processor API)."""

    id: str
    ops: tuple[Op, ...]
    steps: tuple[Step, ...]
    topics: dict[str, tuple[str, str]]
    kind: str = "dsl"
    settings: Settings = Settings()
    probe_keys: tuple[str, ...] = ()
    probe_times: tuple[int, ...] = ()


def to_json(case: Case) -> str:
    """The case as one line; equal cases give equal lines."""
    return json.dumps(
        {
            "id": case.id,
            "kind": case.kind,
            "settings": vars(case.settings),
            "topics": case.topics,
            "ops": [{"id": op.id, "verb": op.verb, "in": op.inputs, "args": op.args} for op in case.ops],
            "steps": [_step(step) for step in case.steps],
            "probe": {"keys": case.probe_keys, "times": case.probe_times},
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def _step(step: Step) -> dict[str, Any]:
    if isinstance(step, Advance):
        return {"do": "wall", "ms": step.ms}
    assert isinstance(step, Pipe)
    pipe = {"do": "pipe", "topic": step.topic, "key": step.key, "value": step.value, "at": step.at}
    return {**pipe, "headers": step.headers} if step.headers else pipe


def from_json(line: str) -> Case:
    """The case that `to_json` wrote."""
    data = json.loads(line)
    return Case(
        id=data["id"],
        kind=data["kind"],
        settings=Settings(**data["settings"]),
        topics={topic: (key, value) for topic, (key, value) in data["topics"].items()},
        ops=tuple(Op(op["id"], op["verb"], tuple(op["in"]), op["args"]) for op in data["ops"]),
        steps=tuple(_parsed(step) for step in data["steps"]),
        probe_keys=tuple(data["probe"]["keys"]),
        probe_times=tuple(data["probe"]["times"]),
    )


def _parsed(step: dict[str, Any]) -> Step:
    if step["do"] == "wall":
        return Advance(step["ms"])
    headers = tuple((name, value) for name, value in step.get("headers", ()))
    return Pipe(step["topic"], step["key"], step["value"], step["at"], headers)


def durations(case: Case) -> set[int]:
    """All durations of the case's windows, graces and timers: inputs should fall around their edges."""
    found: set[int] = set()
    for op in case.ops:
        args = op.args
        windows = args.get("windows", {})
        spans = [windows.get(name) for name in ("size", "advance", "grace")]
        spans += [args.get(name) for name in ("grace", "limit", "interval", "retention", "history")]
        spans += [args.get("store", {}).get(name) for name in ("retention", "history")]
        spans += args.get("within", [])
        known = [span for span in spans if span]
        found.update(known)
        if windows.get("grace"):
            found.add(windows["size"] + windows["grace"])
        if args.get("within") and args.get("grace"):
            found.update(span + args["grace"] for span in args["within"])
    return {abs(span) for span in found if abs(span) < 10_000}
