"""From a case to a Penstock topology; oracle/Dsl.java and oracle/Papi.java do the same with Kafka Streams."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock import KGroupedStream, KStream, KTable, StreamsBuilder, Topology, otherwise
from verification.conformance import functions
from verification.conformance.functions import clip, show
from verification.conformance.options import emit_strategy, given, serde, state_store, store, suppressed, windows
from verification.conformance.processors import supplier
from verification.conformance.spec import Case, Op


class Effects:
    """What peek, foreach and print did, per operation."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._actions: dict[str, list[str]] = {}
        self._files: list[str] = []

    def action(self, op: Op) -> Callable[[Any, Any], None]:
        """The function that peek and foreach call."""
        seen = self._actions.setdefault(op.id, [])
        return lambda key, value: seen.append(f"{clip(show(key))}={clip(show(value))}")

    def file(self, op: Op) -> str:
        """The file that print writes to."""
        self._files.append(op.id)
        return str(self._folder / f"{op.id}.print")

    def seen(self) -> dict[str, list[str]]:
        """All effects."""
        for name in self._files:
            path = self._folder / f"{name}.print"
            self._actions[name] = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return self._actions


Supplier = Callable[[str, dict[str, Any]], Callable[[], Any]]
"""`supplier(name, arguments)` returns a supplier of the processor of that name."""


def build(
    case: Case, effects: Effects, supplier: Supplier = supplier, dsl: Callable[[Effects, Supplier], Dsl] | None = None
) -> Topology:
    """The case's topology, with processors from a library, and operations of the DSL that `dsl` knows."""
    if case.kind == "topology":
        topology = Topology()
        for op in case.ops:
            _PAPI[op.verb](topology, op.args, supplier)
        return topology
    built = (dsl or Dsl)(effects, supplier)
    for op in case.ops:
        built.add(op)
    return built.builder.build()


