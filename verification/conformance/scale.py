"""The same case with longer durations and later times: its windows cross segments of stores, which have 60 seconds at least.

A store forgets windows and sessions segment by segment. With durations of a few milliseconds, nothing ever leaves the first one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verification.conformance.spec import Advance, Args, Case, Op, Pipe, Step

FACTOR = 20_000
LATEST_MS = 1_000_000
"""Later cases stay as they are: Kafka Streams' cached window stores iterate over every minute since 1970 when read whole."""

_SPANS = {"size", "advance", "grace", "start", "limit", "interval", "retention", "history"}


def scaled(case: Case) -> Case:
    """The case with all durations and times multiplied; one with late records stays as it is.

    Sessions have no record cache then: see left_out.
    """
    times = [step.at for step in case.steps if isinstance(step, Pipe)]
    if max(times, default=0) > LATEST_MS:
        return case
    settings, has_sessions = case.settings, any(op.args.get("windows", {}).get("type") == "session" for op in case.ops)
    return replace(
        case,
        ops=tuple(Op(op.id, op.verb, op.inputs, _args(op.args)) for op in case.ops),
        steps=tuple(map(_step, case.steps)),
        settings=replace(settings, wall_clock=settings.wall_clock * FACTOR, caching=settings.caching and not has_sessions),
        probe_times=tuple(time * FACTOR for time in case.probe_times),
    )


def _step(step: Step) -> Step:
    if isinstance(step, Pipe):
        return replace(step, at=step.at * FACTOR)
    assert isinstance(step, Advance)
    return Advance(step.ms * FACTOR)


def _args(args: Args) -> Args:
    return {name: _arg(name, value) for name, value in args.items()}


def _arg(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return _args(value)
    if name == "within":
        return [span * FACTOR for span in value]
    if name in _SPANS and isinstance(value, int):
        return value * FACTOR
    return _serde(value) if isinstance(value, str) and value.startswith("time:") else value


def _serde(name: str) -> str:
    """A windowed serde with the longer windows; those of unlimited windows have the largest long."""
    kind, inner, size = name.split(":")
    return name if int(size) >= 2**63 // FACTOR else f"{kind}:{inner}:{int(size) * FACTOR}"
