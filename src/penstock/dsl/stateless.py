"""The stateless verbs of streams: each puts one node below a place (`split` more) and returns the place of that node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.dsl.annotations import Pair, items_of, key_made, pair_of, returned, value_made
from penstock.dsl.draft import DraftNode, one_processor
from penstock.dsl.expressions import Predicate, computed, predicate, records_of, serde_for
from penstock.dsl.place import Place, given_serde
from penstock.errors import TopologyError
from penstock.expressions import Expression
from penstock.expressions.functions import Form
from penstock.expressions.nodes import Struct
from penstock.operators.lateness import OnlyLate
from penstock.operators.printer import Print
from penstock.operators.stateless import Branch, Filter, FlatMap, FlatMapValues, Map, MapValues, PassThrough, Peek, SelectKey
from penstock.processor import Operator
from penstock.records import OfPair, OnRecord
from penstock.serdes import Serde
from penstock.topology import Line
from penstock.topology.functions import checked, checked_on_record


def otherwise(key: Any, value: Any) -> bool:
    """The predicate of a `split`'s default branch."""
    return True


def select_late(here: Place, source: Place | None, name: str | None, line: Line) -> Place:
    """Keep only the late records of a source."""
    if source is None:
        raise TopologyError(
            f"{here.name} has no late records ({line}): call late_records on a stream that was read with watermark=."
        )
    return source.below(here.draft.name("KSTREAM-LATE-", name), OnlyLate(), line)


def filter_records(here: Place, given: tuple[Any, ...], name: str | None, line: Line, *, negate: bool = False) -> Place:
    """Keep the records for which the predicate holds; with `negate`, the others."""
    operator = Filter(predicate(here, given, "filter_not" if negate else "filter", line), negate)
    return here.below(here.draft.name("KSTREAM-FILTER-", name), operator, line)


def select_key(here: Place, mapper: Any, key: Any, name: str | None, line: Line) -> Place:
    """Replace the key."""
    operator, serde = _selector(here, mapper, key, "select_key", line)
    name = here.draft.name("KSTREAM-KEY-SELECT-", name)
    return here.below(name, operator, line, rekeyed=True, key=serde)


def group_by(here: Place, selector: Any, key: Any, value: Any, name: str | None, line: Line) -> Place:
    """Replace the key by the one to group by."""
    operator, serde = _selector(here, selector, key, "group_by", line)
    name = here.draft.name("KSTREAM-KEY-SELECT-", name)
    value_serde = given_serde(value) or here.value
    return here.below(name, operator, line, rekeyed=True, key=serde, value=value_serde)


def _selector(here: Place, mapper: Any, key: Any, verb: str, line: Line) -> tuple[SelectKey, Serde[Any] | None]:
    """Return the operator that replaces the key, and the serde of the new key as far as it is known."""
    if not isinstance(mapper, Expression):
        operator = SelectKey(checked_on_record(mapper, "key, value", verb, line))
        return operator, key_made(here.draft, key, returned(mapper))
    found = computed(mapper, Form.VALUE, records_of(here), verb, line)
    if isinstance(found.node, Struct):
        raise TopologyError(f"{verb} needs a single value as the key, not {found.describe()} ({line}).")
    return SelectKey(found), given_serde(key) or serde_for(found, records_of(here), here)


def map_records(
    here: Place, mapper: OfPair[Any, Any, tuple[Any, Any]], key: Any, value: Any, name: str | None, line: Line
) -> Place:
    """Replace key and value."""
    operator = Map(checked_on_record(mapper, "key, value", "map", line))
    name = here.draft.name("KSTREAM-MAP-", name)
    return _pairs_below(here, name, operator, (key, value), pair_of(returned(mapper)), "map", line)


def map_values(here: Place, mapper: Any, with_key: bool, value: Any, name: str | None, line: Line) -> Place:
    """Replace the value."""
    if isinstance(mapper, Expression):
        found = computed(mapper, Form.VALUE, records_of(here), "map_values", line, with_key=with_key)
        serde = given_serde(value) or serde_for(found, records_of(here), here)
        return here.below(here.draft.name("KSTREAM-MAPVALUES-", name), MapValues(found, with_key=True), line, value=serde)
    operator = MapValues(_of_value(mapper, with_key, "map_values", line), with_key)
    made = value_made(here.draft, value, returned(mapper), "map_values", line)
    return here.below(here.draft.name("KSTREAM-MAPVALUES-", name), operator, line, value=made)


