"""Sources in a draft, and the verbs of a builder for those whose records, or the first of them, are not in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.dsl.draft import Draft, DraftNode
from penstock.dsl.handles import GlobalKTable, KStream
from penstock.dsl.place import Place, given_serde
from penstock.dsl.stores import Materialized, materialized
from penstock.errors import TopologyError
from penstock.operators.tables import TableSource
from penstock.serdes import Serde
from penstock.timing import Duration, duration_ms
from penstock.topology import Backfill, Contents, ProcessorNode, SourceNode, user_line
from penstock.topology.functions import checked

if TYPE_CHECKING:
    from penstock.topology.backfill import Made

K = TypeVar("K")
V = TypeVar("V")


def source_place(
    draft: Draft, source: SourceNode, topics: frozenset[str], key: Serde[Any] | None, value: Serde[Any] | None
) -> Place:
    """Put a source into a draft; `topics` are what streams that share it have in common."""
    name = source.name
    node = DraftNode(name, source.line, lambda topology, parents: topology.add_node(source), topics=topics, source=source)
    draft.add(node)
    return Place(draft, node, name, key, value, frozenset({name}))


def global_table(
    draft: Draft, topic: str, kept: Materialized, serdes: tuple[Any, Any], name: str | None, contents: Contents | None = None
) -> GlobalKTable[Any, Any]:
    """Put a global table into a draft, which reads `topic`; serdes that are None are those of its store."""
    line = user_line()
    if kept.is_versioned:
        raise TopologyError(f"A global table cannot be versioned ({line}): remove history=.")
    key, value = serdes
    kept.key, kept.value = given_serde(key) or kept.key, given_serde(value) or kept.value
    source_name = draft.name("KSTREAM-SOURCE-", name, "-source")
    name = draft.name("KTABLE-SOURCE-", name)
    spec = kept.table_spec(draft)
    source = SourceNode(source_name, (topic,), None, *spec.serdes, line, contents=contents)
    feeder = ProcessorNode(name, (source_name,), TableSource(spec.name, send_old_values=False), (spec.name,), line)
    draft.add(DraftNode(name, line, lambda topology, parents: topology.add_global_nodes(spec, source, feeder)))
    return GlobalKTable(spec.name, kept.store_name)


class BackfilledSources:
    """The verbs of a builder for streams that begin outside of Kafka, and for tables that are kept there."""

    _draft: Draft

    def read(
        self,
        frame: Callable[[Any], Any],
        record: Callable[[Mapping[str, Any]], Made],
        *,
        order_by: str | Sequence[str],
        history: str,
        live: str | None = None,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        name: str | None = None,
    ) -> KStream[K, V]:
        """Read what Spark can read, once, and then the topic `live`, as one stream.

        `frame(session)` returns a DataFrame; `record(row)` returns the key, the value and the event time of a row, a dict. The
        first start loads the rows into the topic `history`, exactly once; the stream reads both topics, the earlier record first.
        `order_by` are columns that identify a row: by them, a start that follows a crash knows where to continue.

        Example:
            >>> from penstock import StreamsBuilder
            >>> builder = StreamsBuilder()
            >>> orders = builder.read(
            ...     lambda spark: spark.read.parquet("lake/orders"),
            ...     lambda row: (row["customer"], {"amount": row["amount"]}, row["at"]),
            ...     order_by="id",
            ...     history="orders-history",
            ...     live="orders",
            ...     key=str,
            ...     value=dict,
            ... )
            >>> [node.topics for node in builder.build().nodes.values()]
            [('orders-history', 'orders')]
        """
        line = user_line()
        checked(frame, "session", "read", line)
        checked(record, "row", "read", line)
        columns = (order_by,) if isinstance(order_by, str) else tuple(order_by)
        if not columns:
            raise TopologyError(f"read: order_by= needs at least one column ({line}).")
        key_serde, value_serde = given_serde(key), given_serde(value)
        topics = (history,) if live is None else (history, live)
        source = SourceNode(
            self._draft.name("KSTREAM-SOURCE-", name),
            topics,
            None,
            key_serde or self._draft.default_key,
            value_serde or self._draft.default_value,
            line,
            backfill=Backfill(history, frame, record, columns),
        )
        return KStream(source_place(self._draft, source, frozenset(topics), key_serde, value_serde))

    def global_table_from(
        self,
        frame: Callable[[Any], Any],
        entry: Callable[[Mapping[str, Any]], tuple[Any, Any]],
        *,
        store: str,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        refresh: Duration | None = None,
        name: str | None = None,
    ) -> GlobalKTable[K, V]:
        """Return a global table of what Spark can read: read at every start, and again at the interval `refresh`, if given.

        `frame(session)` returns a DataFrame; `entry(row)` returns the key and the value of a row, a dict. A row whose value is
        None is left out. What has changed since the last time is written in one transaction to the topic
        `<application>-<store>-global`, which the application creates and the table reads. In a test, feed `<store>-global`.

        Example:
            >>> from penstock import StreamsBuilder
            >>> from penstock.testing import TopologyTestDriver
            >>> builder = StreamsBuilder()
            >>> countries = builder.global_table_from(
            ...     lambda spark: spark.read.parquet("lake/countries"),
            ...     lambda row: (row["code"], row["name"]),
            ...     store="countries",
            ...     key=str,
            ...     value=str,
            ...     refresh="10m",
            ... )
            >>> visits = builder.stream("visits", value=str)
            >>> visits.join(countries, lambda code, name: name, on=lambda key, code: code).to("visited", value=str)
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     driver.input("countries-global").pipe("Switzerland", key="CH")
            ...     driver.input("visits").pipe("CH", key="ann")
            ...     driver.output("visited").read_value()
            'Switzerland'
        """
        line = user_line()
        checked(frame, "session", "global_table_from", line)
        checked(entry, "row", "global_table_from", line)
        refresh_ms = None if refresh is None else duration_ms(refresh, "refresh")
        if refresh_ms is not None and refresh_ms <= 0:
            cure = "Omit it to read the rows at starts only."
            raise TopologyError(f"global_table_from: refresh= must be longer than 0 ({line}). {cure}")
        kept = materialized(self._draft, store, "", queryable=True)
        return global_table(self._draft, f"{store}-global", kept, (key, value), name, Contents(frame, entry, refresh_ms))
