"""Joins of a stream with a stream, a table or a global table: the nodes of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from penstock.dsl.annotations import BY_JOINER, returned, value_made
from penstock.dsl.draft import DraftNode, one_processor
from penstock.dsl.expressions import computed, records_of, records_of_join, serde_for
from penstock.dsl.place import Place, given_serde
from penstock.dsl.repartitions import repartition
from penstock.dsl.stores import changelog_config
from penstock.dsl.table_drafts import TablePlace
from penstock.errors import TopologyError
from penstock.expressions import Expression
from penstock.expressions.functions import Form
from penstock.operators.joins import JoinKind, JoinWindowStore, StreamStreamJoin, join_store_specs
from penstock.operators.stateless import PassThrough
from penstock.operators.stream_tables import StreamGlobalTableJoin, StreamTableJoin, join_buffer_spec
from penstock.serdes import Serde
from penstock.state import StoreKind, StoreSpec
from penstock.timing import Duration, duration_ms, join_windows
from penstock.topology import Line, ProcessorNode, Topology
from penstock.topology.functions import checked

Joiner = Callable[[Any, Any, Any], Any]


class TableKeywords(TypedDict, total=False):
    """The keyword arguments of a join with a table."""

    grace: Duration | None
    key: Any
    value: Any
    name: str | None


class StreamKeywords(TableKeywords, total=False):
    """The keyword arguments of a join with a stream."""

    other_value: Any
    store_name: str | None
    logging: bool | Mapping[str, str] | None


@dataclass(eq=False, slots=True)
class StreamSide:
    """A stream as its joins see it: its place, and the exchange that they share if its key is new."""

    place: Place
    exchanged: Place | None = None

    def behind_exchange(self, prefix: str, key: Serde[Any] | None, value: Serde[Any] | None, line: Line) -> Place:
        """Return the place behind an exchange; joins without a name share one."""
        here = self.place
        key, value = key or here.key, value or here.value
        exchange = repartition(here.draft, prefix, key, value, line)  # always advances the counter, as in Kafka Streams
        if self.exchanged is None or here.name != prefix:
            self.exchanged = exchange.below(here, key, value)
        return self.exchanged


@dataclass(frozen=True, slots=True)
class GlobalTable:
    """A global table as its joins see it: it has no place, only its store."""

    store_name: str


@dataclass(frozen=True, slots=True)
class StreamJoin:
    """The arguments of a join verb."""

    kind: JoinKind
    joiner: Callable[..., Any] | Expression[Any]
    with_key: bool = False
    within: Duration | tuple[Duration, Duration] | None = None
    grace: Duration | None = None
    on: Callable[[Any, Any], Any] | Expression[Any] | None = None
    key: Any = None
    value: Any = None
    other_value: Any = None
    name: str | None = None
    store_name: str | None = None
    logging: bool | Mapping[str, str] | None = None

    @property
    def verb(self) -> str:
        """The verb that was called."""
        return "join" if self.kind == "inner" else f"{self.kind}_join"

    def by_key(self) -> Joiner:
        """Return the joiner as a function of the key and both values."""
        assert not isinstance(self.joiner, Expression), "join has turned it into a function"
        return self.joiner if self.with_key else _ignoring_key(self.joiner)

    def refuse(self, right: str, line: Line, *options: str) -> None:
        """Reject options that a join with this kind of right side does not have."""
        for option in options:
            if getattr(self, option) is not None:
                raise TopologyError(f"{self.verb} with {right} takes no {option}= ({line}).")


def join(left: StreamSide, right: object, declared: StreamJoin, line: Line) -> Place:
    """Join a stream with a `StreamSide`, a `TablePlace` or a `GlobalTable`; reject anything else."""
    verb = declared.verb
    if isinstance(right, StreamSide | TablePlace):
        left.place.check_same_builder(right.place, line)
    if isinstance(declared.joiner, Expression):
        there = right.place if isinstance(right, StreamSide | TablePlace) else None
        records = records_of_join(left.place, there)
        found = computed(declared.joiner, Form.JOINED_BY_KEY, records, verb, line, with_key=declared.with_key)
        joined = join(left, right, replace(declared, joiner=found, with_key=True), line)
        return replace(joined, value=serde_for(found, records, left.place))
    checked(declared.joiner, "key, left, right" if declared.with_key else "left, right", verb, line)
    made = value_made(left.place.draft, None, returned(declared.joiner), verb, line, BY_JOINER)
    if isinstance(right, GlobalTable):
        return replace(_with_global_table(left.place, right, declared, line), value=made)
    if isinstance(right, TablePlace):
        return replace(_with_table(left, right, declared, line), value=made)
    if isinstance(right, StreamSide):
        return replace(_with_stream(left, right, declared, line), value=made)
    raise TopologyError(f"{verb} takes a stream, a table or a global table, not {type(right).__name__} ({line}).")


def _ignoring_key(joiner: Callable[[Any, Any], Any]) -> Joiner:
    def by_key(key: Any, left: Any, right: Any) -> Any:
        return joiner(left, right)

    return by_key


def _with_stream(left: StreamSide, right: StreamSide, declared: StreamJoin, line: Line) -> Place:
    declared.refuse("a stream", line, "on")
    if declared.within is None:
        raise TopologyError(f"{declared.verb} with a stream needs within=, the largest time between two records ({line}).")
    windows = join_windows(declared.within, declared.grace)
    key, value, other_value = given_serde(declared.key), given_serde(declared.value), given_serde(declared.other_value)
    kind, joiner, given, base = declared.kind, declared.by_key(), declared.name, declared.store_name
    here, there, draft = left.place, right.place, left.place.draft
    if here.rekeyed:
        here = left.behind_exchange(here.name if given is None else f"{given}-left", key, value, line)
    if there.rekeyed:
        there = right.behind_exchange(there.name if given is None else f"{given}-right", key, other_value, line)
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
        logged=declared.logging is not False,
        changelog_config=changelog_config(declared.logging),
    )

    def window(name: str, spec: StoreSpec) -> DraftNode:
        return DraftNode(name, line, one_processor(name, line, lambda: JoinWindowStore(spec.name), spec))

    draft.add(window(this_window, specs[0]), here.node)
    draft.add(window(other_window, specs[1]), there.node)

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
    return here.moved(merge, node, rekeyed=False, key=key or here.key, sources=here.sources | there.sources)


def _outer_store(generated: str, base: str | None, kind: JoinKind) -> str | None:
    """Return the shared store's name, made from the number of this side's generated name or from `store_name=`."""
    if kind == "inner":
        return None
    if base is not None:
        return f"{base}-{'outer' if kind == 'outer' else 'left'}-shared-join-store"
    return f"KSTREAM-OUTERSHARED-{generated[-10:]}-store"


def _with_table(left: StreamSide, right: TablePlace, declared: StreamJoin, line: Line) -> Place:
    declared.refuse("a table", line, "within", "on", "store_name", "logging")
    if declared.kind == "outer":
        raise TopologyError(f"A stream has no outer join with a table ({line}): use join or left_join.")
    is_left, given = declared.kind == "left", declared.name
    key, value = given_serde(declared.key), given_serde(declared.value)
    here, there = left.place, right.place
    if here.rekeyed:
        here = left.behind_exchange(here.name if given is None else given, key, value, line)
    draft = here.draft
    sources = here.sources | there.sources
    draft.copartitioned.append(sources)
    name = draft.name("KSTREAM-LEFTJOIN-" if is_left else "KSTREAM-JOIN-", given)
    grace_ms = None if declared.grace is None else duration_ms(declared.grace)
    buffer = None
    if grace_ms is not None:
        key_serde, value_serde = key or here.key or draft.default_key, value or here.value or draft.default_value
        buffer = join_buffer_spec(f"{name}-Buffer", key=key_serde, value=value_serde)
    operator = StreamTableJoin(there.name, declared.by_key(), is_left, grace_ms, None if buffer is None else buffer.name)
    stores = right.table.view_stores()

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(ProcessorNode(name, parents, operator, (), line))
        if buffer is not None:
            topology.add_state_store(buffer, name)
        topology.connect_processor_and_state_stores(name, *stores)
        if grace_ms is not None:
            _check_history(topology, stores, grace_ms, line)

    node = draft.add(DraftNode(name, line, write, relaxed_null_key_join=is_left), here.node)
    return here.moved(name, node, rekeyed=False, key=key or here.key, sources=sources)


def _check_history(topology: Topology, stores: list[str], grace_ms: int, line: Line) -> None:
    for store in stores:
        spec = topology.stores[store]
        if spec.kind is not StoreKind.VERSIONED:
            raise TopologyError(f"A join with grace= needs a versioned table ({line}): give the table a Store(history=...).")
        history_ms = spec.retention_ms or 0
        if grace_ms > history_ms:
            raise TopologyError(
                f"Store {store!r} has a history of {history_ms} ms; it must be at least as long as the join's grace of "
                f"{grace_ms} ms ({line})."
            )


def _with_global_table(here: Place, right: GlobalTable, declared: StreamJoin, line: Line) -> Place:
    verb, on, is_left = declared.verb, declared.on, declared.kind == "left"
    declared.refuse("a global table", line, "within", "grace", "key", "value", "other_value", "store_name", "logging")
    if declared.kind == "outer":
        raise TopologyError(f"A stream has no outer join with a global table ({line}): use join or left_join.")
    if on is None:
        raise TopologyError(
            f"{verb} with a global table needs on=, a function of (key, value) that returns the table's key ({line})."
        )
    if isinstance(on, Expression):
        on = computed(on, Form.VALUE, records_of(here), f"{verb}'s on=", line)
    checked(on, "key, value", f"{verb}'s on=", line)
    name = here.draft.name("KSTREAM-LEFTJOIN-", declared.name)
    place = here.below(name, StreamGlobalTableJoin(right.store_name, on, declared.by_key(), is_left), line)
    place.node.relaxed_null_key_join = is_left
    return place