def flat_map(
    here: Place, mapper: OfPair[Any, Any, Iterable[tuple[Any, Any]]], key: Any, value: Any, name: str | None, line: Line
) -> Place:
    """Replace a record with any number of records."""
    operator = FlatMap(checked_on_record(mapper, "key, value", "flat_map", line))
    name = here.draft.name("KSTREAM-FLATMAP-", name)
    return _pairs_below(here, name, operator, (key, value), pair_of(items_of(returned(mapper))), "flat_map", line)


def flat_map_values(here: Place, mapper: Any, with_key: bool, value: Any, name: str | None, line: Line) -> Place:
    """Replace a value with any number of values."""
    operator = FlatMapValues(_of_value(mapper, with_key, "flat_map_values", line), with_key)
    made = value_made(here.draft, value, items_of(returned(mapper)), "flat_map_values", line)
    return here.below(here.draft.name("KSTREAM-FLATMAPVALUES-", name), operator, line, value=made)


def _pairs_below(here: Place, name: str, operator: Operator, given: tuple[Any, Any], kinds: Pair, verb: str, line: Line) -> Place:
    """Put a node below that replaces key and value, with the serdes that are given or follow from the types."""
    key, value = key_made(here.draft, given[0], kinds[0]), value_made(here.draft, given[1], kinds[1], verb, line)
    return here.below(name, operator, line, rekeyed=True, key=key, value=value)


def _of_value(mapper: Any, with_key: bool, verb: str, line: Line) -> Any:
    """Return a mapper of values after checking what it is called with."""
    if with_key and isinstance(mapper, OnRecord):
        raise TopologyError(f"{verb} takes no with_key= with on_record ({line}): a record has its key.")
    return checked_on_record(mapper, "key, value" if with_key else "value", verb, line)


def peek(here: Place, action: OfPair[Any, Any, object], name: str | None, line: Line) -> Place:
    """Call a function for every record."""
    operator = Peek(checked_on_record(action, "key, value", "peek", line))
    return here.below(here.draft.name("KSTREAM-PEEK-", name), operator, line)


def foreach(here: Place, action: OfPair[Any, Any, object], name: str | None, line: Line) -> None:
    """Call a function for every record, and end the stream."""
    operator = Peek(checked_on_record(action, "key, value", "foreach", line))
    here.below(here.draft.name("KSTREAM-FOREACH-", name), operator, line)


def print_records(
    here: Place, label: str | None, file: str | None, mapper: Callable[[Any, Any], str] | None, name: str | None, line: Line
) -> None:
    """Write every record as text, and end the stream."""
    if mapper is not None:
        checked(mapper, "key, value", "print", line)
    operator = Print(label if label is not None else here.name, file, mapper)
    here.below(here.draft.name("KSTREAM-PRINTER-", name), operator, line)


def split(
    here: Place, predicates: Sequence[Predicate], named: Mapping[str, Predicate], name: str | None, line: Line
) -> list[Place]:
    """Send each record to the first branch whose predicate holds; return the places of the branches in their order."""
    if bool(predicates) == bool(named):
        raise TopologyError(f"split takes at least one predicate, either positional or named ({line}).")
    splitter = here.draft.name("KSTREAM-BRANCH-", name)
    branches: list[tuple[Callable[..., Any], str]] = []
    names: list[str] = []
    default: str | None = None
    for number, (label, given) in enumerate([*((None, p) for p in predicates), *named.items()], start=1):
        holds = predicate(here, (given,), "split", line)
        if given is otherwise:
            default = child = splitter + (label if label is not None else "0")
            if number != len(predicates) + len(named):
                raise TopologyError(f"otherwise must be the last branch of a split ({line}).")
        else:
            child = splitter + (label if label is not None else str(number))
            branches.append((holds, child))
        names.append(child)
    place = here.below(splitter, Branch(tuple(branches), default), line)
    children: list[Place] = []
    for child in names:
        here.draft.name(child)  # the counter advances for each branch
        children.append(place.below(child, PassThrough(), line))
    return children


def merge(here: Place, there: object, name: str | None, line: Line) -> Place:
    """Put the records of two streams into one."""
    if not isinstance(there, Place):
        raise TopologyError(f"merge takes another stream, not {type(there).__name__} ({line}): convert a table with to_stream().")
    here.check_same_builder(there, line)
    merged = here.draft.name("KSTREAM-MERGE-", name)
    node = here.draft.add(DraftNode(merged, line, one_processor(merged, line, PassThrough)), here.node, there.node)
    return here.moved(merged, node, rekeyed=here.rekeyed or there.rekeyed, sources=here.sources | there.sources)
