"""What a stream joins with, and the nodes each kind of join needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from penstock.dsl.draft import DraftNode
from penstock.dsl.handles import GlobalTableHandle, StreamHandle, TableHandle
from penstock.dsl.place import given_serde
from penstock.dsl.stores import changelog_config
from penstock.errors import TopologyError
from penstock.operators.joins import JoinKind, JoinWindowStore, StreamStreamJoin, join_store_specs
from penstock.operators.stateless import PassThrough
from penstock.operators.stream_tables import StreamGlobalTableJoin, StreamTableJoin, join_buffer_spec
from penstock.state import StoreKind
from penstock.timing import Duration, JoinWindows, duration_ms, join_windows
from penstock.topology import Line, ProcessorNode, Topology
from penstock.topology.functions import checked

if TYPE_CHECKING:
    from penstock.dsl.streams import KStream

Joiner = Callable[[Any, Any, Any], Any]


class WithTable(TypedDict, total=False):
    """What a join with a table takes."""

    grace: Duration | None
    key: Any
    value: Any
    name: str | None


class WithStream(WithTable, total=False):
    """What a join with a stream takes besides."""

    other_value: Any
    store_name: str | None
    logging: bool | Mapping[str, str] | None


def join(
    left: StreamHandle,
    right: object,
    joiner: Callable[..., Any],
    kind: JoinKind,
    line: Line,
    *,
    within: Duration | tuple[Duration, Duration] | None = None,
    grace: Duration | None = None,
    on: Callable[[Any, Any], Any] | None = None,
    with_key: bool = False,
    key: Any = None,
    value: Any = None,
    other_value: Any = None,
    name: str | None = None,
    store_name: str | None = None,
    logging: bool | Mapping[str, str] | None = None,
) -> KStream[Any, Any]:
    """A join of a stream with whatever `right` is."""
    verb = "join" if kind == "inner" else f"{kind}_join"
    checked(joiner, "key, left, right" if with_key else "left, right", verb, line)
    if isinstance(right, StreamHandle | TableHandle):
        left._place.check_same_builder(right._place, line)
    by_key = joiner if with_key else _ignoring_key(joiner)
    if isinstance(right, GlobalTableHandle):
        _refuse(verb, line, "a global table", within=within, grace=grace, key=key, value=value, other_value=other_value)
        _refuse(verb, line, "a global table", store_name=store_name, logging=logging)
        if on is None or kind == "outer":
            raise TopologyError(
                f"{verb} with a global table is inner or left, and needs on=, a function of (key, value) ({line})"
            )
        checked(on, "key, value", f"{verb}'s on=", line)
        return _with_global_table(left, right.store_name, on, by_key, kind == "left", name, line)
    if isinstance(right, TableHandle):
        _refuse(verb, line, "a table", within=within, on=on, store_name=store_name, logging=logging)
        if kind == "outer":
            raise TopologyError(f"a stream joins a table inner or left ({line})")
        return _with_table(left, right, by_key, kind == "left", grace, given_serde(key), given_serde(value), name, line)
    if not isinstance(right, StreamHandle):
        raise TopologyError(f"{verb} takes a stream, a table or a global table, not {type(right).__name__} ({line})")
    _refuse(verb, line, "a stream", on=on)
    if within is None:
        raise TopologyError(f"{verb} with a stream needs within=, how far apart two records may be ({line})")
    windows = join_windows(within, grace)
    serdes = (given_serde(key), given_serde(value), given_serde(other_value))
    return _with_stream(left, right, by_key, kind, windows, serdes, name, store_name, logging, line)


def _ignoring_key(joiner: Callable[[Any, Any], Any]) -> Joiner:
    def by_key(key: Any, left: Any, right: Any) -> Any:
        return joiner(left, right)

    return by_key


def _refuse(verb: str, line: Line, what: str, **options: Any) -> None:
    for option, given in options.items():
        if given is not None:
            raise TopologyError(f"{verb} with {what} takes no {option}= ({line})")


def _with_stream(
    left: StreamHandle,
    right: StreamHandle,
    joiner: Joiner,
    kind: JoinKind,
    windows: JoinWindows,
    serdes: tuple[Any, Any, Any],
    given: str | None,
    base: str | None,
    logging: bool | Mapping[str, str] | None,
    line: Line,
) -> KStream[Any, Any]:
    key, value, other_value = serdes
    if left._place.rekeyed:
        left = left._repartitioned(left._place.name if given is None else f"{given}-left", key, value, line)
    if right._place.rekeyed:
        right = right._repartitioned(right._place.name if given is None else f"{given}-right", key, other_value, line)
    here, there, draft = left._place, right._place, left._place.draft
    draft.copartitioned.append(here.sources | there.sources)
    left_outer, right_outer = kind in ("left", "outer"), kind == "outer"
    this_suffix = "-outer-this-join" if right_outer else "-this-join"
    other_suffix = "-outer-other-join" if left_outer else "-other-join"
    this_window = draft.name("KSTREAM-WINDOWED-", given, "-this-windowed")
    other_window = draft.name("KSTREAM-WINDOWED-", given, "-other-windowed")
    this_generated = draft.name("KSTREAM-OUTERTHIS-" if right_outer else "KSTREAM-JOINTHIS-")
    other_generated = draft.name("KSTREAM-OUTEROTHER-" if left_outer else "KSTREAM-JOINOTHER-")
    this_join = this_generated if given is None else given + this_suffix
    other_join = other_generated if given is None else given + other_suffix
    merge = draft.name("KSTREAM-MERGE-", given, "-merge")
    this_store = f"{this_generated if base is None else base + this_suffix}-store"
    other_store = f"{other_generated if base is None else base + other_suffix}-store"
    outer_store = _outer_store(this_generated, base, kind)
    specs = join_store_specs(
        windows,
        this_store,
        other_store,
        outer_store,
        key=key or here.key or draft.default_key,
        left_value=value or here.value or draft.default_value,
        right_value=other_value or there.value or draft.default_value,
        logged=logging is not False,
        changelog_config=changelog_config(logging),
    )

    def window(name: str, number: int) -> DraftNode:
        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_node(ProcessorNode(name, parents, JoinWindowStore(specs[number].name), (), line))
            topology.add_state_store(specs[number], name)

        return DraftNode(name, line, write)

    draft.add(window(this_window, 0), here.node)
    draft.add(window(other_window, 1), there.node)

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        for name, parent, is_left, reads in ((this_join, this_window, True, 1), (other_join, other_window, False, 0)):
            operator = StreamStreamJoin(kind, is_left, this_store, other_store, outer_store, windows, joiner)
            topology.add_node(ProcessorNode(name, (parent,), operator, (), line))
            topology.add_state_store(specs[reads], name)
            if outer_store is not None:
                topology.add_state_store(specs[2], name)
        topology.add_node(ProcessorNode(merge, (this_join, other_join), PassThrough(), (), line))

    node = DraftNode(merge, line, write, relaxed_null_key_join=left_outer)
    draft.add(node, here.node, there.node)
    place = here.moved(merge, node, rekeyed=False, key=key or here.key, value=None, sources=here.sources | there.sources)
    return draft.handles.stream(place)


def _outer_store(generated: str, base: str | None, kind: JoinKind) -> str | None:
    """The shared store's name: made from the number of this side's generated name, or from the name given to the stores."""
    if kind == "inner":
        return None
    if base is not None:
        return f"{base}-{'outer' if kind == 'outer' else 'left'}-shared-join-store"
    return f"KSTREAM-OUTERSHARED-{generated[-10:]}-store"


def _with_table(
    left: StreamHandle,
    table: TableHandle,
    joiner: Joiner,
    is_left: bool,
    grace: Duration | None,
    key: Any,
    value: Any,
    given: str | None,
    line: Line,
) -> KStream[Any, Any]:
    if left._place.rekeyed:
        left = left._repartitioned(left._place.name if given is None else given, key, value, line)
    here, there = left._place, table._place
    draft = here.draft
    sources = here.sources | there.sources
    draft.copartitioned.append(sources)
    name = draft.name("KSTREAM-LEFTJOIN-" if is_left else "KSTREAM-JOIN-", given)
    grace_ms = None if grace is None else duration_ms(grace)
    buffer = None
    if grace_ms is not None:
        key_serde, value_serde = key or here.key or draft.default_key, value or here.value or draft.default_value
        buffer = join_buffer_spec(f"{name}-Buffer", key=key_serde, value=value_serde)
    operator = StreamTableJoin(there.name, joiner, is_left, grace_ms, None if buffer is None else buffer.name)
    stores = table._table.view_stores()

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(ProcessorNode(name, parents, operator, (), line))
        if buffer is not None:
            topology.add_state_store(buffer, name)
        topology.connect_processor_and_state_stores(name, *stores)
        if grace_ms is not None:
            _check_history(topology, stores, grace_ms, line)

    node = draft.add(DraftNode(name, line, write, relaxed_null_key_join=is_left), here.node)
    return draft.handles.stream(here.moved(name, node, rekeyed=False, key=key or here.key, value=None, sources=sources))


def _check_history(topology: Topology, stores: list[str], grace_ms: int, line: Line) -> None:
    for store in stores:
        spec = topology.stores[store]
        if spec.kind is not StoreKind.VERSIONED:
            raise TopologyError(f"a join with grace= needs a versioned table: give it Store(history=...) ({line})")
        if grace_ms > (spec.retention_ms or 0):
            raise TopologyError(f"the table's history must be at least as long as the join's grace of {grace_ms} ms ({line})")


def _with_global_table(
    left: StreamHandle,
    store: str,
    on: Callable[[Any, Any], Any],
    joiner: Joiner,
    is_left: bool,
    given: str | None,
    line: Line,
) -> KStream[Any, Any]:
    here = left._place
    name = here.draft.name("KSTREAM-LEFTJOIN-", given)
    place = here.below(name, StreamGlobalTableJoin(store, on, joiner, is_left), line)
    place.node.relaxed_null_key_join = is_left
    return here.draft.handles.stream(replace(place, value=None))
