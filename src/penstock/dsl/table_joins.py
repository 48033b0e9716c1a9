"""The three ways tables join by key, and the two by foreign key: the nodes they need."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.dsl.draft import DraftNode
from penstock.dsl.functions import checked
from penstock.dsl.place import given_serde
from penstock.dsl.repartitions import write_exchange
from penstock.dsl.stores import Store, materialized
from penstock.dsl.table_drafts import MergeDraft, SourceDraft, source_table_write
from penstock.errors import TopologyError
from penstock.operators.foreign_keys import (
    ForeignTableJoin,
    ResponseJoin,
    ResponseSerde,
    SubscriptionJoin,
    SubscriptionReceive,
    SubscriptionSend,
    SubscriptionSerde,
    subscription_store_spec,
)
from penstock.operators.table_joins import JoinKind, TableJoinMerger, TableJoinSide
from penstock.topology import Line, ProcessorNode, Topology

if TYPE_CHECKING:
    from penstock.dsl.tables import KTable


_SIDES: dict[str, tuple[JoinKind, JoinKind]] = {
    "inner": ("inner", "inner"),
    "left": ("left", "right"),
    "outer": ("outer", "outer"),
}


def join(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    joiner: Callable[[Any, Any], Any],
    kind: str,
    line: Line,
    *,
    on: Callable[..., Any] | None = None,
    with_key: bool = False,
    store: str | Store | None = None,
    value: Any = None,
    name: str | None = None,
) -> KTable[Any, Any]:
    """A join of tables, by key or by foreign key."""
    verb = f"{kind}_join" if kind != "inner" else "join"
    checked(joiner, "left, right", verb, line)
    if on is None:
        return _by_key(left, right, joiner, kind, line, store, value, name)
    if kind == "outer":
        raise TopologyError(f"a foreign-key join is an inner or a left join ({line})")
    checked(on, "key, value" if with_key else "value", f"{verb}'s on=", line)
    extractor = on if with_key else _of_value(on)
    return _by_foreign_key(left, right, extractor, joiner, kind == "left", line, store, value, name)


def _of_value(on: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def extractor(key: Any, value: Any) -> Any:
        return on(value)

    return extractor


def _by_key(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    joiner: Callable[[Any, Any], Any],
    kind: str,
    line: Line,
    store: str | Store | None,
    value: Any,
    given: str | None,
) -> KTable[Any, Any]:
    here, there = left._place, right._place
    draft = here.draft
    kept = None
    if store is not None:
        kept = materialized(draft, store, "KTABLE-MERGE-")
        kept.key, kept.value = kept.key or here.key, kept.value or given_serde(value)
    merge = draft.name("KTABLE-MERGE-", given)
    draft.copartitioned.append(here.sources | there.sources)
    if kind in ("left", "outer"):
        left._table.send_old_values(force=True)
    if kind == "outer":
        right._table.send_old_values(force=True)
    this_side = draft.name("KTABLE-JOINTHIS-", given, "-join-this")
    other_side = draft.name("KTABLE-JOINOTHER-", given, "-join-other")
    this_kind, other_kind = _SIDES[kind]
    table = MergeDraft([left._table, right._table], kept)
    left_stores, right_stores = left._table.view_stores(), right._table.view_stores()
    versioned: set[str] = set()

    def write(topology: Topology, parents: tuple[str, ...]) -> None:
        old = table.sends_old_values
        this_join = TableJoinSide(this_kind, here.name, there.name, joiner, False, old, here.node.name in versioned)
        other_join = TableJoinSide(other_kind, there.name, here.name, joiner, True, old, there.node.name in versioned)
        merger = TableJoinMerger(this_side, other_side, None if kept is None else kept.store_name, old)
        topology.add_node(ProcessorNode(this_side, (here.name,), this_join, (), line))
        topology.add_node(ProcessorNode(other_side, (there.name,), other_join, (), line))
        topology.add_node(ProcessorNode(merge, (this_side, other_side), merger, (), line))
        if kept is not None:
            topology.add_state_store(kept.table_spec(draft), merge)
        topology.connect_processor_and_state_stores(this_side, *right_stores)
        topology.connect_processor_and_state_stores(other_side, *left_stores)

    is_versioned = kept is not None and kept.is_versioned
    node = DraftNode(merge, line, write, output_versioned=is_versioned, on_versioned_parent=versioned.add)
    draft.add(node, here.node, there.node)
    value_serde = kept.value if kept is not None else given_serde(value)
    key = kept.key if kept is not None else here.key
    place = here.moved(merge, node, key=key, value=value_serde, sources=here.sources | there.sources)
    return draft.handles.table(place, table, None if kept is None else kept.store_name)


def _by_foreign_key(
    left: KTable[Any, Any],
    right: KTable[Any, Any],
    extractor: Callable[[Any, Any], Any],
    joiner: Callable[[Any, Any], Any],
    is_left: bool,
    line: Line,
    store: str | Store | None,
    value: Any,
    given: str | None,
) -> KTable[Any, Any]:
    here, there = left._place, right._place
    draft = here.draft
    right._table.send_old_values(force=True)
    left._table.send_old_values(force=True)
    primary_key, foreign_key = here.key or draft.default_key, there.key or draft.default_key
    primary_value, foreign_value = here.value or draft.default_value, there.value or draft.default_value
    subscription, response = SubscriptionSerde(primary_key), ResponseSerde(foreign_value)
    prefix = "KTABLE-FK-JOIN-"

    def named(kind: str, suffix: str) -> str:
        return draft.name(kind, given, suffix)

    topic = named(f"{prefix}SUBSCRIPTION-REGISTRATION-", "-subscription-registration") + "-topic"
    send = named(f"{prefix}SUBSCRIPTION-REGISTRATION-", "-subscription-registration-processor")
    send_versioned: list[str] = []
    join_versioned: list[str] = []

    def write_send(topology: Topology, parents: tuple[str, ...]) -> None:
        operator = SubscriptionSend(extractor, foreign_key, primary_value, is_left, bool(send_versioned))
        topology.add_node(ProcessorNode(send, parents, operator, (), line))

    send_node = draft.add(DraftNode(send, line, write_send, on_versioned_parent=send_versioned.append), here.node)
    sink = named("KTABLE-SINK-", "-subscription-registration-sink")
    source = named("KTABLE-SOURCE-", "-subscription-registration-source")

    def write_subscription(topology: Topology, parents: tuple[str, ...]) -> None:
        write_exchange(topology, parents, topic, sink, source, foreign_key, subscription, line)

    subscription_node = draft.add(DraftNode(source, line, write_subscription), send_node)
    draft.copartitioned.append(there.sources | {source})
    store_name = named(f"{prefix}SUBSCRIPTION-STATE-STORE-", "-subscription-store")
    receive = named(f"{prefix}SUBSCRIPTION-PROCESSOR-", "-subscription-receive")
    spec = subscription_store_spec(store_name)

    def write_receive(topology: Topology, parents: tuple[str, ...]) -> None:
        operator = SubscriptionReceive(store_name, foreign_key, primary_key)
        topology.add_node(ProcessorNode(receive, parents, operator, (), line))
        topology.add_state_store(spec, receive)

    receive_node = draft.add(DraftNode(receive, line, write_receive), subscription_node)
    foreign_stores = right._table.view_stores()
    lookup = named(f"{prefix}SUBSCRIPTION-PROCESSOR-", "-subscription-join-foreign")

    def write_lookup(topology: Topology, parents: tuple[str, ...]) -> None:
        topology.add_node(ProcessorNode(lookup, parents, SubscriptionJoin(there.name), (), line))
        topology.connect_processor_and_state_stores(lookup, *foreign_stores)

    lookup_node = draft.add(DraftNode(lookup, line, write_lookup), receive_node)
    foreign = named(f"{prefix}SUBSCRIPTION-PROCESSOR-", "-foreign-join-subscription")

    def write_foreign(topology: Topology, parents: tuple[str, ...]) -> None:
        operator = ForeignTableJoin(store_name, foreign_key, primary_key, bool(join_versioned))
        topology.add_node(ProcessorNode(foreign, parents, operator, (), line))
        topology.add_state_store(spec, foreign)

    foreign_node = draft.add(DraftNode(foreign, line, write_foreign, on_versioned_parent=join_versioned.append), there.node)
    response_topic = named(f"{prefix}SUBSCRIPTION-RESPONSE-", "-subscription-response") + "-topic"
    response_sink = named("KTABLE-SINK-", "-subscription-response-sink")
    response_source = named("KTABLE-SOURCE-", "-subscription-response-source")

    def write_response(topology: Topology, parents: tuple[str, ...]) -> None:
        write_exchange(topology, parents, response_topic, response_sink, response_source, primary_key, response, line)

    response_node = draft.add(DraftNode(response_source, line, write_response), lookup_node, foreign_node)
    sources = here.sources | {response_source}
    draft.copartitioned.append(sources)
    primary_stores = left._table.view_stores()
    resolve = named(f"{prefix}SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-", "-subscription-response-resolver")

    def write_resolve(topology: Topology, parents: tuple[str, ...]) -> None:
        operator = ResponseJoin(here.name, primary_value, joiner, is_left)
        topology.add_node(ProcessorNode(resolve, parents, operator, (), line))
        topology.connect_processor_and_state_stores(resolve, *primary_stores)

    resolve_node = draft.add(DraftNode(resolve, line, write_resolve), response_node)
    result = named(f"{prefix}OUTPUT-", "-result")
    kept = materialized(draft, store, f"{prefix}OUTPUT-")
    kept.key, kept.value = kept.key or here.key, kept.value or given_serde(value)
    table = SourceDraft(kept, kept.is_queryable)
    node = DraftNode(result, line, source_table_write(draft, result, table, line), output_versioned=kept.is_versioned)
    draft.add(node, resolve_node)
    place = here.moved(result, node, value=kept.value, sources=sources)
    return draft.handles.table(place, table, kept.store_name if kept.is_queryable else None)
