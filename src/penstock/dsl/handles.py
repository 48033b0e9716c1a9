"""The DSL on one page: the handles of streams, tables and groups, with all their verbs.

The handles name each other in their types, so they share a module. A verb only takes the user's line, calls a module below,
which knows the draft but no handles, and wraps the place that it returns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, overload

from penstock.calls import CircuitBreaker, ResultCache
from penstock.dsl import (
    aggregations,
    calls,
    cogroups,
    derived_tables,
    processors,
    stateless,
    stream_joins,
    table_aggregations,
    table_joins,
    windowed_aggregations,
)
from penstock.dsl.aggregations import Group
from penstock.dsl.calls import DEFAULT_TIMEOUT, CallKeywords, CallOptions, OfOne, OfTwo
from penstock.dsl.cogroups import Cogroup
from penstock.dsl.deduplication import deduplicated
from penstock.dsl.place import Place
from penstock.dsl.repartitions import repartition_stream
from penstock.dsl.side_outputs import Sender, side_output
from penstock.dsl.sinks import write_to
from penstock.dsl.stores import Store
from penstock.dsl.stream_joins import GlobalTable, StreamJoin, StreamKeywords, StreamSide, TableKeywords
from penstock.dsl.table_aggregations import TableGroup
from penstock.dsl.table_drafts import TablePlace
from penstock.dsl.table_joins import JoinKeywords, TableJoin
from penstock.dsl.windowed_aggregations import AnyWindows, EmitStrategy, WindowedGroup
from penstock.expressions import Expression
from penstock.expressions.agg import Aggregate
from penstock.operators.asynchronous import CallContext
from penstock.processor import FixedKeyProcessor, Processor, ValueTransformer
from penstock.records import OfPair, OfValue, Record, RecordContext, SideOutput, Windowed
from penstock.serdes import Serde
from penstock.timing import Duration, Suppressed
from penstock.topology import user_line

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from penstock.delivery.target import Target

# A stream only returns keys and values, so a stream of a subclass is a stream of its base. A table also looks up keys, so only
# its values are covariant. Verbs that take serdes see the stream as `KStream[K2 | None, V2 | None]`: null needs no serde.
K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)
K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
V3 = TypeVar("V3")
A = TypeVar("A")


class KStream(Generic[K_co, V_co]):
    """A stream of records with keys of type `K` and values of type `V`; see `on_record` for functions of whole records."""

    __slots__ = ("_place", "_sender", "_side", "_source")

    def __init__(self, place: Place, sender: Sender | None = None, source: Place | None = None) -> None:
        self._place = place
        self._sender = sender
        self._source = source
        self._side = StreamSide(place)

    # ---- the source -----------------------------------------------------------------------------------------------

    def late_records(self, *, name: str | None = None) -> KStream[K_co, V_co]:
        """Return the late records of a source, those behind its watermark, whatever `late=` does with them.

        Example:
            >>> from penstock import StreamsBuilder, bounded_disorder, log_and_continue
            >>> clicks = StreamsBuilder().stream("clicks", watermark=bounded_disorder("10s"), late=log_and_continue())
            >>> clicks.late_records().to("clicks-late")
        """
        return KStream(stateless.select_late(self._place, self._source, name, user_line()))

    # ---- stateless ------------------------------------------------------------------------------------------------

    def filter(
        self, predicate: OfPair[K_co, V_co, Any] | Expression[bool], *more: Expression[bool], name: str | None = None
    ) -> KStream[K_co, V_co]:
        """Keep records for which `predicate(key, value)` holds, or for which all expressions are true.

        Example:
            >>> from penstock import StreamsBuilder, col
            >>> orders = StreamsBuilder().stream("orders")
            >>> big = orders.filter(lambda _, order: order["total"] > 1000)
            >>> big_ones_from_here = orders.filter(col("total") > 1000, col("address", "country") == "CH")
        """
        return KStream(stateless.filter_records(self._place, (predicate, *more), name, user_line()))

    def filter_not(
        self, predicate: OfPair[K_co, V_co, Any] | Expression[bool], *more: Expression[bool], name: str | None = None
    ) -> KStream[K_co, V_co]:
        """Keep the records that `filter` would drop."""
        return KStream(stateless.filter_records(self._place, (predicate, *more), name, user_line(), negate=True))

    def select_key(
        self, mapper: OfPair[K_co, V_co, K2] | Expression[K2], *, key: Any = None, name: str | None = None
    ) -> KStream[K2, V_co]:
        """Replace the key with `mapper(key, value)`, or with an expression; `key=` is the new key's type."""
        return KStream(stateless.select_key(self._place, mapper, key, name, user_line()))

    def map(
        self, mapper: OfPair[K_co, V_co, tuple[K2, V2]], *, key: Any = None, value: Any = None, name: str | None = None
    ) -> KStream[K2, V2]:
        """Replace key and value with the pair that `mapper(key, value)` returns."""
        return KStream(stateless.map_records(self._place, mapper, key, value, name, user_line()))

    @overload
    def map_values(
        self,
        mapper: OfValue[K_co, V_co, V2] | Expression[V2],
        *,
        with_key: Literal[False] = ...,
        value: Any = ...,
        name: str | None = ...,
    ) -> KStream[K_co, V2]: ...

    @overload
    def map_values(
        self, mapper: Callable[[K_co, V_co], V2], *, with_key: Literal[True], value: Any = ..., name: str | None = ...
    ) -> KStream[K_co, V2]: ...

    def map_values(
        self,
        mapper: Callable[..., V2] | Expression[V2],
        *,
        with_key: bool = False,
        value: Any = None,
        name: str | None = None,
    ) -> KStream[K_co, V2]:
        """Replace the value with `mapper(value)`, `mapper(key, value)` with `with_key=True`, or an expression.

        `value=` is the type of the results, by default that of the annotation `->`.

        Example:
            >>> from penstock import StreamsBuilder, col, struct
            >>> orders = StreamsBuilder().stream("orders")
            >>> priced = orders.map_values(struct(id=col("id"), gross=col("net") * 1.08))
        """
        return KStream(stateless.map_values(self._place, mapper, with_key, value, name, user_line()))

    def flat_map(
        self, mapper: OfPair[K_co, V_co, Iterable[tuple[K2, V2]]], *, key: Any = None, value: Any = None, name: str | None = None
    ) -> KStream[K2, V2]:
        """Replace a record with all `(key, value)` pairs that `mapper(key, value)` returns."""
        return KStream(stateless.flat_map(self._place, mapper, key, value, name, user_line()))

    @overload
    def flat_map_values(
        self,
        mapper: OfValue[K_co, V_co, Iterable[V2]],
        *,
        with_key: Literal[False] = ...,
        value: Any = ...,
        name: str | None = ...,
    ) -> KStream[K_co, V2]: ...

    @overload
    def flat_map_values(
        self, mapper: Callable[[K_co, V_co], Iterable[V2]], *, with_key: Literal[True], value: Any = ..., name: str | None = ...
    ) -> KStream[K_co, V2]: ...

    def flat_map_values(
        self, mapper: Callable[..., Iterable[V2]], *, with_key: bool = False, value: Any = None, name: str | None = None
    ) -> KStream[K_co, V2]:
        """Replace a value with all values that `mapper(value)` returns; the key stays."""
        return KStream(stateless.flat_map_values(self._place, mapper, with_key, value, name, user_line()))

    def peek(self, action: OfPair[K_co, V_co, object], *, name: str | None = None) -> KStream[K_co, V_co]:
        """Call `action(key, value)` for every record and pass the record on."""
        return KStream(stateless.peek(self._place, action, name, user_line()))

    def foreach(self, action: OfPair[K_co, V_co, object], *, name: str | None = None) -> None:
        """Call `action(key, value)` for every record; the stream ends here."""
        stateless.foreach(self._place, action, name, user_line())

    def print(
        self,
        *,
        label: str | None = None,
        file: str | None = None,
        mapper: Callable[[K_co, V_co], str] | None = None,
        name: str | None = None,
    ) -> None:
        """Write every record as a line of text to standard output, or append it to a file; control characters are escaped."""
        stateless.print_records(self._place, label, file, mapper, name, user_line())

    @overload
    def split(
        self,
        predicate: OfPair[K_co, V_co, Any] | Expression[bool],
        /,
        *predicates: OfPair[K_co, V_co, Any] | Expression[bool],
        name: str | None = ...,
    ) -> tuple[KStream[K_co, V_co], ...]: ...

    @overload
    def split(
        self, *, name: str | None = ..., **named: OfPair[K_co, V_co, Any] | Expression[bool]
    ) -> dict[str, KStream[K_co, V_co]]: ...

    def split(
        self,
        *predicates: OfPair[K_co, V_co, Any] | Expression[bool],
        name: str | None = None,
        **named: OfPair[K_co, V_co, Any] | Expression[bool],
    ) -> tuple[KStream[K_co, V_co], ...] | dict[str, KStream[K_co, V_co]]:
        """Send each record to the first branch whose predicate holds; `otherwise` is the default branch.

        With positional predicates the result is a tuple of streams, with named ones a dict of streams by name.

        Example:
            >>> from penstock import StreamsBuilder, otherwise
            >>> orders = StreamsBuilder().stream("orders")
            >>> big, small = orders.split(lambda _, o: o["total"] > 1000, otherwise)
            >>> sorted(orders.split(big=lambda _, o: o["total"] > 1000, rest=otherwise))
            ['big', 'rest']
        """
        places = stateless.split(self._place, predicates, named, name, user_line())
        streams: list[KStream[K_co, V_co]] = [KStream(place) for place in places]
        return dict(zip(named, streams, strict=True)) if named else tuple(streams)

    def merge(self, other: KStream[K_co, V_co], *, name: str | None = None) -> KStream[K_co, V_co]:
        """Merge two streams into one; the order between the records of the two is not defined."""
        return KStream(stateless.merge(self._place, _stream(other), name, user_line()))

    def repartition(
        self: KStream[K2 | None, V2 | None],
        *,
        name: str | None = None,
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        partitions: int | None = None,
        partitioner: Callable[[str, K_co, V_co, int], int | Collection[int] | None] | None = None,
    ) -> KStream[K_co, V_co]:
        """Bring records with the same key together here, not at the next aggregation or join; lanes do not need `partitions`."""
        return KStream(repartition_stream(self._place, name, key, value, partitions, partitioner, user_line()))

    # ---- out ------------------------------------------------------------------------------------------------------

    def to(
        self: KStream[K2 | None, V2 | None],
        topic: str | Callable[[K_co, V_co, RecordContext], str],
        *,
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        partitioner: Callable[[str, K_co, V_co, int], int | Collection[int] | None] | None = None,
        deliver_to: Target | None = None,
        name: str | None = None,
    ) -> None:
        """Write to a topic, or to `topic(key, value, context)`; its records also go to `deliver_to`: see `penstock.delivery`."""
        write_to(self._place, topic, key, value, partitioner, deliver_to, name, user_line())

    def to_table(
        self: KStream[K2 | None, V2 | None],
        *,
        store: str | Store | None = None,
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KTable[K_co, V_co]:
        """Read the stream as changes of a table: the last value of a key counts, a null value deletes it."""
        return KTable(derived_tables.table_of(self._place, store, key, value, name, user_line()))

    # ---- grouping -------------------------------------------------------------------------------------------------

    def group_by_key(
        self: KStream[K2 | None, V2 | None],
        *,
        key: type[K2] | Serde[K2] | None = None,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K_co, V_co]:
        """Group records by their key, to aggregate them."""
        return KGroupedStream(Group(self._place.with_serdes(key, value), name))

    def group_by(
        self: KStream[K_co, V2 | None],
        selector: OfPair[K_co, V_co, K2] | Expression[K2],
        *,
        key: Any = None,
        value: type[V2] | Serde[V2] | None = None,
        name: str | None = None,
    ) -> KGroupedStream[K2, V_co]:
        """Group records by `selector(key, value)`, or by an expression, to aggregate them; `key=` is the new key's type."""
        return KGroupedStream(Group(stateless.group_by(self._place, selector, key, value, name, user_line()), name))

    # ---- joins ----------------------------------------------------------------------------------------------------

    @overload
    def join(
        self,
        other: KStream[K_co, V2],
        joiner: Callable[[V_co, V2], V3] | Expression[V3],
        *,
        within: Duration | tuple[Duration, Duration],
        with_key: Literal[False] = ...,
        **more: Unpack[StreamKeywords],
    ) -> KStream[K_co, V3]: ...

    @overload
    def join(
        self,
        other: KStream[K_co, V2],
        joiner: Callable[[K_co, V_co, V2], V3],
        *,
        within: Duration | tuple[Duration, Duration],
        with_key: Literal[True],
        **more: Unpack[StreamKeywords],
    ) -> KStream[K_co, V3]: ...

    @overload
    def join(
        self,
        other: KTable[K_co, V2],
        joiner: Callable[[V_co, V2], V3] | Expression[V3],
        *,
        with_key: Literal[False] = ...,
        **more: Unpack[TableKeywords],
    ) -> KStream[K_co, V3]: ...

    @overload
    def join(
        self,
        other: KTable[K_co, V2],
        joiner: Callable[[K_co, V_co, V2], V3],
        *,
        with_key: Literal[True],
        **more: Unpack[TableKeywords],
    ) -> KStream[K_co, V3]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[V_co, V2], V3] | Expression[V3],
        *,
        on: Callable[[K_co, V_co], K2 | None] | Expression[K2],
        with_key: Literal[False] = ...,
        name: str | None = ...,
    ) -> KStream[K_co, V3]: ...

    @overload
    def join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[K_co, V_co, V2], V3],
        *,
        on: Callable[[K_co, V_co], K2 | None] | Expression[K2],
        with_key: Literal[True],
        name: str | None = ...,
    ) -> KStream[K_co, V3]: ...

    def join(
        self,
        other: Any,
        joiner: Callable[..., Any] | Expression[Any],
        *,
        within: Duration | tuple[Duration, Duration] | None = None,
        grace: Duration | None = None,
        on: Callable[[K_co, V_co], Any] | Expression[Any] | None = None,
        with_key: bool = False,
        key: Any = None,
        value: Any = None,
        other_value: Any = None,
        name: str | None = None,
        store_name: str | None = None,
        logging: bool | Mapping[str, str] | None = None,
    ) -> KStream[K_co, Any]:
        """Join with a stream (`within=`), a table, or a global table (`on=`); only matches have a result.

        The result is `joiner(left, right)`, or `joiner(key, left, right)` with `with_key=True`; its type is what the joiner is
        annotated to return. `within` is the largest difference in event time between two records, one for both directions or
        `(before, after)`; `grace` is how late they may be. With a versioned table, `grace` delays the stream so that it sees the
        table's late changes. `key` and `value` are the serdes of this stream's records, `other_value` that of the other stream's
        values, where the join keeps or sends them.

        Example:
            >>> from penstock import StreamsBuilder
            >>> builder = StreamsBuilder()
            >>> orders, payments = builder.stream("orders"), builder.stream("payments")
            >>> paid = orders.join(payments, lambda order, payment: {**order, **payment}, within="10m", grace="1m")
        """
        declared = StreamJoin(
            "inner",
            joiner,
            with_key,
            within=within,
            grace=grace,
            on=on,
            key=key,
            value=value,
            other_value=other_value,
            name=name,
            store_name=store_name,
            logging=logging,
        )
        return KStream(stream_joins.join(self._side, _joined(other), declared, user_line()))

    @overload
    def left_join(
        self,
        other: KStream[K_co, V2],
        joiner: Callable[[V_co, V2 | None], V3] | Expression[V3],
        *,
        within: Duration | tuple[Duration, Duration],
        with_key: Literal[False] = ...,
        **more: Unpack[StreamKeywords],
    ) -> KStream[K_co, V3]: ...

    @overload
    def left_join(
        self,
        other: KStream[K_co, V2],
        joiner: Callable[[K_co, V_co, V2 | None], V3],
        *,
        within: Duration | tuple[Duration, Duration],
        with_key: Literal[True],
        **more: Unpack[StreamKeywords],
    ) -> KStream[K_co, V3]: ...

    @overload
    def left_join(
        self,
        other: KTable[K_co, V2],
        joiner: Callable[[V_co, V2 | None], V3] | Expression[V3],
        *,
        with_key: Literal[False] = ...,
        **more: Unpack[TableKeywords],
    ) -> KStream[K_co, V3]: ...

    @overload
    def left_join(
        self,
        other: KTable[K_co, V2],
        joiner: Callable[[K_co, V_co, V2 | None], V3],
        *,
        with_key: Literal[True],
        **more: Unpack[TableKeywords],
    ) -> KStream[K_co, V3]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[V_co, V2 | None], V3] | Expression[V3],
        *,
        on: Callable[[K_co, V_co], K2 | None] | Expression[K2],
        with_key: Literal[False] = ...,
        name: str | None = ...,
    ) -> KStream[K_co, V3]: ...

    @overload
    def left_join(
        self,
        other: GlobalKTable[K2, V2],
        joiner: Callable[[K_co, V_co, V2 | None], V3],
        *,
        on: Callable[[K_co, V_co], K2 | None] | Expression[K2],
        with_key: Literal[True],
        name: str | None = ...,
    ) -> KStream[K_co, V3]: ...

    def left_join(
        self,
        other: Any,
        joiner: Callable[..., Any] | Expression[Any],
        *,
        within: Duration | tuple[Duration, Duration] | None = None,
        grace: Duration | None = None,
        on: Callable[[K_co, V_co], Any] | Expression[Any] | None = None,
        with_key: bool = False,
        key: Any = None,
        value: Any = None,
        other_value: Any = None,
        name: str | None = None,
        store_name: str | None = None,
        logging: bool | Mapping[str, str] | None = None,
    ) -> KStream[K_co, Any]:
        """Like `join`, but every left record has a result: without a match the joiner gets None on the right."""
        declared = StreamJoin(
            "left",
            joiner,
            with_key,
            within=within,
            grace=grace,
            on=on,
            key=key,
            value=value,
            other_value=other_value,
            name=name,
            store_name=store_name,
            logging=logging,
        )
        return KStream(stream_joins.join(self._side, _joined(other), declared, user_line()))

    @overload
    def outer_join(
        self,
        other: KStream[K_co, V2],
        joiner: Callable[[V_co | None, V2 | None], V3] | Expression[V3],
        *,
        within: Duration | tuple[Duration, Duration],
        with_key: Literal[False] = ...,
        **more: Unpack[StreamKeywords],
    ) -> KStream[K_co, V3]: ...

    @overload
    def outer_join(
        self,
        other: KStream[K_co, V2],
        joiner: Callable[[K_co, V_co | None, V2 | None], V3],
        *,
        within: Duration | tuple[Duration, Duration],
        with_key: Literal[True],
        **more: Unpack[StreamKeywords],
    ) -> KStream[K_co, V3]: ...

    def outer_join(
        self,
        other: KStream[Any, Any],
        joiner: Callable[..., Any] | Expression[Any],
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
    ) -> KStream[K_co, Any]:
        """Like `join` with a stream, but every record of both sides has a result."""
        declared = StreamJoin(
            "outer",
            joiner,
            with_key,
            within=within,
            grace=grace,
            key=key,
            value=value,
            other_value=other_value,
            name=name,
            store_name=store_name,
            logging=logging,
        )
        return KStream(stream_joins.join(self._side, _joined(other), declared, user_line()))

    # ---- processors -----------------------------------------------------------------------------------------------

    def process(
        self,
        supplier: Callable[..., Processor[K_co, V_co, K2, V2]],
        *,
        setup: Callable[[], Any] | None = None,
        stores: Iterable[str] = (),
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Run a `Processor` with access to `stores`; it may change keys, values, timestamps and headers.

        With `setup=`, which opens a client once per process, the supplier is called with the client. A processor whose class
        overrides `on_timer` has timers, in the store `<name>-timers`. Any number of processors may use a `shared_store`.
        """
        return KStream(*processors.process(self._place, supplier, setup, stores, key, value, name, user_line()))

    def process_values(
        self,
        supplier: Callable[..., FixedKeyProcessor[K_co, V_co, V2]],
        *,
        setup: Callable[[], Any] | None = None,
        stores: Iterable[str] = (),
        value: Any = None,
        name: str | None = None,
    ) -> KStream[K_co, V2]:
        """Run a `FixedKeyProcessor`: it may change anything but the key, so no exchange is needed afterwards."""
        return KStream(*processors.process_values(self._place, supplier, setup, stores, value, name, user_line()))

    def process_atomically(
        self,
        supplier: Callable[..., Processor[K_co, V_co, K2, V2]],
        *,
        setup: Callable[[], Any] | None = None,
        stores: Iterable[str],
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Run a `Processor` that reads and writes any keys of shared stores atomically: for each record all of it, or nothing.

        It runs at the end of an epoch, alone over all lanes, for one record after the other in a fixed order, and begins anew in
        each epoch. What it sends is passed on when `process` returns; if that fails and an error handler continues, the record
        has no effect. It has no timers and no punctuators. It is serial: use it for rare records; see `docs/global-state.md`.

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
            >>> builder = StreamsBuilder().add_state_store(shared_store("balances", value=int))
            >>> done = builder.stream("transfers").process_atomically(Transfer, stores=["balances"])
            >>> done.side_output("rejected").to("rejected")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     driver.store("balances")["ann"] = 10
            ...     driver.input("transfers").pipe_values([{"from": "ann", "to": "bob", "amount": 7}] * 2)
            ...     driver.store("balances")["bob"], len(driver.output("rejected").values())
            (7, 1)
        """
        return KStream(*processors.process_atomically(self._place, supplier, setup, stores, key, value, name, user_line()))

    @overload
    def side_output(self, name: str) -> KStream[K_co, Any]: ...

    @overload
    def side_output(self, name: str, *, value: type[V2] | Serde[V2]) -> KStream[K_co, V2]: ...

    @overload
    def side_output(self, name: str, *, key: type[K2] | Serde[K2]) -> KStream[K2, Any]: ...

    @overload
    def side_output(self, name: str, *, key: type[K2] | Serde[K2], value: type[V2] | Serde[V2]) -> KStream[K2, V2]: ...

    def side_output(self, name: str, *, key: Any = None, value: Any = None) -> KStream[Any, Any]:
        """Return a side output, by name, of the processor that returned this stream.

        A processor sends records there with `self.context.side_output(name, record)`, an asynchronous mapper by returning
        `SideOutput(name, value)`; what it forwards stays here. `key=` (by default, this stream's) and `value=` are its types.

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
        return KStream(side_output(self._place, self._sender, name, key, value, user_line()))

    # ---- duplicates ---------------------------------------------------------------------------------------------

    def deduplicate(
        self,
        *,
        within: Duration,
        by: Callable[[K_co, V_co], object] | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> KStream[K_co, V_co]:
        """Drop records whose key was seen before, at most `within` earlier or later by event time.

        With `by`, a record is a duplicate if it has the same key and `by(key, value)` returns the same: text, a number, or what
        JSON can express. The time counts from the record that was let through. To compare across keys, select a key first.

        Records without a key are compared with each other by what `by` returns, within their partition; without `by` there is
        nothing to compare, and all of them are let through.

        Example:
            >>> from penstock import StreamsBuilder
            >>> from penstock.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> payments = builder.stream("payments", value=dict)
            >>> payments.deduplicate(by=lambda _, payment: payment["id"], within="1h").to("unique")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     for number in (1, 2, 1):
            ...         driver.input("payments").pipe({"id": number}, key="ann")
            ...     [record.value["id"] for record in driver.output("unique").records()]
            [1, 2]
        """
        return KStream(deduplicated(self._place, within, by, store, name, user_line()))

    # ---- calls to other systems ---------------------------------------------------------------------------------

    @overload
    def map_values_async(
        self,
        function: OfOne[V_co, Awaitable[V2 | SideOutput]],
        *,
        with_key: Literal[False] = ...,
        batch: None = ...,
        **more: Unpack[CallKeywords],
    ) -> KStream[K_co, V2]: ...

    @overload
    def map_values_async(
        self,
        function: OfTwo[K_co, V_co, Awaitable[V2 | SideOutput]],
        *,
        with_key: Literal[True],
        batch: None = ...,
        **more: Unpack[CallKeywords],
    ) -> KStream[K_co, V2]: ...

    @overload
    def map_values_async(
        self,
        function: OfOne[list[tuple[K_co, V_co]], Awaitable[Sequence[V2 | SideOutput]]],
        *,
        batch: int,
        **more: Unpack[CallKeywords],
    ) -> KStream[K_co, V2]: ...

    @overload
    def map_values_async(
        self,
        function: OfOne[V_co, V2 | SideOutput],
        *,
        with_key: Literal[False] = ...,
        batch: None = ...,
        **more: Unpack[CallKeywords],
    ) -> KStream[K_co, V2]: ...

    @overload
    def map_values_async(
        self,
        function: OfTwo[K_co, V_co, V2 | SideOutput],
        *,
        with_key: Literal[True],
        batch: None = ...,
        **more: Unpack[CallKeywords],
    ) -> KStream[K_co, V2]: ...

    @overload
    def map_values_async(
        self, function: OfOne[list[tuple[K_co, V_co]], Sequence[V2 | SideOutput]], *, batch: int, **more: Unpack[CallKeywords]
    ) -> KStream[K_co, V2]: ...

    def map_values_async(
        self,
        function: Callable[..., Any],
        *,
        with_key: bool = False,
        concurrency: int = 64,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        retries: int = 0,
        backoff: Duration = "100ms",
        setup: Callable[[], Any] | None = None,
        ordered: bool = True,
        breaker: CircuitBreaker | None = None,
        cache: ResultCache | None = None,
        batch: int | None = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream[K_co, Any]:
        """Replace the value with the result of `await function(value)`, with many calls running at once.

        A function that is not `async def` runs in threads. `with_key=True` calls `function(key, value)`; `batch=100` calls
        `function([(key, value), ...])` with at most 100 pairs, and expects a list of results. With `setup`, the last argument is
        the result of `setup()`, which is called once per process. A result of `SideOutput(name, value)` goes to that side output.

        At most `concurrency` calls run at once in a process, each for at most `timeout`. A failed call is retried up to `retries`
        times, after waits that start at `backoff` and double; then the record goes to the handler of processing errors. Results
        keep the order of the records; `ordered=True` also makes the calls of the same key one after another. No call is pending
        when an epoch is committed, but an epoch that runs again calls again (`docs/async.md`). `value=` is the result's type.

        Example:
            >>> import asyncio
            >>> from penstock import StreamsBuilder
            >>> from penstock.testing import TopologyTestDriver
            >>> async def greet(name):
            ...     await asyncio.sleep(0.01)
            ...     return f"hello {name}"
            >>> builder = StreamsBuilder()
            >>> builder.stream("names", value=str).map_values_async(greet, timeout="2s", retries=3, value=str).to("greetings")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     driver.input("names").pipe("ann")
            ...     driver.output("greetings").values()
            ['hello ann']
        """
        options = CallOptions(
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            setup=setup,
            ordered=ordered,
            breaker=breaker,
            cache=cache,
            batch=batch,
        )
        return KStream(*calls.map_values(self._place, function, options, with_key, value, name, user_line()))

    @overload
    def map_async(
        self,
        function: OfTwo[K_co, V_co, Awaitable[tuple[K2, V2] | SideOutput]],
        *,
        batch: None = ...,
        key: Any = ...,
        **more: Unpack[CallKeywords],
    ) -> KStream[K2, V2]: ...

    @overload
    def map_async(
        self,
        function: OfOne[list[tuple[K_co, V_co]], Awaitable[Sequence[tuple[K2, V2] | SideOutput]]],
        *,
        batch: int,
        key: Any = ...,
        **more: Unpack[CallKeywords],
    ) -> KStream[K2, V2]: ...

    @overload
    def map_async(
        self,
        function: OfTwo[K_co, V_co, tuple[K2, V2] | SideOutput],
        *,
        batch: None = ...,
        key: Any = ...,
        **more: Unpack[CallKeywords],
    ) -> KStream[K2, V2]: ...

    @overload
    def map_async(
        self,
        function: OfOne[list[tuple[K_co, V_co]], Sequence[tuple[K2, V2] | SideOutput]],
        *,
        batch: int,
        key: Any = ...,
        **more: Unpack[CallKeywords],
    ) -> KStream[K2, V2]: ...

    def map_async(
        self,
        function: Callable[..., Any],
        *,
        concurrency: int = 64,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        retries: int = 0,
        backoff: Duration = "100ms",
        setup: Callable[[], Any] | None = None,
        ordered: bool = True,
        breaker: CircuitBreaker | None = None,
        cache: ResultCache | None = None,
        batch: int | None = None,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Like `map_values_async`, but `await function(key, value)` returns a pair: the new key and the new value."""
        options = CallOptions(
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            setup=setup,
            ordered=ordered,
            breaker=breaker,
            cache=cache,
            batch=batch,
        )
        return KStream(*calls.map_records(self._place, function, options, key, value, name, user_line()))

    def process_async(
        self,
        function: OfTwo[Record[K_co, V_co], CallContext[K2, V2], object],
        *,
        concurrency: int = 64,
        timeout: Duration | None = DEFAULT_TIMEOUT,
        retries: int = 0,
        backoff: Duration = "100ms",
        setup: Callable[[], Any] | None = None,
        ordered: bool = True,
        breaker: CircuitBreaker | None = None,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KStream[K2, V2]:
        """Like `map_async`, for any number of results: `await function(record, context)` calls `context.forward(record)`.

        `context.side_output(name, record)` sends a record to a side output, and `context.record_metadata` says where the record
        came from. What a failed attempt has sent is discarded. There are no stores: use a `process` before or after.

        Example:
            >>> from penstock import StreamsBuilder
            >>> async def look_up(record, context):
            ...     if record.value:
            ...         context.forward(record.with_value(record.value.upper()))
            ...     else:
            ...         context.side_output("empty", record)
            >>> found = StreamsBuilder().stream("names", value=str).process_async(look_up, value=str)
            >>> found.side_output("empty", value=str).to("empty")
        """
        options = CallOptions(
            concurrency=concurrency,
            timeout=timeout,
            retries=retries,
            backoff=backoff,
            setup=setup,
            ordered=ordered,
            breaker=breaker,
        )
        return KStream(*calls.process(self._place, function, options, key, value, name, user_line()))


class KTable(Generic[K, V_co]):
    """A table: the latest value of each key, and the stream of its changes."""

    __slots__ = ("_at",)

    def __init__(self, at: TablePlace) -> None:
        self._at = at

    @property
    def queryable_store_name(self) -> str | None:
        """The name to query this table by; None if it was not given a store."""
        return self._at.queryable

    def filter(
        self,
        predicate: Callable[[K, V_co], Any] | Expression[bool],
        *more: Expression[bool],
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[K, V_co]:
        """Keep the entries for which `predicate(key, value)` holds, or all expressions are true; others count as deleted."""
        return KTable(derived_tables.filter_entries(self._at, (predicate, *more), store, name, user_line()))

    def filter_not(
        self,
        predicate: Callable[[K, V_co], Any] | Expression[bool],
        *more: Expression[bool],
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[K, V_co]:
        """Keep the entries that `filter` would drop."""
        return KTable(derived_tables.filter_entries(self._at, (predicate, *more), store, name, user_line(), negate=True))

    @overload
    def map_values(
        self,
        mapper: Callable[[V_co], V2] | Expression[V2],
        *,
        with_key: Literal[False] = ...,
        value: Any = ...,
        store: str | Store | None = ...,
        name: str | None = ...,
    ) -> KTable[K, V2]: ...

    @overload
    def map_values(
        self,
        mapper: Callable[[K, V_co], V2],
        *,
        with_key: Literal[True],
        value: Any = ...,
        store: str | Store | None = ...,
        name: str | None = ...,
    ) -> KTable[K, V2]: ...

    def map_values(
        self,
        mapper: Callable[..., V2] | Expression[V2],
        *,
        with_key: bool = False,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Replace each value with `mapper(value)`, `mapper(key, value)` with `with_key=True`, or an expression."""
        return KTable(derived_tables.map_values(self._at, mapper, with_key, value, store, name, user_line()))

    def transform_values(
        self,
        supplier: Callable[..., ValueTransformer[K, V_co, V2]],
        *,
        setup: Callable[[], Any] | None = None,
        stores: Iterable[str] = (),
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[K, V2]:
        """Replace each value with the result of a stateful `ValueTransformer`, which may use stores."""
        return KTable(derived_tables.transform_values(self._at, supplier, setup, stores, value, store, name, user_line()))

    @overload
    def to_stream(self, *, name: str | None = ...) -> KStream[K, V_co]: ...

    @overload
    def to_stream(
        self, mapper: Callable[[K, V_co], K2] | Expression[K2], *, key: Any = ..., name: str | None = ...
    ) -> KStream[K2, V_co]: ...

    def to_stream(
        self, mapper: Callable[[K, V_co], Any] | Expression[Any] | None = None, *, key: Any = None, name: str | None = None
    ) -> KStream[Any, V_co]:
        """Return the table's changes as a stream, with new keys if there is a `mapper(key, value)` or an expression."""
        return KStream(derived_tables.stream_of(self._at.place, mapper, key, name, user_line()))

    def suppress(self, suppressed: Suppressed) -> KTable[K, V_co]:
        """Hold changes back until their window closes, or for some time; only the last one of each key is emitted.

        Example:
            >>> from penstock import StreamsBuilder, tumbling, until_window_closes
            >>> clicks = StreamsBuilder().stream("clicks").group_by_key().windowed_by(tumbling("1m", grace="5s")).count()
            >>> final = clicks.suppress(until_window_closes())
        """
        return KTable(derived_tables.suppress(self._at, suppressed, user_line()))

    @overload
    def group_by(
        self, selector: Callable[[K, V_co], tuple[K2, V2]], *, key: Any = ..., value: Any = ..., name: str | None = ...
    ) -> KGroupedTable[K2, V2]: ...

    @overload
    def group_by(
        self, selector: Expression[K2], *, key: Any = ..., value: Any = ..., name: str | None = ...
    ) -> KGroupedTable[K2, V_co]: ...

    def group_by(
        self,
        selector: Callable[[K, V_co], tuple[Any, Any]] | Expression[Any],
        *,
        key: Any = None,
        value: Any = None,
        name: str | None = None,
    ) -> KGroupedTable[Any, Any]:
        """Group entries by the key of the `(key, value)` pair that `selector(key, value)` returns, to aggregate them.

        An expression is the new key; the values stay as they are.
        """
        place = derived_tables.group_by(self._at, selector, key, value, name, user_line())
        return KGroupedTable(TableGroup(place, name))

    @overload
    def join(
        self, other: KTable[K, V2], joiner: Callable[[V_co, V2], V3] | Expression[V3], **more: Unpack[JoinKeywords]
    ) -> KTable[K, V3]: ...

    @overload
    def join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V_co, V2], V3] | Expression[V3],
        *,
        on: Callable[[V_co], K2 | None] | Expression[K2],
        with_key: Literal[False] = ...,
        **more: Unpack[JoinKeywords],
    ) -> KTable[K, V3]: ...

    @overload
    def join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V_co, V2], V3] | Expression[V3],
        *,
        on: Callable[[K, V_co], K2 | None],
        with_key: Literal[True],
        **more: Unpack[JoinKeywords],
    ) -> KTable[K, V3]: ...

    def join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[[V_co, Any], V3] | Expression[V3],
        *,
        on: Callable[..., Any] | Expression[Any] | None = None,
        with_key: bool = False,
        store: str | Store | None = None,
        value: Any = None,
        name: str | None = None,
    ) -> KTable[K, V3]:
        """Join with another table, by key or (`on=`) by a foreign key.

        The result is `joiner(left, right)`, whose serde is `value`, or that of the joiner's annotation; `store` keeps it.
        `on(value)`, or `on(key, value)` with `with_key=True`, returns the other table's key for an entry of this table.

        Example:
            >>> from penstock import StreamsBuilder
            >>> builder = StreamsBuilder()
            >>> orders, customers = builder.table("orders"), builder.table("customers")
            >>> full = orders.join(customers, lambda order, customer: {**order, **customer}, on=lambda order: order["customer"])
        """
        declared = TableJoin("inner", joiner, on=on, with_key=with_key, store=store, value=value, name=name)
        return KTable(table_joins.join(self._at, _table(other), declared, user_line()))

    @overload
    def left_join(
        self, other: KTable[K, V2], joiner: Callable[[V_co, V2 | None], V3] | Expression[V3], **more: Unpack[JoinKeywords]
    ) -> KTable[K, V3]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V_co, V2 | None], V3] | Expression[V3],
        *,
        on: Callable[[V_co], K2 | None] | Expression[K2],
        with_key: Literal[False] = ...,
        **more: Unpack[JoinKeywords],
    ) -> KTable[K, V3]: ...

    @overload
    def left_join(
        self,
        other: KTable[K2, V2],
        joiner: Callable[[V_co, V2 | None], V3] | Expression[V3],
        *,
        on: Callable[[K, V_co], K2 | None],
        with_key: Literal[True],
        **more: Unpack[JoinKeywords],
    ) -> KTable[K, V3]: ...

    def left_join(
        self,
        other: KTable[Any, Any],
        joiner: Callable[[V_co, Any], V3] | Expression[V3],
        *,
        on: Callable[..., Any] | Expression[Any] | None = None,
        with_key: bool = False,
        store: str | Store | None = None,
        value: Any = None,
        name: str | None = None,
    ) -> KTable[K, V3]:
        """Like `join`, but every entry of this table has a result: without a match the joiner gets None on the right."""
        declared = TableJoin("left", joiner, on=on, with_key=with_key, store=store, value=value, name=name)
        return KTable(table_joins.join(self._at, _table(other), declared, user_line()))

    def outer_join(
        self,
        other: KTable[K, V2],
        joiner: Callable[[V_co | None, V2 | None], V3] | Expression[V3],
        *,
        store: str | Store | None = None,
        value: Any = None,
        name: str | None = None,
    ) -> KTable[K, V3]:
        """Like `join` by key, but every entry of both tables has a result; there is no outer join by foreign key."""
        declared = TableJoin("outer", joiner, store=store, value=value, name=name)
        return KTable(table_joins.join(self._at, _table(other), declared, user_line()))


