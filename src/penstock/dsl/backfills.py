"""Sources in a draft, and the verb of a builder for those that begin with something that is not in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.dsl.draft import Draft, DraftNode
from penstock.dsl.handles import KStream
from penstock.dsl.place import Place, given_serde
from penstock.errors import TopologyError
from penstock.serdes import Serde
from penstock.topology import Backfill, SourceNode, user_line
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


class BackfilledSources:
    """The verb of a builder for streams that begin outside of Kafka."""

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
