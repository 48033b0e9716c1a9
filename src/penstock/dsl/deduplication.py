"""Deduplication: its node in a draft."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.dsl.place import Place
from penstock.dsl.repartitions import exchanged
from penstock.operators.deduplication import Deduplicate, seen_spec
from penstock.timing import Duration, duration_ms
from penstock.topology import Line
from penstock.topology.functions import checked


def deduplicated(
    here: Place, within: Duration, by: Callable[[Any, Any], Any] | None, store: str | None, name: str | None, line: Line
) -> Place:
    """Drop records that were seen before, on the lanes of their keys."""
    if by is not None:
        checked(by, "key, value", "deduplicate", line)
    name = here.draft.name("KSTREAM-DEDUPLICATE-", name)
    if here.rekeyed:
        here = exchanged(here, f"{name}-records", here.key, here.value, line)
    spec = seen_spec(store or f"{name}-seen", duration_ms(within, "within"))
    operator = Deduplicate(spec.name, duration_ms(within, "within"), here.key or here.draft.default_key, by)
    return here.below(name, operator, line, own_store=spec)