class Dsl:
    """Builds a topology of the DSL, one operation after the other."""

    def __init__(self, effects: Effects, supplier: Supplier) -> None:
        self.builder = StreamsBuilder(key=str, value=str)
        self._effects = effects
        self._supplier = supplier
        self._handles: dict[str, Any] = {}

    def add(self, op: Op) -> None:
        """Add an operation."""
        handle, _, verb = op.verb.partition("_")
        inputs = [self._handles[name] for name in op.inputs]
        result = getattr(self, f"_{handle}")(verb, op, *inputs)
        if isinstance(result, tuple):
            for index, branch in enumerate(result):
                self._handles[f"{op.id}.{index}"] = branch
        elif result is not None:
            self._handles[op.id] = result

    def _builder(self, verb: str, op: Op) -> Any:
        args, builder = op.args, self.builder
        consumed = given(args, "name", key=serde, value=serde)
        # Kafka Streams accepts and ignores a timestamp extractor of global stores; Penstock has none there.
        own = given(args, "reset", timestamp=functions.TIMESTAMPS.__getitem__)
        if verb == "stream":
            return builder.stream(args["topic"], **consumed, **own)
        if verb == "stream_topics":
            return builder.stream(args["topics"], **consumed, **own)
        if verb == "stream_pattern":
            return builder.stream(re.compile(args["pattern"]), **consumed, **own)
        if verb == "table":
            return builder.table(args["topic"], store=store(args), **consumed, **own)
        if verb == "global_table":
            return builder.global_table(args["topic"], store=store(args), **consumed)
        if verb == "add_state_store":
            builder.add_state_store(state_store(args))
        else:
            builder.add_global_store(
                state_store(args["global"]["args"]), args["topic"], self._supplier("global_put", args), **consumed
            )
        return None

    def _stream(self, verb: str, op: Op, stream: KStream[Any, Any], *others: Any) -> Any:
        args = op.args
        name = given(args, "name")
        serdes = given(args, key=serde, value=serde)
        fn = args.get("fn", "")
        keyed = args.get("with_key", False)
        if verb in {"filter", "filter_not"}:
            return getattr(stream, verb)(functions.PREDICATES[fn], **name)
        if verb in {"map", "flat_map", "select_key"}:
            table: dict[str, dict[str, Any]] = {
                "map": functions.MAPPERS,
                "flat_map": functions.FLAT_MAPPERS,
                "select_key": functions.KEY_SELECTORS,
            }
            return getattr(stream, verb)(table[verb][fn], **name)
        if verb == "map_values":
            return stream.map_values(
                (functions.VALUE_MAPPERS_WITH_KEY if keyed else functions.VALUE_MAPPERS)[fn], with_key=keyed, **name
            )
        if verb == "flat_map_values":
            mappers: Any = functions.FLAT_VALUE_MAPPERS_WITH_KEY if keyed else functions.FLAT_VALUE_MAPPERS
            return stream.flat_map_values(mappers[fn], with_key=keyed, **name)
        if verb in {"peek", "foreach"}:
            return getattr(stream, verb)(self._effects.action(op), **name)
        if verb == "print":
            mapper = (lambda k, v: f"{show(k)} -> {show(v)}") if args.get("mapper") else None
            return stream.print(file=self._effects.file(op), mapper=mapper, **given(args, "label"), **name)
        if verb == "merge":
            return stream.merge(others[0], **name)
        if verb == "split":
            return _split(stream, args)
        if verb == "repartition":
            return stream.repartition(**serdes, **given(args, "partitions"), **name)
        if verb in {"to", "to_dynamic"}:
            topic = functions.topic_extractor(fn, args["topic"]) if verb == "to_dynamic" else args["topic"]
            partitioner: dict[str, Any] = {"partitioner": lambda *_: 0} if args.get("partitioner") else {}
            return stream.to(topic, **serdes, **partitioner, **name)
        if verb == "to_table":
            return stream.to_table(store=store(args), **name)
        if verb == "group_by_key":
            return stream.group_by_key(**serdes, **name)
        if verb == "group_by":
            return stream.group_by(functions.KEY_SELECTORS[fn], **serdes, **name)
        if verb in {"process", "process_values"}:
            return getattr(stream, verb)(self._supplier(fn, args), stores=args.get("stores", ()), **name)
        return _stream_join(verb, args, stream, others[0])

    def _table(self, verb: str, op: Op, table: KTable[Any, Any], *others: Any) -> Any:
        args = op.args
        name = given(args, "name")
        kept: dict[str, Any] = {"store": store(args)}
        fn = args.get("fn", "")
        keyed = args.get("with_key", False)
        if verb in {"filter", "filter_not"}:
            return getattr(table, verb)(functions.PREDICATES[fn], **kept, **name)
        if verb == "map_values":
            mappers: Any = functions.VALUE_MAPPERS_WITH_KEY if keyed else functions.VALUE_MAPPERS
            return table.map_values(mappers[fn], with_key=keyed, **kept, **name)
        if verb == "transform_values":
            return table.transform_values(self._supplier(fn, args), stores=args.get("stores", ()), **kept, **name)
        if verb == "to_stream":
            return table.to_stream(functions.KEY_SELECTORS[fn], **name) if fn else table.to_stream(**name)
        if verb == "suppress":
            return table.suppress(suppressed(args))
        if verb == "group_by":
            return table.group_by(functions.MAPPERS[fn], **given(args, key=serde, value=serde), **name)
        join = getattr(table, _join_verb(args["kind"]))
        if verb == "join_table":
            return join(others[0], functions.JOINERS[fn], **kept, **name)
        on: Any = functions.FOREIGN_KEYS_WITH_KEY if keyed else functions.FOREIGN_KEYS
        return join(others[0], functions.JOINERS[fn], on=on[args["on"]], with_key=keyed, **kept, **name)

    def _grouped(self, verb: str, op: Op, grouped: KGroupedStream[Any, Any]) -> Any:
        args = op.args
        if verb == "windowed_by":
            windowed = grouped.windowed_by(windows(args["windows"]))
            return windowed.emit_strategy(emit_strategy(args["emit"])) if "emit" in args else windowed
        if verb == "cogroup":
            return grouped.cogroup(functions.AGGREGATORS[args["fn"]])
        return _aggregate(verb, args, grouped)

    def _windowed(self, verb: str, op: Op, windowed: Any) -> Any:
        return _aggregate(verb, op.args, windowed)

    def _sessions(self, verb: str, op: Op, windowed: Any) -> Any:
        return _aggregate(verb, op.args, windowed)

    def _cogrouped(self, verb: str, op: Op, cogrouped: Any, *others: Any) -> Any:
        args = op.args
        if verb == "cogroup":
            return cogrouped.cogroup(others[0], functions.AGGREGATORS[args["fn"]])
        if verb == "windowed_by":
            return cogrouped.windowed_by(windows(args["windows"]))
        return _aggregate(verb, args, cogrouped)

    def _regrouped(self, verb: str, op: Op, grouped: Any) -> Any:
        args = op.args
        common = {"store": store(args), **given(args, "name")}
        if verb == "count":
            return grouped.count(**common)
        if verb == "reduce":
            return grouped.reduce(functions.REDUCERS[args["fn"]], functions.REDUCERS[args["subtract"]], **common)
        if verb == "agg":
            return grouped.agg(**_aggregates(args), **common)
        adder, subtractor = functions.AGGREGATORS[args["fn"]], functions.AGGREGATORS[args["subtract"]]
        return grouped.aggregate(functions.INITIALIZERS[args["init"]], adder, subtractor, **common)


