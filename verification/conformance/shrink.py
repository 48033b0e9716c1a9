"""Shrinks a failing case to the fewest steps and operations that still differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from verification.conformance.spec import Case, Op, Pipe

AnyCase = TypeVar("AnyCase", bound=Case)


def shrink(case: AnyCase, fails: Callable[[AnyCase], bool]) -> AnyCase:
    """A smaller case that still fails; the oracle runs every attempt."""
    smaller = case
    while True:
        before = smaller
        smaller = _fewer_steps(_fewer_ops(smaller, fails), fails)
        if smaller == before:
            return smaller


def _fewer_ops(case: AnyCase, fails: Callable[[AnyCase], bool]) -> AnyCase:
    """Remove operations that nothing else needs, one by one, as long as possible."""
    for op in reversed(case.ops):
        candidate = _without(case, op)
        if candidate is not None and fails(candidate):
            return _fewer_ops(candidate, fails)
    return case


def _without(case: AnyCase, op: Op) -> AnyCase | None:
    kept = tuple(other for other in case.ops if other.id != op.id)
    if any(name.split(".")[0] == op.id for other in kept for name in other.inputs):
        return None
    named = {op.args.get("name")} if op.verb.startswith("topology_") or op.verb.endswith("_state_store") else set()
    needed = {
        name for other in kept for field in ("parents", "stores", "children", "processors") for name in other.args.get(field, ())
    }
    needed |= {other.args.get("processor") for other in kept}
    if named & needed:
        return None
    topics = _topics(kept, case)
    steps = tuple(step for step in case.steps if not isinstance(step, Pipe) or step.topic in topics)
    return replace(case, ops=kept, steps=steps, topics={name: types for name, types in case.topics.items() if name in topics})


def _topics(ops: tuple[Op, ...], case: Case) -> set[str]:
    read: set[str] = set()
    for op in ops:
        if op.verb in {"stream_to", "stream_to_dynamic", "topology_add_sink"}:
            continue
        read |= {op.args["topic"]} if "topic" in op.args else set()
        read |= set(op.args.get("topics", ()))
        prefix = op.args.get("pattern", "").removesuffix(".*")
        read |= {topic for topic in case.topics if prefix and topic.startswith(prefix)}
    return read


def _fewer_steps(case: AnyCase, fails: Callable[[AnyCase], bool]) -> AnyCase:
    size = len(case.steps)
    while size:
        at = 0
        while at < len(case.steps):
            candidate = replace(case, steps=case.steps[:at] + case.steps[at + size :])
            if fails(candidate):
                case = candidate
            else:
                at += size
        size //= 2
    return case
