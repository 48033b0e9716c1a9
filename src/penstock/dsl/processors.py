"""Processors in a draft: each verb returns the place of the results, and the `Sender` of the side outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.dsl.annotations import BY_PROCESSOR, forwarded, key_made, value_made
from penstock.dsl.place import Place
from penstock.dsl.repartitions import exchanged
from penstock.dsl.side_outputs import ExchangedSender, Sender
from penstock.errors import TopologyError
from penstock.operators.processors import ProcessorOperator, SetUp, Supplier, sets_timers
from penstock.operators.shared import AtomicProcessing
from penstock.operators.timers import timers_spec
from penstock.state import StoreSpec
from penstock.topology import Line
from penstock.topology.functions import checked_supplier


def process(
    here: Place, supplier: Supplier, setup: SetUp, stores: Iterable[str], key: Any, value: Any, name: str | None, line: Line
) -> tuple[Place, Sender]:
    """Run a processor that may change keys."""
    name = here.draft.name("KSTREAM-PROCESSOR-") if name is None else name
    operator, own_store = _processing(here, checked_supplier(supplier, setup, "process", line), setup, name, fixed_key=False)
    key_kind, value_kind = forwarded(supplier)
    serdes = {
        "key": key_made(here.draft, key, key_kind),
        "value": value_made(here.draft, value, value_kind, "process", line, BY_PROCESSOR),
    }
    place = here.below(name, operator, line, rekeyed=True, stores=_names(stores, "process", line), own_store=own_store, **serdes)
    return place, Sender(place)


def process_values(
    here: Place, supplier: Supplier, setup: SetUp, stores: Iterable[str], value: Any, name: str | None, line: Line
) -> tuple[Place, Sender]:
    """Run a processor that keeps keys."""
    name = here.draft.name("KSTREAM-PROCESSVALUES-") if name is None else name
    operator, own_store = _processing(
        here, checked_supplier(supplier, setup, "process_values", line), setup, name, fixed_key=True
    )
    names = _names(stores, "process_values", line)
    made = value_made(here.draft, value, forwarded(supplier)[1], "process_values", line, BY_PROCESSOR)
    place = here.below(name, operator, line, stores=names, own_store=own_store, value=made)
    return place, Sender(place)


def process_atomically(
    here: Place, supplier: Supplier, setup: SetUp, stores: Iterable[str], key: Any, value: Any, name: str | None, line: Line
) -> tuple[Place, Sender]:
    """Run a processor as an atomic section, between two exchanges."""
    name = here.draft.name("KSTREAM-PROCESSATOMICALLY-") if name is None else name
    checked_supplier(supplier, setup, "process_atomically", line)
    if sets_timers(supplier):
        raise TopologyError(
            f"{name} overrides on_timer, but an atomic section has no timers ({line}): set them in a process(...) before it, "
            f"which sends the section a record when a timer fires."
        )
    key_kind, value_kind = forwarded(supplier)
    serdes = (
        key_made(here.draft, key, key_kind) or here.key,
        value_made(here.draft, value, value_kind, "process_atomically", line, BY_PROCESSOR),
    )
    entry = exchanged(here, f"{name}-section", here.key, here.value, line)
    names = _names(stores, "process_atomically", line)
    section = entry.below(name, AtomicProcessing(supplier, str(line), setup), line, stores=names)
    return exchanged(section, f"{name}-results", *serdes, line), ExchangedSender(section, "results")


def _names(stores: Iterable[str], verb: str, line: Line) -> tuple[str, ...]:
    """Return the names of stores. A text is iterable, too, but its letters are no names."""
    if isinstance(stores, str):
        raise TopologyError(f"{verb} takes stores= as a list of names, not {stores!r} ({line}): write stores=[{stores!r}].")
    return tuple(stores)


def _processing(
    here: Place, supplier: Supplier, setup: SetUp, name: str, fixed_key: bool
) -> tuple[ProcessorOperator, StoreSpec | None]:
    """Return the operator of a processor, and the store of its timers if it has any."""
    if not sets_timers(supplier):
        return ProcessorOperator(supplier, fixed_key, setup=setup), None
    spec = timers_spec(name, here.key or here.draft.default_key)
    return ProcessorOperator(supplier, fixed_key, spec.name, setup), spec