def _aggregate(verb: str, args: dict[str, Any], grouped: Any) -> Any:
    common = {"store": store(args), **given(args, "name")}
    if verb == "count":
        return grouped.count(**common)
    if verb == "reduce":
        return grouped.reduce(functions.REDUCERS[args["fn"]], **common)
    if verb == "agg":
        return grouped.agg(**_aggregates(args), **common)
    callables: list[Any] = [functions.INITIALIZERS[args["init"]]]
    if "fn" in args:
        callables.append(functions.AGGREGATORS[args["fn"]])
    if "merger" in args:
        callables.append(functions.MERGERS[args["merger"]])
    return grouped.aggregate(*callables, **common)


def _aggregates(args: dict[str, Any]) -> dict[str, Any]:
    return {name: functions.AGGREGATES[function] for name, function in args["fields"].items()}


def _join_verb(kind: str) -> str:
    return "join" if kind == "inner" else f"{kind}_join"


def _stream_join(verb: str, args: dict[str, Any], stream: KStream[Any, Any], other: Any) -> Any:
    keyed = args.get("with_key", False)
    joiner: Any = (functions.JOINERS_WITH_KEY if keyed else functions.JOINERS)[args["fn"]]
    options: dict[str, Any] = {"with_key": keyed, **given(args, "name")}
    if verb == "join_global":
        options["on"] = functions.KEY_SELECTORS[args["on"]]
    else:
        options |= given(args, "grace", "store_name", key=serde, value=serde, other_value=serde)
    if verb == "join_stream":
        before, after = args["within"]
        options["within"] = before if before == after else (before, after)
    return getattr(stream, _join_verb(args["kind"]))(other, joiner, **options)


def _split(stream: KStream[Any, Any], args: dict[str, Any]) -> tuple[Any, ...]:
    predicates: list[Any] = [functions.PREDICATES[name] for name in args["branches"]]
    if args.get("otherwise"):
        predicates.append(otherwise)
    if "names" in args:
        return tuple(stream.split(**given(args, "name"), **dict(zip(args["names"], predicates, strict=True))).values())
    return tuple(stream.split(*predicates, **given(args, "name")))


def _text_serdes(args: dict[str, Any]) -> dict[str, Any]:
    return {"key": serde(args.get("key", "string")), "value": serde(args.get("value", "string"))}


def _add_source(topology: Topology, args: dict[str, Any], _: Supplier) -> None:
    topics = [re.compile(args["pattern"])] if "pattern" in args else args["topics"]
    timestamp = given(args, timestamp=functions.TIMESTAMPS.__getitem__)
    topology.add_source(args["name"], *topics, **_text_serdes(args), **timestamp)


def _add_sink(topology: Topology, args: dict[str, Any], _: Supplier) -> None:
    topic = functions.topic_extractor(args["fn"], args["topic"]) if "fn" in args else args["topic"]
    topology.add_sink(args["name"], topic, *args["parents"], **_text_serdes(args))


def _add_filled_store(add: Callable[..., object], args: dict[str, Any], supplier: Supplier) -> None:
    names = {"source": args["name"], "processor": args["processor"]}
    add(state_store(args["global"]["args"]), args["topic"], supplier("global_put", args), **names, **_text_serdes(args))


_PAPI: dict[str, Callable[[Topology, dict[str, Any], Supplier], object]] = {
    "topology_add_source": _add_source,
    "topology_add_sink": _add_sink,
    "topology_add_processor": lambda topology, args, supplier: topology.add_processor(
        args["name"], supplier(args["fn"], args), *args["parents"]
    ),
    "topology_add_state_store": lambda topology, args, _: topology.add_state_store(
        state_store(args), *args.get("processors", ())
    ),
    "topology_connect": lambda topology, args, _: topology.connect_processor_and_state_stores(args["processor"], *args["stores"]),
    "topology_add_global_store": lambda topology, args, supplier: _add_filled_store(topology.add_global_store, args, supplier),
    "topology_add_read_only_store": lambda topology, args, supplier: _add_filled_store(
        topology.add_read_only_state_store, args, supplier
    ),
}
