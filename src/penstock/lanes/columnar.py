"""The columnar paths of a lane's nodes: from a source through expressions to ready aggregates, without any other code.

Records that take such a path can be computed in columns. Whether they are is decided anew for every epoch of a shard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.expressions.columns.aggregation import can_fold
from penstock.expressions.columns.documents import can_read
from penstock.expressions.columns.evaluation import is_supported, paths_in
from penstock.expressions.columns.frames import Path
from penstock.expressions.columns.scalars import are_scalars
from penstock.expressions.columns.steps import Columnar, Gather, Keep, Pass, Replace, Step, Unwrap
from penstock.expressions.nodes import Node as Expression
from penstock.serdes import Json
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode


class DirectEnd(NamedTuple):
    """A sink of a table's new values, and the node in between."""

    between: str
    sink: SinkNode
    topic: str


class ColumnarPath(NamedTuple):
    """The steps from a source to its aggregates, each with the name of its node, and the fields that they read.

    `end` is the way from the aggregates to a sink, if that is all that follows, and nothing chooses topics or partitions.
    """

    source: str
    steps: tuple[tuple[str, Step], ...]
    gather: Gather
    reads: frozenset[Path]
    end: DirectEnd | None


def columnar_paths(nodes: Sequence[Node], children: Mapping[str, Sequence[str]]) -> Mapping[str, ColumnarPath]:
    """Return the columnar paths of some nodes by the name of their source; `children` has the names below each node."""
    named = {node.name: node for node in nodes}
    found = {node.name: _path(named, children, node) for node in nodes if isinstance(node, SourceNode)}
    return {name: path for name, path in found.items() if path is not None}


def _path(nodes: Mapping[str, Node], children: Mapping[str, Sequence[str]], source: SourceNode) -> ColumnarPath | None:
    of_scalars = are_scalars(source.value)
    if not of_scalars and source.value != Json():
        return None
    steps: list[tuple[str, Step]] = []
    name = source.name
    while not steps or not isinstance(steps[-1][1], Gather):
        below = _only_child(nodes, children, name)
        if not isinstance(below, ProcessorNode) or not isinstance(below.operator, Columnar):
            return None
        step, name = below.operator.in_columns(), below.name
        if step is None:
            return None
        steps.append((name, step))
    gather = steps[-1][1]
    assert isinstance(gather, Gather)
    reads = _reads([step for _, step in steps])
    is_readable = reads <= {()} if of_scalars else can_read(reads)
    is_possible = is_readable and all(_is_possible(step) for _, step in steps)
    end = _direct_end(nodes, children, name)
    return ColumnarPath(source.name, tuple(steps), gather, reads, end) if is_possible else None


def _direct_end(nodes: Mapping[str, Node], children: Mapping[str, Sequence[str]], table: str) -> DirectEnd | None:
    between, sink = _only_child(nodes, children, table), None
    if isinstance(between, ProcessorNode) and isinstance(between.operator, Columnar):
        is_plain = isinstance(between.operator.in_columns(), Unwrap)
        sink = _only_child(nodes, children, between.name) if is_plain else None
    if between is None or not isinstance(sink, SinkNode) or not isinstance(sink.topic, str) or sink.partitioner is not None:
        return None
    return DirectEnd(between.name, sink, sink.topic)


def _only_child(nodes: Mapping[str, Node], children: Mapping[str, Sequence[str]], name: str) -> Node | None:
    return nodes[children[name][0]] if len(children[name]) == 1 else None


def _is_possible(step: Step) -> bool:
    if isinstance(step, Gather):
        return can_fold(step.aggregates)
    return all(is_supported(node) for node in _expressions(step))


def _reads(steps: list[Step]) -> frozenset[Path]:
    """Return the fields of the source's records that steps read, up to the one that replaces the value."""
    found: set[Path] = set()
    for step in steps:
        for node in _expressions(step):
            found |= paths_in(node)
        if isinstance(step, Replace):
            break
    return frozenset(found)


def _expressions(step: Step) -> tuple[Expression, ...]:
    match step:
        case Keep():
            return (step.condition,)
        case Replace():
            return (step.value,)
        case Gather():
            return () if step.aggregates is None else (step.aggregates,)
        case Pass() | Unwrap():
            return ()
