"""`KStream`: an endless sequence of records; every verb adds one node and returns a new handle."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from penstock.dsl import stream_joins
from penstock.dsl.asynchronous import AsyncVerbs
from penstock.dsl.draft import DraftNode
from penstock.dsl.place import Place, given_serde
from penstock.dsl.repartitions import exchanged, repartition
from penstock.dsl.side_outputs import ExchangedSender, Sender
from penstock.dsl.stores import Store, materialized
from penstock.dsl.table_drafts import SourceDraft, source_table_write
from penstock.errors import TopologyError
from penstock.operators.lateness import OnlyLate
from penstock.operators.printer import Print
from penstock.operators.processors import ProcessorOperator, Supplier, sets_timers
from penstock.operators.shared import AtomicProcessing
from penstock.operators.stateless import Branch, Filter, FlatMap, FlatMapValues, Map, MapValues, PassThrough, Peek, SelectKey
from penstock.operators.timers import timers_spec
from penstock.processor import FixedKeyProcessor, Processor
from penstock.records import RecordContext
from penstock.serdes import Serde
from penstock.state import StoreSpec
from penstock.topology import Line, ProcessorNode, SinkNode, Topology, user_line
from penstock.topology.functions import checked

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock.dsl.grouped import KGroupedStream
    from penstock.dsl.stream_joins import WithStream, WithTable
    from penstock.dsl.tables import GlobalKTable, KTable
    from penstock.timing import Duration

# Records come out of a stream and never go in, so a stream of a subclass is a stream of its base. Verbs that take the serde of
# what is on the stream know it as `KStream[K2 | None, V2 | None]`: null needs no serde.
K = TypeVar("K", covariant=True)
V = TypeVar("V", covariant=True)
K2 = TypeVar("K2")
V2 = TypeVar("V2")
V3 = TypeVar("V3")


def otherwise(key: Any, value: Any) -> bool:
    """The predicate of a `split`'s default branch."""
    return True


