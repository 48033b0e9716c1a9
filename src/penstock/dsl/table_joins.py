"""Joins of two tables by key (inner, left, outer) and by foreign key (inner, left): the nodes of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from penstock.dsl.annotations import returned, value_made
from penstock.dsl.derived_tables import ignoring_key
from penstock.dsl.draft import DraftNode, one_processor
from penstock.dsl.expressions import computed, records_of, records_of_join, serde_for
from penstock.dsl.place import Place
from penstock.dsl.repartitions import ExchangeEnds
from penstock.dsl.stores import Store, materialized
from penstock.dsl.table_drafts import MergeDraft, SourceDraft, TableDraft, TablePlace, source_table_write
from penstock.errors import TopologyError
from penstock.expressions import Expression
from penstock.expressions.functions import Form
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
from penstock.processor import Operator
from penstock.serdes import Serde
from penstock.state import StoreSpec
from penstock.topology import Line, ProcessorNode, Topology
from penstock.topology.functions import checked

_SIDES: dict[JoinKind, tuple[JoinKind, JoinKind]] = {
    "inner": ("inner", "inner"),
    "left": ("left", "right"),
    "outer": ("outer", "outer"),
}


class JoinKeywords(TypedDict, total=False):
    """The keyword arguments of every join of tables."""

    store: str | Store | None
    value: Any
    name: str | None


@dataclass(frozen=True, slots=True)
class TableJoin:
    """The arguments of a join verb."""

    kind: JoinKind
    joiner: Any
    on: Callable[..., Any] | Expression[Any] | None = None
    with_key: bool = False
    store: str | Store | None = None
    value: Any = None
    name: str | None = None

    @property
    def verb(self) -> str:
        """The verb that was called."""
        return "join" if self.kind == "inner" else f"{self.kind}_join"


def join(left: TablePlace, right: object, declared: TableJoin, line: Line) -> TablePlace:
    """Join a table with a `TablePlace`, by key or by foreign key; reject anything else."""
    verb, on = declared.verb, declared.on
    if not isinstance(right, TablePlace):
        raise TopologyError(
            f"{verb} of a table takes another table, not {type(right).__name__} ({line}): convert a stream with to_table()."
        )
    left.place.check_same_builder(right.place, line)
    if isinstance(declared.joiner, Expression):
        records = records_of_join(left.place, right.place)
        found = computed(declared.joiner, Form.JOINED, records, verb, line)
        value = declared.value if declared.value is not None else serde_for(found, records, left.place)
        declared = replace(declared, joiner=found, value=value)
    checked(declared.joiner, "left, right", verb, line)
    declared = replace(declared, value=value_made(left.place.draft, declared.value, returned(declared.joiner), verb, line))
    if on is None:
        if declared.with_key:
            raise TopologyError(f"{verb} takes with_key= only together with on=, to which it passes the key ({line}).")
        return _by_key(left, right, declared, line)
    if isinstance(on, Expression):
        key_of = computed(on, Form.VALUE, records_of(left.place), f"{verb}'s on=", line, with_key=declared.with_key)
        return _by_foreign_key(left, right, key_of, declared, line)
    checked(on, "key, value" if declared.with_key else "value", f"{verb}'s on=", line)
    return _by_foreign_key(left, right, on if declared.with_key else ignoring_key(on), declared, line)


def _by_key(left: TablePlace, right: TablePlace, declared: TableJoin, line: Line) -> TablePlace:
    here, there, draft = left.place, right.place, left.place.draft
    kind, joiner, given = declared.kind, declared.joiner, declared.name
    kept = None
    if declared.store is not None:
        kept = materialized(draft, declared.store, "KTABLE-MERGE-")
        kept.key, kept.value = kept.key or here.key, kept.value or declared.value
    merge = draft.name("KTABLE-MERGE-", given)
    draft.copartitioned.append(here.sources | there.sources)
    if kind in ("left", "outer"):
        left.table.send_old_values(force=True)
    if kind == "outer":
        right.table.send_old_values(force=True)
    this_side = draft.name("KTABLE-JOINTHIS-", given, "-join-this")
    other_side = draft.name("KTABLE-JOINOTHER-", given, "-join-other")
    this_kind, other_kind = _SIDES[kind]
    table = MergeDraft([left.table, right.table], kept)
    left_stores, right_stores = left.table.view_stores(), right.table.view_stores()
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
    value_serde = kept.value if kept is not None else declared.value
    key = kept.key if kept is not None else here.key
    place = here.moved(merge, node, key=key, value=value_serde, sources=here.sources | there.sources)
    return TablePlace(place, table, None if kept is None else kept.store_name)


def _by_foreign_key(
    left: TablePlace, right: TablePlace, extractor: Callable[[Any, Any], Any], declared: TableJoin, line: Line
) -> TablePlace:
    """Look up an entry on the foreign key's lane and send it to the primary key's: eight nodes and two exchanges."""
    here, is_left = left.place, declared.kind == "left"
    right.table.send_old_values(force=True)
    left.table.send_old_values(force=True)
    join = _ForeignKeyJoin(here, right.place, line, declared.name)
    subscription = join.subscribe(extractor, is_left)
    answers = join.look_up(subscription, right.table)
    response = join.respond(answers)
    resolved = join.resolve(response, left.table, declared.joiner, is_left)
    result = join.named("OUTPUT-", "-result")
    kept = materialized(here.draft, declared.store, f"{_FK}OUTPUT-")
    kept.key, kept.value = kept.key or here.key, kept.value or declared.value
    table = SourceDraft(kept, kept.is_queryable)
    write = source_table_write(here.draft, result, table, line)
    node = here.draft.add(DraftNode(result, line, write, output_versioned=kept.is_versioned), resolved)
    place = here.moved(result, node, value=kept.value, sources=here.sources | {response.name})
    return TablePlace(place, table, kept.queryable_name)


_FK = "KTABLE-FK-JOIN-"


class _ForeignKeyJoin:
    """The steps of a foreign-key join, in the order in which Kafka Streams names them."""

    def __init__(self, here: Place, there: Place, line: Line, given: str | None) -> None:
        self.draft = draft = here.draft
        self.here, self.there, self.line, self.given = here, there, line, given
        self.primary_key, self.foreign_key = here.key or draft.default_key, there.key or draft.default_key
        self.primary_value, self.foreign_value = here.value or draft.default_value, there.value or draft.default_value

    def named(self, kind: str, suffix: str, prefix: str = _FK) -> str:
        """Return the next generated name, or the given one with its suffix."""
        return self.draft.name(prefix + kind, self.given, suffix)

    def subscribe(self, extractor: Callable[[Any, Any], Any], is_left: bool) -> DraftNode:
        """Subscribe each entry on the lane of its foreign key."""
        topic = self.named("SUBSCRIPTION-REGISTRATION-", "-subscription-registration") + "-topic"
        send = self.named("SUBSCRIPTION-REGISTRATION-", "-subscription-registration-processor")
        versioned: list[str] = []
        node = self._node(
            send,
            lambda: SubscriptionSend(extractor, self.foreign_key, self.primary_value, is_left, bool(versioned)),
            self.here.node,
        )
        node.on_versioned_parent = versioned.append
        exchange = self._exchange("subscription-registration", topic, self.foreign_key, SubscriptionSerde(self.primary_key))
        self.draft.copartitioned.append(self.there.sources | {exchange.name})
        return self.draft.add(exchange, node)

    def look_up(self, subscription: DraftNode, foreign: TableDraft) -> tuple[DraftNode, DraftNode]:
        """Keep the subscriptions; answer a new one from the foreign table, and all those of a key when its entry changes."""
        store = self.named("SUBSCRIPTION-STATE-STORE-", "-subscription-store")
        receive = self.named("SUBSCRIPTION-PROCESSOR-", "-subscription-receive")
        spec = subscription_store_spec(store)
        receiver = SubscriptionReceive(store, self.foreign_key, self.primary_key)
        received = self._node(receive, lambda: receiver, subscription, spec)
        foreign_stores = foreign.view_stores()
        lookup = self.named("SUBSCRIPTION-PROCESSOR-", "-subscription-join-foreign")
        looked_up = self._node(lookup, lambda: SubscriptionJoin(self.there.name), received, stores=foreign_stores)
        change = self.named("SUBSCRIPTION-PROCESSOR-", "-foreign-join-subscription")
        versioned: list[str] = []
        changed = self._node(
            change,
            lambda: ForeignTableJoin(store, self.foreign_key, self.primary_key, bool(versioned)),
            self.there.node,
            spec,
        )
        changed.on_versioned_parent = versioned.append
        return looked_up, changed

    def respond(self, answers: tuple[DraftNode, DraftNode]) -> DraftNode:
        """Send the answers back to the lane of the primary key."""
        topic = self.named("SUBSCRIPTION-RESPONSE-", "-subscription-response") + "-topic"
        exchange = self._exchange("subscription-response", topic, self.primary_key, ResponseSerde(self.foreign_value))
        self.draft.copartitioned.append(self.here.sources | {exchange.name})
        return self.draft.add(exchange, *answers)

    def resolve(self, response: DraftNode, primary: TableDraft, joiner: Callable[[Any, Any], Any], is_left: bool) -> DraftNode:
        """Join an answer with its entry, unless the entry has changed since it subscribed."""
        stores = primary.view_stores()
        resolve = self.named("SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-", "-subscription-response-resolver")
        operator = ResponseJoin(self.here.name, self.primary_value, joiner, is_left)
        return self._node(resolve, lambda: operator, response, stores=stores)

    def _exchange(self, what: str, topic: str, key: Serde[Any], value: Serde[Any]) -> DraftNode:
        sink = self.named("KTABLE-SINK-", f"-{what}-sink", prefix="")
        source = self.named("KTABLE-SOURCE-", f"-{what}-source", prefix="")
        return ExchangeEnds(topic, sink, source, key, value, self.line).node()

    def _node(
        self, name: str, operator: Callable[[], Operator], parent: DraftNode, *specs: StoreSpec, stores: Sequence[str] = ()
    ) -> DraftNode:
        write = one_processor(name, self.line, operator, *specs, stores=stores)
        return self.draft.add(DraftNode(name, self.line, write), parent)
