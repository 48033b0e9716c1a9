"""`StreamsBuilder`: topics in, `Topology` out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar, overload

from penstock.dsl.backfills import BackfilledSources, global_table, source_place
from penstock.dsl.draft import Draft, DraftNode
from penstock.dsl.handles import GlobalKTable, KStream, KTable
from penstock.dsl.place import Place, given_serde
from penstock.dsl.stores import Store, materialized
from penstock.dsl.table_drafts import SourceDraft, TablePlace, source_table_write
from penstock.errors import TopologyError
from penstock.handlers import ErrorHandler, check_late_policy
from penstock.operators.lateness import LatePolicy
from penstock.operators.processors import ProcessorOperator
from penstock.operators.schedules import TICK_KEY, TICK_VALUE, Ticks
from penstock.operators.timers import timers_spec
from penstock.processor import Processor
from penstock.records import SourceRecord
from penstock.serdes import Json, Serde, serde_of
from penstock.state import StoreSpec
from penstock.timing import Duration, Watermark, schedule
from penstock.topology import Line, ProcessorNode, SourceNode, Topology, user_line
from penstock.topology.functions import checked
from penstock.topology.nodes import TimestampExtractor, offset_reset

K = TypeVar("K")
V = TypeVar("V")


class StreamsBuilder(BackfilledSources):
    """Declares a topology: read topics, transform, join, aggregate, write.

    `key` and `value` are the serdes where none is given and none is known from upstream. The defaults are text and JSON.

    Example:
        >>> builder = StreamsBuilder()
        >>> words = builder.stream("lines", value=str).flat_map_values(str.split).group_by(lambda _, word: word)
        >>> words.count(store="words").to_stream().to("counts", value=int)
        >>> len(builder.build().nodes)
        9
    """

    def __init__(self, *, key: Any = str, value: Any = None) -> None:
        self._draft = Draft(serde_of(key), Json() if value is None else serde_of(value))

    @overload
    def stream(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        *,
        timestamp: TimestampExtractor | None = ...,
        watermark: Watermark | None = ...,
        late: ErrorHandler | None = ...,
        reset: str | timedelta | None = ...,
        name: str | None = ...,
    ) -> KStream[Any, Any]: ...

    @overload
    def stream(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        *,
        value: type[V] | Serde[V],
        timestamp: Callable[[SourceRecord[Any, V]], int] | None = ...,
        watermark: Watermark | None = ...,
        late: ErrorHandler | None = ...,
        reset: str | timedelta | None = ...,
        name: str | None = ...,
    ) -> KStream[Any, V]: ...

    @overload
    def stream(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        *,
        key: type[K] | Serde[K],
        timestamp: Callable[[SourceRecord[K, Any]], int] | None = ...,
        watermark: Watermark | None = ...,
        late: ErrorHandler | None = ...,
        reset: str | timedelta | None = ...,
        name: str | None = ...,
    ) -> KStream[K, Any]: ...

    @overload
    def stream(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        timestamp: Callable[[SourceRecord[K, V]], int] | None = ...,
        watermark: Watermark | None = ...,
        late: ErrorHandler | None = ...,
        reset: str | timedelta | None = ...,
        name: str | None = ...,
    ) -> KStream[K, V]: ...

    def stream(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        *,
        key: Any = None,
        value: Any = None,
        timestamp: TimestampExtractor | None = None,
        watermark: Watermark | None = None,
        late: ErrorHandler | None = None,
        reset: str | timedelta | None = None,
        name: str | None = None,
    ) -> KStream[Any, Any]:
        """Read a topic, several topics, or all topics that match a pattern, as a stream of records.

        `timestamp(record)` returns a record's event time in milliseconds; one with a negative time is skipped and counted, and
        `record.partition_time` is the highest of its partition so far. `watermark` says how far out of order records may be, and
        how long to wait for idle partitions: see `bounded_disorder`. `late` handles records behind the watermark:
        `log_and_continue()` drops and counts them, `dead_letter(...)` keeps them; without it they are processed like others, by
        windows only during the grace period. `reset` is where to start without a committed offset: `"earliest"`, `"latest"`,
        `"none"` (fail), or a duration before now.

        Streams of the same topics share one source. Unlike Kafka Streams, which uses the options of the first one, Penstock
        requires that they have equal serdes, `timestamp`, `watermark` and `reset`.
        """
        line = user_line()
        if timestamp is not None:
            checked(timestamp, "record", "timestamp=", line)
        pattern = topic if isinstance(topic, re.Pattern) else None
        topics = () if isinstance(topic, re.Pattern) else (topic,) if isinstance(topic, str) else tuple(dict.fromkeys(topic))
        if not topics and pattern is None:
            raise TopologyError(f"stream needs at least one topic ({line}).")
        name = self._draft.name("KSTREAM-SOURCE-", name)
        key_serde, value_serde = given_serde(key), given_serde(value)
        source = SourceNode(
            name,
            topics,
            pattern,
            key_serde or self._draft.default_key,
            value_serde or self._draft.default_value,
            line,
            timestamp,
            offset_reset(reset),
            watermark=watermark,
        )
        equal = frozenset(topics if pattern is None else (f"pattern {pattern.pattern} {pattern.flags}",))
        place = source_place(self._draft, source, equal, key_serde, value_serde)
        late_policy = _late_policy(late, watermark, line)
        if late_policy is None:
            return KStream(place, source=place if watermark is not None else None)
        return KStream(place.below(self._draft.name("KSTREAM-LATE-", None), late_policy, line), source=place)

    @overload
    def table(
        self,
        topic: str,
        *,
        timestamp: TimestampExtractor | None = ...,
        watermark: Watermark | None = ...,
        late: ErrorHandler | None = ...,
        reset: str | timedelta | None = ...,
        store: str | Store | None = ...,
        name: str | None = ...,
    ) -> KTable[Any, Any]: ...

    @overload
    def table(
        self,
        topic: str,
        *,
        value: type[V] | Serde[V],
        timestamp: Callable[[SourceRecord[Any, V]], int] | None = ...,
        watermark: Watermark | None = ...,
        late: ErrorHandler | None = ...,
        reset: str | timedelta | None = ...,
        store: str | Store | None = ...,
        name: str | None = ...,
    ) -> KTable[Any, V]: ...

    @overload
    def table(
        self,
        topic: str,
        *,
        key: type[K] | Serde[K],
        timestamp: Callable[[SourceRecord[K, Any]], int] | None = ...,
        watermark: Watermark | None = ...,
        late: ErrorHandler | None = ...,
        reset: str | timedelta | None = ...,
        store: str | Store | None = ...,
        name: str | None = ...,
    ) -> KTable[K, Any]: ...

    @overload
    def table(
        self,
        topic: str,
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        timestamp: Callable[[SourceRecord[K, V]], int] | None = ...,
        watermark: Watermark | None = ...,
        late: ErrorHandler | None = ...,
        reset: str | timedelta | None = ...,
        store: str | Store | None = ...,
        name: str | None = ...,
    ) -> KTable[K, V]: ...

    def table(
        self,
        topic: str,
        *,
        key: Any = None,
        value: Any = None,
        timestamp: TimestampExtractor | None = None,
        watermark: Watermark | None = None,
        late: ErrorHandler | None = None,
        reset: str | timedelta | None = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> KTable[Any, Any]:
        """Read a topic as a table: the last value of each key; a null value deletes the key.

        With `store=` it is kept, and can be queried by that name. Without, it is kept if a verb below looks keys up in it (a
        join, for example), and can then be queried by the name of the topic.

        `timestamp`, `watermark`, `late` and `reset` are those of `stream`.
        """
        line = user_line()
        if timestamp is not None:
            checked(timestamp, "record", "timestamp=", line)
        draft = self._draft
        kept = materialized(draft, store, f"{topic}-", topic=topic)
        kept.key, kept.value = given_serde(key) or kept.key, given_serde(value) or kept.value
        source_name = draft.name("KSTREAM-SOURCE-", name, "-source")
        name = draft.name("KTABLE-SOURCE-", name)
        table = SourceDraft(kept, kept.is_queryable)
        source = SourceNode(
            source_name,
            (topic,),
            None,
            kept.key or draft.default_key,
            kept.value or draft.default_value,
            line,
            timestamp,
            offset_reset(reset),
            watermark=watermark,
        )
        write_table = source_table_write(draft, name, table, line)
        late_policy = _late_policy(late, watermark, line)
        late_name = None if late_policy is None else draft.name("KSTREAM-LATE-", None)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_node(source)
            if late_policy is None or late_name is None:
                write_table(topology, (source_name,))
            else:
                topology.add_node(ProcessorNode(late_name, (source_name,), late_policy, (), line))
                write_table(topology, (late_name,))

        node = draft.add(DraftNode(name, line, write, output_versioned=kept.is_versioned))
        place = Place(draft, node, name, kept.key, kept.value, frozenset({source_name}))
        return KTable(TablePlace(place, table, kept.queryable_name))

    @overload
    def global_table(self, topic: str, *, store: str | Store | None = ..., name: str | None = ...) -> GlobalKTable[Any, Any]: ...

    @overload
    def global_table(
        self, topic: str, *, value: type[V] | Serde[V], store: str | Store | None = ..., name: str | None = ...
    ) -> GlobalKTable[Any, V]: ...

    @overload
    def global_table(
        self, topic: str, *, key: type[K] | Serde[K], store: str | Store | None = ..., name: str | None = ...
    ) -> GlobalKTable[K, Any]: ...

    @overload
    def global_table(
        self,
        topic: str,
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        store: str | Store | None = ...,
        name: str | None = ...,
    ) -> GlobalKTable[K, V]: ...

    def global_table(
        self,
        topic: str,
        *,
        key: Any = None,
        value: Any = None,
        store: str | Store | None = None,
        name: str | None = None,
    ) -> GlobalKTable[Any, Any]:
        """Read a topic as a table of which every lane has a whole copy."""
        kept = materialized(self._draft, store, f"{topic}-", queryable=True, topic=topic)
        return global_table(self._draft, topic, kept, (key, value), name)

    def schedule(
        self,
        name: str,
        *,
        cron: str | None = None,
        every: Duration | None = None,
        tz: str | None = None,
        misfire: str = "once",
    ) -> KStream[str, int]:
        """Return a stream of ticks, by a cron expression in a time zone (default: UTC) or at an interval.

        A tick's key is the schedule's name; its value and its timestamp are the time it was due, in epoch milliseconds. A
        schedule begins when the application first starts with it, and again when its expression changes. `misfire` decides which
        of the ticks that could not be sent in time are sent: the last one (`"once"`), all (`"all"`), or the last one if it is
        less than a minute late (`"skip"`).

        Example:
            >>> builder = StreamsBuilder()
            >>> builder.schedule("nightly", cron="0 2 * * *", tz="Europe/Zurich").to("nights", value=int)
            >>> print(builder.build().describe().splitlines()[2].strip())
            Source: nightly-schedule (schedule: cron 0 2 * * * in Europe/Zurich, misfire: once)
        """
        line = user_line()
        draft = self._draft
        try:
            made = schedule(cron, every, tz, misfire)
        except TopologyError as error:
            raise TopologyError(f"Schedule {name!r}: {error} ({line}).") from None
        spec = timers_spec(name, TICK_KEY)
        source = SourceNode(f"{name}-schedule", (), None, TICK_KEY, TICK_VALUE, line, schedule=made)
        ticks = ProcessorNode(name, (source.name,), Ticks(name, made, spec.name), (), line)

        def write(topology: Topology, parents: tuple[str, ...]) -> None:
            topology.add_node(source)
            topology.add_node(ticks)
            topology.add_state_store(spec, name)

        node = draft.add(DraftNode(name, line, write))
        return KStream(Place(draft, node, name, TICK_KEY, TICK_VALUE, frozenset({source.name})))

    def add_state_store(self, spec: StoreSpec) -> StreamsBuilder:
        """Declare a store for processors to use; see `key_value_store` and its siblings."""
        line = user_line()
        self._draft.add(DraftNode(spec.name, line, lambda topology, parents: _ignore(topology.add_state_store(spec))))
        return self

    def add_global_store(
        self,
        spec: StoreSpec,
        topic: str,
        supplier: Callable[[], Processor[K, V, Any, Any]],
        *,
        key: type[K] | Serde[K] | None = None,
        value: type[V] | Serde[V] | None = None,
        name: str | None = None,
    ) -> StreamsBuilder:
        """Declare a store of which every lane has a whole copy; your processor fills it from all of `topic`."""
        line = user_line()
        draft = self._draft
        source_name = draft.name("KSTREAM-SOURCE-", name, "-source")
        name = draft.name("KTABLE-SOURCE-", name)
        key_serde, value_serde = given_serde(key) or draft.default_key, given_serde(value) or draft.default_value
        source = SourceNode(source_name, (topic,), None, key_serde, value_serde, line)
        operator = ProcessorOperator(checked(supplier, "", "add_global_store", line), fixed_key=False)
        feeder = ProcessorNode(name, (source_name,), operator, (spec.name,), line)
        draft.add(DraftNode(name, line, lambda topology, parents: topology.add_global_nodes(spec, source, feeder)))
        return self

    def build(self) -> Topology:
        """Return the topology declared so far. It is frozen: what you declare later is part of the next one only."""
        return self._draft.write()


def _ignore(_: object) -> None:
    """Return nothing, as a `Write` does."""


def _late_policy(late: ErrorHandler | None, watermark: Watermark | None, line: Line) -> LatePolicy | None:
    """Return the operator that handles late records; None if they are handled like others."""
    if late is None:
        return None
    if watermark is None:
        raise TopologyError(f"late= needs watermark=, which decides when a record is late ({line}).")
    check_late_policy(late, "late=")
    return LatePolicy(late)