class KStream(AsyncVerbs[K, V]):
    """A stream of records with keys of type `K` and values of type `V`."""

    __slots__ = ("_exchanged", "_place", "_sender", "_source")

    def __init__(self, place: Place, sender: Sender | None = None, source: Place | None = None) -> None:
        self._place = place
        self._sender = sender
        self._source = source
        self._exchanged: Place | None = None

    # ---- the source -----------------------------------------------------------------------------------------------

    def late_records(self, *, name: str | None = None) -> KStream[K, V]:
        """The records of a source that came after its watermark, whatever else becomes of them.

        Example:
            >>> from penstock import StreamsBuilder, bounded_disorder, log_and_continue
            >>> clicks = StreamsBuilder().stream("clicks", watermark=bounded_disorder("10s"), late=log_and_continue())
            >>> clicks.late_records().to("clicks-late")
        """
        line = user_line()
        if self._source is None:
            raise TopologyError(f"{self._place.name} has no late records: ask the stream that was read with watermark= ({line})")
        return KStream(self._source.below(self._name("KSTREAM-LATE-", name), OnlyLate(), line))

    # ---- stateless ------------------------------------------------------------------------------------------------

    def filter(self, predicate: Callable[[K, V], Any], *, name: str | None = None) -> KStream[K, V]:
        """Keep records for which `predicate(key, value)` holds.

        Example:
            >>> from penstock import StreamsBuilder
            >>> big = StreamsBuilder().stream("orders").filter(lambda _, order: order["total"] > 1000)
        """
        line = user_line()
        operator = Filter(checked(predicate, "key, value", "filter", line))
        return KStream(self._place.below(self._name("KSTREAM-FILTER-", name), operator, line))

    def filter_not(self, predicate: Callable[[K, V], Any], *, name: str | None = None) -> KStream[K, V]:
        """Keep records for which `predicate(key, value)` does not hold."""
        line = user_line()
        operator = Filter(checked(predicate, "key, value", "filter_not", line), negate=True)
        return KStream(self._place.below(self._name("KSTREAM-FILTER-", name), operator, line))

    def select_key(self, mapper: Callable[[K, V], K2], *, key: Any = None, name: str | None = None) -> KStream[K2, V]:
        """Replace the key; `key=` says the new key's type."""
        line = user_line()
        operator = SelectKey(checked(mapper, "key, value", "select_key", line))
        name = self._name("KSTREAM-KEY-SELECT-", name)
        return KStream(self._place.below(name, operator, line, rekeyed=True, key=given_serde(key)))

    def map(
        self, mapper: Callable[[K, V], tuple[K2, V2]], *, key: Any = None, value: Any = None, name: str | None = None
    ) -> KStream[K2, V2]:
        """Replace key and value with the pair that `mapper(key, value)` returns."""
        line = user_line()
        operator = Map(checked(mapper, "key, value", "map", line))
        name = self._name("KSTREAM-MAP-", name)
        return KStream(self._place.below(name, operator, line, rekeyed=True, key=given_serde(key), value=given_serde(value)))

    @overload
    def map_values(
        self, mapper: Callable[[V], V2], *, with_key: Literal[False] = ..., value: Any = ..., name: str | None = ...
    ) -> KStream[K, V2]: ...

    @overload
    def map_values(
        self, mapper: Callable[[K, V], V2], *, with_key: Literal[True], value: Any = ..., name: str | None = ...
    ) -> KStream[K, V2]: ...

    def map_values(
        self, mapper: Callable[..., V2], *, with_key: bool = False, value: Any = None, name: str | None = None
    ) -> KStream[K, V2]:
        """Replace the value with `mapper(value)`, or `mapper(key, value)` with `with_key=True`."""
        line = user_line()
        operator = MapValues(checked(mapper, "key, value" if with_key else "value", "map_values", line), with_key)
        return KStream(self._place.below(self._name("KSTREAM-MAPVALUES-", name), operator, line, value=given_serde(value)))

    def flat_map(
        self, mapper: Callable[[K, V], Iterable[tuple[K2, V2]]], *, key: Any = None, value: Any = None, name: str | None = None
    ) -> KStream[K2, V2]:
        """Replace a record with all `(key, value)` pairs that `mapper(key, value)` gives."""
        line = user_line()
        operator = FlatMap(checked(mapper, "key, value", "flat_map", line))
        name = self._name("KSTREAM-FLATMAP-", name)
        return KStream(self._place.below(name, operator, line, rekeyed=True, key=given_serde(key), value=given_serde(value)))

    @overload
    def flat_map_values(
        self, mapper: Callable[[V], Iterable[V2]], *, with_key: Literal[False] = ..., value: Any = ..., name: str | None = ...
    ) -> KStream[K, V2]: ...

    @overload
    def flat_map_values(
        self, mapper: Callable[[K, V], Iterable[V2]], *, with_key: Literal[True], value: Any = ..., name: str | None = ...
    ) -> KStream[K, V2]: ...

    def flat_map_values(
        self, mapper: Callable[..., Iterable[V2]], *, with_key: bool = False, value: Any = None, name: str | None = None
    ) -> KStream[K, V2]:
        """Replace a value with all values that `mapper(value)` gives; the key stays."""
        line = user_line()
        operator = FlatMapValues(checked(mapper, "key, value" if with_key else "value", "flat_map_values", line), with_key)
        return KStream(self._place.below(self._name("KSTREAM-FLATMAPVALUES-", name), operator, line, value=given_serde(value)))

    def peek(self, action: Callable[[K, V], object], *, name: str | None = None) -> KStream[K, V]:
        """Call `action(key, value)` for every record and pass the record on."""
        line = user_line()
        operator = Peek(checked(action, "key, value", "peek", line))
        return KStream(self._place.below(self._name("KSTREAM-PEEK-", name), operator, line))

    def foreach(self, action: Callable[[K, V], object], *, name: str | None = None) -> None:
        """Call `action(key, value)` for every record; the stream ends here."""
        line = user_line()
        operator = Peek(checked(action, "key, value", "foreach", line))
        self._place.below(self._name("KSTREAM-FOREACH-", name), operator, line)

    def print(
        self,
        *,
        label: str | None = None,
        file: str | None = None,
        mapper: Callable[[K, V], str] | None = None,
        name: str | None = None,
    ) -> None:
        """Write every record as text to standard output, or append it to a file."""
        line = user_line()
        if mapper is not None:
            checked(mapper, "key, value", "print", line)
        operator = Print(label if label is not None else self._place.name, file, mapper)
        self._place.below(self._name("KSTREAM-PRINTER-", name), operator, line)

    @overload
    def split(
        self, predicate: Callable[[K, V], Any], /, *predicates: Callable[[K, V], Any], name: str | None = ...
    ) -> tuple[KStream[K, V], ...]: ...

    @overload
    def split(self, *, name: str | None = ..., **named: Callable[[K, V], Any]) -> dict[str, KStream[K, V]]: ...

    def split(
        self, *predicates: Callable[[K, V], Any], name: str | None = None, **named: Callable[[K, V], Any]
    ) -> tuple[KStream[K, V], ...] | dict[str, KStream[K, V]]:
        """Send each record to the first branch whose predicate holds; `otherwise` is the default branch.

        With positional predicates the result is a tuple of streams, with named ones a dict of streams by name.

        Example:
            >>> from penstock import StreamsBuilder, otherwise
            >>> orders = StreamsBuilder().stream("orders")
            >>> big, small = orders.split(lambda _, o: o["total"] > 1000, otherwise)
            >>> sorted(orders.split(big=lambda _, o: o["total"] > 1000, rest=otherwise))
            ['big', 'rest']
        """
        line = user_line()
        if bool(predicates) == bool(named):
            raise TopologyError(f"split needs predicates, either positional or named ({line})")
        splitter = self._name("KSTREAM-BRANCH-", name)
        branches: list[tuple[Callable[[Any, Any], Any], str]] = []
        names: list[str] = []
        default: str | None = None
        for number, (label, predicate) in enumerate([*((None, p) for p in predicates), *named.items()], start=1):
            checked(predicate, "key, value", "split", line)
            if predicate is otherwise:
                default = child = splitter + (label if label is not None else "0")
                if number != len(predicates) + len(named):
                    raise TopologyError(f"otherwise must be the last branch of a split ({line})")
            else:
                child = splitter + (label if label is not None else str(number))
                branches.append((predicate, child))
            names.append(child)
        place = self._place.below(splitter, Branch(tuple(branches), default), line)
        streams: list[KStream[K, V]] = []
        for child in names:
            self._place.draft.name(child)
            streams.append(KStream(place.below(child, PassThrough(), line)))
        return dict(zip(named, streams, strict=True)) if named else tuple(streams)

    def merge(self, other: KStream[K, V], *, name: str | None = None) -> KStream[K, V]:
        """One stream of the records of both; the order between the two is not defined."""
        line = user_line()
        if not isinstance(other, KStream):
            raise TopologyError(f"merge takes another stream, not {type(other).__name__} ({line}); a table has to_stream()")
        self._place.check_same_builder(other._place, line)
        name = self._name("KSTREAM-MERGE-", name)
        here, there = self._place, other._place

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_node(ProcessorNode(name, parents, PassThrough(), (), line))

        node = here.draft.add(DraftNode(name, line, write), here.node, there.node)
        place = here.moved(name, node, rekeyed=here.rekeyed or there.rekeyed, sources=here.sources | there.sources)
        return KStream(place)

    def repartition(
        self: KStream[K2 | None, V2 | None],
        *,
        name: str | None = None,
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        partitions: int | None = None,
        partitioner: Callable[[str, K, V, int], int | Collection[int] | None] | None = None,
    ) -> KStream[K, V]:
        """Bring records with the same key together now, rather than where an aggregation or a join needs it.

        `partitions` is kept for Kafka Streams' sake: lanes do not depend on it.
        """
        line = user_line()
        here = self._place
        if partitioner is not None:
            checked(partitioner, "topic, key, value, partitions", "partitioner=", line)
        prefix = name if name is not None else here.draft.name("KSTREAM-REPARTITION-")
        serdes = {"key": given_serde(key) or here.key, "value": given_serde(value) or here.value}
        exchange = repartition(here.draft, prefix, **serdes, line=line, partitions=partitions, partitioner=partitioner)
        node = here.draft.add(exchange.node(), here.node)
        place = here.moved(exchange.source, node, rekeyed=False, sources=frozenset({exchange.source}), **serdes)
        return KStream(place)

    # ---- out ------------------------------------------------------------------------------------------------------

    def to(
        self: KStream[K2 | None, V2 | None],
        topic: str | Callable[[K, V, RecordContext], str],
        *,
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        partitioner: Callable[[str, K, V, int], int | Collection[int] | None] | None = None,
        name: str | None = None,
    ) -> None:
        """Write the stream to a topic, or to the topic that `topic(key, value, context)` names for each record."""
        line = user_line()
        here = self._place
        if not isinstance(topic, str):
            checked(topic, "key, value, context", "to", line)
        if partitioner is not None:
            checked(partitioner, "topic, key, value, partitions", "partitioner=", line)
        sink = self._name("KSTREAM-SINK-", name)
        key_serde = given_serde(key) or here.key or here.draft.default_key
        value_serde = given_serde(value) or here.value or here.draft.default_value

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_node(SinkNode(sink, parents, topic, key_serde, value_serde, line, partitioner))

        here.draft.add(DraftNode(sink, line, write), here.node)

    def to_table(
        self: KStream[K2 | None, V2 | None],
        *,
        store: str | Store | None = None,
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Read the stream as changes of a table: the last value of a key counts, a null value deletes it."""
        line = user_line()
        here = self._place
        given = name
        name = self._name("KSTREAM-TOTABLE-", name)
        kept = materialized(here.draft, store, "KSTREAM-TOTABLE-")
        kept.key = given_serde(key) or kept.key or here.key
        kept.value = given_serde(value) or kept.value or here.value
        parent, sources = here.node, here.sources
        if here.rekeyed:
            exchange = repartition(here.draft, name if given is None else given, kept.key, kept.value, line)
            parent = here.draft.add(exchange.node(), here.node)
            sources = frozenset({exchange.source})
        table = SourceDraft(kept, kept.is_queryable)
        write = source_table_write(here.draft, name, table, line)
        node = here.draft.add(DraftNode(name, line, write, output_versioned=kept.is_versioned), parent)
        place = here.moved(name, node, rekeyed=False, key=kept.key, value=kept.value, sources=sources)
        return here.draft.handles.table(place, table, kept.queryable_name)

    # ---- grouping -------------------------------------------------------------------------------------------------

    def group_by_key(
        self: KStream[K2 | None, V2 | None],
        *,
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K, V]:
        """Group records by their key, to aggregate them."""
        here = self._place
        place = replace(here, key=given_serde(key) or here.key, value=given_serde(value) or here.value)
        return here.draft.handles.grouped_stream(place, name)

    def group_by(
        self: KStream[K, V2 | None],
        selector: Callable[[K, V], K2],
        *,
        key: Any = None,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K2, V]:
        """Group records by `selector(key, value)`, to aggregate them; `key=` says the new key's type."""
        line = user_line()
        operator = SelectKey(checked(selector, "key, value", "group_by", line))
        node_name = self._name("KSTREAM-KEY-SELECT-", name)
        value_serde = given_serde(value) or self._place.value
        place = self._place.below(node_name, operator, line, rekeyed=True, key=given_serde(key), value=value_serde)
        return place.draft.handles.grouped_stream(place, name)

    # ---- joins ----------------------------------------------------------------------------------------------------

    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2], V3],
        *,
        within: Duration | tuple[Duration, Duration],
        with_key: Literal[False] = ...,
        **more: Unpack[WithStream],
    ) -> KStream[K, V3]: ...

    @overload
    def join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2], V3],
        *,
        within: Duration | tuple[Duration, Duration],
        with_key: Literal[True],
        **more: Unpack[WithStream],
    ) -> KStream[K, V3]: ...

    @overload
    def join(
        self, other: KTable[K, V2], joiner: Callable[[V, V2], V3], *, with_key: Literal[False] = ..., **more: Unpack[WithTable]
    ) -> KStream[K, V3]: ...

    @overload
    def join(
        self, other: KTable[K, V2], joiner: Callable[[K, V, V2], V3], *, with_key: Literal[True], **more: Unpack[WithTable]
    ) -> KStream[K, V3]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[V, V2], V3],
        *,
        on: Callable[[K, V], K2 | None],
        with_key: Literal[False] = ...,
        name: str | None = ...,
    ) -> KStream[K, V3]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[K, V, V2], V3],
        *,
        on: Callable[[K, V], K2 | None],
        with_key: Literal[True],
        name: str | None = ...,
    ) -> KStream[K, V3]: ...

    def join(
        self,
        other: Any,
        joiner: Callable[..., Any],
        *,
        within: Duration | tuple[Duration, Duration] | None = None,
        grace: Duration | None = None,
        on: Callable[[K, V], Any] | None = None,
        with_key: bool = False,
        key: Any = None,
        value: Any = None,
        other_value: Any = None,
        name: str | None = None,
        store_name: str | None = None,
        logging: bool | Mapping[str, str] | None = None,
    ) -> KStream[K, Any]:
        """Join with a stream (`within=`), a table, or a global table (`on=`); only matches come out.

        `joiner(left, right)` makes the result, `joiner(key, left, right)` with `with_key=True`. `within` is how far apart
        in event time two records may be, the same both ways or as `(before, after)`; `grace` how late they may come. Over
        a versioned table `grace` delays the stream, so that the table's late changes are seen.

        Example:
            >>> from penstock import StreamsBuilder
            >>> builder = StreamsBuilder()
            >>> orders, payments = builder.stream("orders"), builder.stream("payments")
            >>> paid = orders.join(payments, lambda order, payment: {**order, **payment}, within="10m", grace="1m")
        """
        return stream_joins.join(
            self,
            other,
            joiner,
            "inner",
            user_line(),
            within=within,
            grace=grace,
            on=on,
            with_key=with_key,
            key=key,
            value=value,
            other_value=other_value,
            name=name,
            store_name=store_name,
            logging=logging,
        )

    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V, V2 | None], V3],
        *,
        within: Duration | tuple[Duration, Duration],
        with_key: Literal[False] = ...,
        **more: Unpack[WithStream],
    ) -> KStream[K, V3]: ...

    @overload
    def left_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V, V2 | None], V3],
        *,
        within: Duration | tuple[Duration, Duration],
        with_key: Literal[True],
        **more: Unpack[WithStream],
    ) -> KStream[K, V3]: ...

    @overload
    def left_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V, V2 | None], V3],
        *,
        with_key: Literal[False] = ...,
        **more: Unpack[WithTable],
    ) -> KStream[K, V3]: ...

    @overload
    def left_join(
        self, other: KTable[K, V2], joiner: Callable[[K, V, V2 | None], V3], *, with_key: Literal[True], **more: Unpack[WithTable]
    ) -> KStream[K, V3]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[V, V2 | None], V3],
        *,
        on: Callable[[K, V], K2 | None],
        with_key: Literal[False] = ...,
        name: str | None = ...,
    ) -> KStream[K, V3]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[K, V, V2 | None], V3],
        *,
        on: Callable[[K, V], K2 | None],
        with_key: Literal[True],
        name: str | None = ...,
    ) -> KStream[K, V3]: ...

    def left_join(
        self,
        other: Any,
        joiner: Callable[..., Any],
        *,
        within: Duration | tuple[Duration, Duration] | None = None,
        grace: Duration | None = None,
        on: Callable[[K, V], Any] | None = None,
        with_key: bool = False,
        key: Any = None,
        value: Any = None,
        other_value: Any = None,
        name: str | None = None,
        store_name: str | None = None,
        logging: bool | Mapping[str, str] | None = None,
    ) -> KStream[K, Any]:
        """As `join`, but every left record comes out: without a match the joiner gets None on the right."""
        return stream_joins.join(
            self,
            other,
            joiner,
            "left",
            user_line(),
            within=within,
            grace=grace,
            on=on,
            with_key=with_key,
            key=key,
            value=value,
            other_value=other_value,
            name=name,
            store_name=store_name,
            logging=logging,
        )

    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[V | None, V2 | None], V3],
        *,
        within: Duration | tuple[Duration, Duration],
        with_key: Literal[False] = ...,
        **more: Unpack[WithStream],
    ) -> KStream[K, V3]: ...

    @overload
    def outer_join(
        self,
        other: KStream[K, V2],
        joiner: Callable[[K, V | None, V2 | None], V3],
        *,
        within: Duration | tuple[Duration, Duration],
        with_key: Literal[True],
        **more: Unpack[WithStream],
    ) -> KStream[K, V3]: ...

    def outer_join(
        self,
        other: KStream[Any, Any],
        joiner: Callable[..., Any],
        *,
        within: Duration | tuple[Duration, Duration] | None = None,
        grace: Duration | None = None,
        with_key: bool = False,
        key: Any = None,
        value: Any = None,
        other_value: Any = None,
        name: str | None = None,
        store_name: str | None = None,
        logging: bool | Mapping[str, str] | None = None,
    ) -> KStream[K, Any]:
        """As `join` with a stream, but every record of both sides comes out."""
        return stream_joins.join(
            self,
            other,
            joiner,
            "outer",
            user_line(),
            within=within,
            grace=grace,
            with_key=with_key,
            key=key,
            value=value,
            other_value=other_value,
            name=name,
            store_name=store_name,
            logging=logging,
        )

    # ---- processors -----------------------------------------------------------------------------------------------

    def process(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        *,
        stores: Iterable[str] = (),
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Run a `Processor`, with the stores it names; it may change keys, values, timestamps and headers.

        A shared store may be used by any number of processors, each where its records are: see `shared_store`.
        If its class overrides `on_timer` it has timers too, kept in the store `<name>-timers`.
        """
        line = user_line()
        name = self._place.draft.name("KSTREAM-PROCESSOR-") if name is None else name
        operator, own_store = self._processing(checked(supplier, "", "process", line), name, fixed_key=False)
        serdes = {"key": given_serde(key), "value": given_serde(value)}
        place = self._place.below(name, operator, line, rekeyed=True, stores=tuple(stores), own_store=own_store, **serdes)
        return KStream(place, Sender(place))

    def process_values(
        self,
        supplier: Callable[[], FixedKeyProcessor[K, V, V2]],
        *,
        stores: Iterable[str] = (),
        value: Any = None,
        name: str | None = None,
    ) -> KStream[K, V2]:
        """Run a `FixedKeyProcessor`: it may change anything but the key, so nothing is re-keyed afterwards."""
        line = user_line()
        name = self._place.draft.name("KSTREAM-PROCESSVALUES-") if name is None else name
        operator, own_store = self._processing(checked(supplier, "", "process_values", line), name, fixed_key=True)
        place = self._place.below(name, operator, line, stores=tuple(stores), own_store=own_store, value=given_serde(value))
        return KStream(place, Sender(place))

    def process_atomically(
        self,
        supplier: Callable[[], Processor[K, V, K2, V2]],
        *,
        stores: Iterable[str],
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Run a `Processor` that reads and writes any keys of shared stores as one act: for each record all of it, or nothing.

        It runs at the end of an epoch, alone over all lanes, for one record after the other in a fixed order.
        `context.store(name)` gives every key as it is now. What it forwards or sends aside goes on when its `process` has
        returned; if that fails, and an error handler says to go on, nothing has happened. It has no timers and no punctuators.
        `key=` and `value=` are the types of what it forwards (default: keys as on this stream). It is serial, so for what is
        rare: see `docs/global-state.md`.

        Example:
            >>> from penstock import Processor, StreamsBuilder, shared_store
            >>> from penstock.testing import TopologyTestDriver
            >>> class Transfer(Processor):
            ...     def process(self, record):
            ...         balances, transfer = self.context.store("balances"), record.value
            ...         left = (balances.get(transfer["from"]) or 0) - transfer["amount"]
            ...         if left < 0:
            ...             self.context.side_output("rejected", record)
            ...             return
            ...         balances[transfer["from"]] = left
            ...         balances[transfer["to"]] = (balances.get(transfer["to"]) or 0) + transfer["amount"]
            >>> builder = StreamsBuilder()
            >>> _ = builder.add_state_store(shared_store("balances", value=int))
            >>> done = builder.stream("transfers").process_atomically(Transfer, stores=["balances"])
            >>> done.side_output("rejected").to("rejected")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     driver.store("balances")["ann"] = 10
            ...     driver.input("transfers").pipe({"from": "ann", "to": "bob", "amount": 7})
            ...     driver.input("transfers").pipe({"from": "ann", "to": "bob", "amount": 7})
            ...     driver.store("balances")["bob"], len(driver.output("rejected").values())
            (7, 1)
        """
        line = user_line()
        name = self._place.draft.name("KSTREAM-PROCESSATOMICALLY-") if name is None else name
        checked(supplier, "", "process_atomically", line)
        if sets_timers(supplier):
            raise TopologyError(
                f"{name} overrides on_timer and is an atomic section, which runs for records only ({line}); "
                f"keep time in a process(...) before it, and send a record into the section when the time has come"
            )
        here, serdes = self._place, (given_serde(key) or self._place.key, given_serde(value))
        entry = exchanged(here, f"{name}-section", here.key, here.value, line)
        section = entry.below(name, AtomicProcessing(supplier, str(line)), line, stores=tuple(stores))
        return KStream(exchanged(section, f"{name}-results", *serdes, line), ExchangedSender(section, "results"))

    @overload
    def side_output(self, name: str) -> KStream[K, Any]: ...

    @overload
    def side_output(self, name: str, *, value: type[V2] | Serde[V2]) -> KStream[K, V2]: ...

    @overload
    def side_output(self, name: str, *, key: type[K2] | Serde[K2]) -> KStream[K2, Any]: ...

    @overload
    def side_output(self, name: str, *, key: type[K2] | Serde[K2], value: type[V2] | Serde[V2]) -> KStream[K2, V2]: ...

    def side_output(self, name: str, *, key: Any = None, value: Any = None) -> KStream[Any, Any]:
        """The records that the processor this stream comes from sends aside under a name.

        It does so by `self.context.side_output(name, record)`, or an asynchronous mapper by returning `SideOutput(name, value)`;
        what it forwards stays on this stream. `value=` says the type of what is sent aside, `key=` that of its keys (default: as
        on this stream). The result is a stream as any other.

        Example:
            >>> from penstock import Processor, StreamsBuilder
            >>> class Check(Processor):
            ...     def process(self, record):
            ...         if record.value > 0:
            ...             self.context.forward(record)
            ...         else:
            ...             self.context.side_output("rejected", record.with_value(f"{record.value} is not positive"))
            >>> checked = StreamsBuilder().stream("amounts", value=int).process(Check, value=int)
            >>> checked.to("accepted", value=int)
            >>> checked.side_output("rejected", value=str).to("rejected", value=str)
        """
        line = user_line()
        if self._sender is None:
            raise TopologyError(
                f"side_output({name!r}) works on the stream that process, process_values, process_atomically or an asynchronous "
                f"verb returned; {self._place.name} sends nothing aside ({line})"
            )
        return KStream(self._sender.side_output(name, given_serde(key) or self._place.key, given_serde(value), line))

    # ---- inside the room ------------------------------------------------------------------------------------------

    def _name(self, prefix: str, given: str | None) -> str:
        return self._place.draft.name(prefix, given)

    def _processing(self, supplier: Supplier, name: str, fixed_key: bool) -> tuple[ProcessorOperator, StoreSpec | None]:
        """The operator of a processor, and the store of its timers if it has any."""
        if not sets_timers(supplier):
            return ProcessorOperator(supplier, fixed_key), None
        spec = timers_spec(name, self._place.key or self._place.draft.default_key)
        return ProcessorOperator(supplier, fixed_key, spec.name), spec

    def _repartitioned(self, prefix: str, key: Serde[Any] | None, value: Serde[Any] | None, line: Line) -> KStream[K, V]:
        """This stream behind an exchange, for a join; two joins of one stream share the exchange."""
        here = self._place
        key, value = key or here.key, value or here.value
        exchange = repartition(here.draft, prefix, key, value, line)
        if self._exchanged is None or here.name != prefix:
            node = here.draft.add(exchange.node(), here.node)
            source = exchange.source
            place = here.moved(source, node, rekeyed=False, key=key, value=value, sources=frozenset({source}))
            self._exchanged = place
        else:
            place = self._exchanged  # numbers were drawn all the same: names are a contract
        return KStream(place)