class GlobalKTable(Generic[K, V_co]):
    """A table of which every lane has a whole copy; for joins with `on=`."""

    __slots__ = ("_queryable", "store_name")

    def __init__(self, store_name: str, queryable: str | None) -> None:
        self.store_name: str = store_name
        self._queryable = queryable

    @property
    def queryable_store_name(self) -> str | None:
        """The name to query this table by."""
        return self._queryable


class KGroupedStream(Generic[K, V]):
    """A stream grouped by key."""

    __slots__ = ("_group",)

    def __init__(self, group: Group) -> None:
        self._group = group

    def count(self, *, store: str | Store | None = None, name: str | None = None) -> KTable[K, int]:
        """Count the records of each key; null values do not count."""
        return KTable(aggregations.count(self._group, store, name, user_line()))

    def reduce(self, reducer: Callable[[V, V], V], *, store: str | Store | None = None, name: str | None = None) -> KTable[K, V]:
        """Combine the values of each key: `reducer(aggregate, value)`, starting with the first value."""
        return KTable(aggregations.reduce(self._group, reducer, store, name, user_line()))

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        *,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Combine the values of each key: `aggregator(key, value, aggregate)`, starting with `initializer()`.

        `value=` (or the store's) is the aggregate's type.

        Example:
            >>> from penstock import StreamsBuilder
            >>> orders = StreamsBuilder().stream("orders").group_by_key()
            >>> totals = orders.aggregate(float, lambda _, order, total: total + order["amount"], value=float)
        """
        return KTable(aggregations.aggregate(self._group, initializer, aggregator, value, store, name, user_line()))

    @overload
    def agg(
        self, *, into: None = ..., store: str | Store | None = ..., name: str | None = ..., **aggregates: Aggregate[Any]
    ) -> KTable[K, dict[str, Any]]: ...

    @overload
    def agg(
        self, *, into: type[A], store: str | Store | None = ..., name: str | None = ..., **aggregates: Aggregate[Any]
    ) -> KTable[K, A]: ...

    def agg(
        self, *, into: Any = None, store: str | Store | None = None, name: str | None = None, **aggregates: Aggregate[Any]
    ) -> KTable[K, Any]:
        """Compute ready aggregates of each key: a dict, or an instance of the class that `into=` names.

        They depend on expressions instead of functions: see `docs/columns.md`.

        Example:
            >>> from penstock import StreamsBuilder, agg, col
            >>> from penstock.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> orders = builder.stream("orders").group_by(col("customer"))
            >>> orders.agg(n=agg.count(), total=agg.sum(col("amount")), store="totals").to_stream().to("totals")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     driver.input("orders").pipe_values([{"customer": "ann", "amount": 5}, {"customer": "ann", "amount": 2}])
            ...     driver.store("totals")["ann"]
            {'n': 2, 'total': 7}
        """
        return KTable(aggregations.agg(self._group, into, aggregates, store, name, user_line()))

    def windowed_by(self, windows: AnyWindows) -> WindowedKStream[K, V]:
        """Aggregate per window: `tumbling(...)`, `hopping(...)`, `sliding(...)`, `session(...)`, or own `timing.Windows`."""
        return WindowedKStream(windowed_aggregations.cut(self._group, windows, user_line()))

    def cogroup(self, aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Aggregate several grouped streams into one table; each has its own `aggregator(key, value, aggregate)`."""
        return CogroupedKStream(Cogroup().with_part(self._group, aggregator, user_line()))


class WindowedKStream(Generic[K, V]):
    """A grouped stream cut into windows."""

    __slots__ = ("_windowed",)

    def __init__(self, windowed: WindowedGroup) -> None:
        self._windowed = windowed

    def emit_strategy(self, strategy: EmitStrategy) -> WindowedKStream[K, V]:
        """Emit every update (the default), or each window once, when it closes."""
        return WindowedKStream(self._windowed.emitting(strategy, user_line()))

    def count(self, *, store: str | Store | None = None, name: str | None = None) -> KTable[Windowed[K], int]:
        """Count the records of each key in each window."""
        return KTable(windowed_aggregations.count(self._windowed, store, name, user_line()))

    def reduce(
        self, reducer: Callable[[V, V], V], *, store: str | Store | None = None, name: str | None = None
    ) -> KTable[Windowed[K], V]:
        """Combine the values of each key in each window with `reducer(aggregate, value)`."""
        return KTable(windowed_aggregations.reduce(self._windowed, reducer, store, name, user_line()))

    def aggregate(
        self,
        initializer: Callable[[], A],
        aggregator: Callable[[K, V, A], A],
        merger: Callable[[K, A, A], A] | None = None,
        *,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Combine the values of each key in each window; session windows also need `merger(key, one, two)`."""
        functions = (initializer, aggregator, merger)
        return KTable(windowed_aggregations.aggregate(self._windowed, *functions, value, store, name, user_line()))

    @overload
    def agg(
        self, *, into: None = ..., store: str | Store | None = ..., name: str | None = ..., **aggregates: Aggregate[Any]
    ) -> KTable[Windowed[K], dict[str, Any]]: ...

    @overload
    def agg(
        self, *, into: type[A], store: str | Store | None = ..., name: str | None = ..., **aggregates: Aggregate[Any]
    ) -> KTable[Windowed[K], A]: ...

    def agg(
        self, *, into: Any = None, store: str | Store | None = None, name: str | None = None, **aggregates: Aggregate[Any]
    ) -> KTable[Windowed[K], Any]:
        """Compute ready aggregates of each key in each window; see `KGroupedStream.agg`."""
        return KTable(windowed_aggregations.agg(self._windowed, into, aggregates, store, name, user_line()))


class CogroupedKStream(Generic[K, A]):
    """Several grouped streams that feed one aggregate."""

    __slots__ = ("_cogroup",)

    def __init__(self, cogroup: Cogroup) -> None:
        self._cogroup = cogroup

    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, A], A]) -> CogroupedKStream[K, A]:
        """Add a grouped stream with its own `aggregator(key, value, aggregate)`."""
        return CogroupedKStream(self._cogroup.with_part(grouped._group, aggregator, user_line()))

    def windowed_by(self, windows: AnyWindows) -> WindowedCogroupedKStream[K, A]:
        """Aggregate per window."""
        return WindowedCogroupedKStream(self._cogroup.cut(windows, user_line()))

    def aggregate(
        self, initializer: Callable[[], A], *, value: Any = None, store: str | Store | None = None, name: str | None = None
    ) -> KTable[K, A]:
        """Return the table of the common aggregate."""
        return KTable(cogroups.aggregate(self._cogroup, initializer, None, value, store, name, user_line()))


class WindowedCogroupedKStream(Generic[K, A]):
    """Several grouped streams, cut into windows, that feed one aggregate per window."""

    __slots__ = ("_cogroup",)

    def __init__(self, cogroup: Cogroup) -> None:
        self._cogroup = cogroup

    def cogroup(self, grouped: KGroupedStream[K, V], aggregator: Callable[[K, V, A], A]) -> WindowedCogroupedKStream[K, A]:
        """Add a grouped stream with its own `aggregator(key, value, aggregate)`."""
        return WindowedCogroupedKStream(self._cogroup.with_part(grouped._group, aggregator, user_line()))

    def aggregate(
        self,
        initializer: Callable[[], A],
        merger: Callable[[K, A, A], A] | None = None,
        *,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[Windowed[K], A]:
        """Return the table of the common aggregate per window; session windows also need `merger(key, one, two)`."""
        return KTable(cogroups.aggregate(self._cogroup, initializer, merger, value, store, name, user_line()))


class KGroupedTable(Generic[K, V]):
    """A table grouped by another key: a changed entry is subtracted from its old group and added to its new one."""

    __slots__ = ("_group",)

    def __init__(self, group: TableGroup) -> None:
        self._group = group

    def count(self, *, store: str | Store | None = None, name: str | None = None) -> KTable[K, int]:
        """Count the entries of each group."""
        return KTable(table_aggregations.count(self._group, store, name, user_line()))

    def reduce(
        self,
        adder: Callable[[V, V], V],
        subtractor: Callable[[V, V], V],
        *,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[K, V]:
        """Combine the values of each group: `adder(aggregate, new)` and `subtractor(aggregate, old)`."""
        return KTable(table_aggregations.reduce(self._group, adder, subtractor, store, name, user_line()))

    def aggregate(
        self,
        initializer: Callable[[], A],
        adder: Callable[[K, V, A], A],
        subtractor: Callable[[K, V, A], A],
        *,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[K, A]:
        """Combine the values of each group: `adder(key, new, aggregate)` and `subtractor(key, old, aggregate)`."""
        functions = (initializer, adder, subtractor)
        return KTable(table_aggregations.aggregate(self._group, *functions, value, store, name, user_line()))

    @overload
    def agg(
        self, *, into: None = ..., store: str | Store | None = ..., name: str | None = ..., **aggregates: Aggregate[Any]
    ) -> KTable[K, dict[str, Any]]: ...

    @overload
    def agg(
        self, *, into: type[A], store: str | Store | None = ..., name: str | None = ..., **aggregates: Aggregate[Any]
    ) -> KTable[K, A]: ...

    def agg(
        self, *, into: Any = None, store: str | Store | None = None, name: str | None = None, **aggregates: Aggregate[Any]
    ) -> KTable[K, Any]:
        """Compute ready aggregates of each group; see `KGroupedStream.agg`. It takes only `count`, `sum` and `mean`."""
        return KTable(table_aggregations.agg(self._group, into, aggregates, store, name, user_line()))


# The values by which the modules below know a handle. They get any other object as it is, and reject it.


def _joined(handle: object) -> object:
    if isinstance(handle, KStream):
        return handle._side
    if isinstance(handle, GlobalKTable):
        return GlobalTable(handle.store_name)
    return _table(handle)


def _stream(handle: object) -> object:
    return handle._place if isinstance(handle, KStream) else handle


def _table(handle: object) -> object:
    return handle._at if isinstance(handle, KTable) else handle
