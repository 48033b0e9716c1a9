"""Operations that the generator adds for the life of an application: processors that live, typed values, mutating functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from verification.conformance.aggregations import WINDOWS, windowed_key, windows
from verification.conformance.aggregations import windowed as windowed_table
from verification.conformance.draft import Draft, Handle
from verification.conformance.epochs import mutating, typed
from verification.conformance.epochs.living import LATE, LIVES, NUMBERING, ONCE
from verification.conformance.spec import Args
from verification.conformance.tables import changes

INTERVALS = {"stream": (1, 5, 10), "wall": (1, 10, 1000)}
ROUNDS = (1, 1, 1, 2, 3)


class EpochDraft(Draft):
    """A draft whose sources sometimes have JSON keys, and whose functions may fail: then all in the same way."""

    def __init__(self, dice: Random) -> None:
        super().__init__(dice)
        self.failures = "fail"

    def source_types(self) -> tuple[str, str]:
        """Key and value serde of a new source."""
        key, value = super().source_types()
        return ("json" if self.chance(0.12) else key), value


def living(draft: Draft, fn: str) -> None:
    """A processor whose results show how long it lives."""
    if fn == "transformer_numbering":
        source = draft.some_table()
        store = {"name": draft.fresh("store"), "key": source.key}
        result = replace(source, value="string", value_known=False, key_known=False, versioned=False)
        draft.step("table_transform_values", (source,), result, fn=fn, store=store, name=draft.name())
        return
    if fn in NUMBERING:
        source = draft.some_stream(plain=True)
        verb = "stream_process_values" if fn == "fixed_numbering" else "stream_process"
        draft.step(verb, (source,), replace(source, value="string", value_known=False), fn=fn, name=draft.name())
        return
    source = draft.some_stream(key="string", value="string")
    options: Args = {"interval": draft.choice(INTERVALS[fn.partition("_")[2]]), "rounds": draft.choice(ROUNDS)}
    if fn in ONCE:
        options["uses"] = store_name = draft.fresh("store")
        options["stores"] = [store_name]
        draft.add("builder_add_state_store", (), name=store_name, kind="key_value", key="string", value="long")
    else:
        options["anchored"] = draft.chance(0.3) or None
    draft.step("stream_process", (source,), Handle("", "stream"), fn=fn, name=draft.name(), **options)


def typed_chain(draft: Draft, kept: str) -> None:
    """Values of a class between verbs; a sink may say their type, or their keys'.

    If only the next function says it, the keys are those of a topic: nothing says what an exchange before that function carries.
    """
    made = draft.choice([made for made in typed.MADE if made != "not_said" or kept in typed.BY_NEXT])
    source = draft.new_stream() if made == "not_said" else draft.some_stream(plain=True)
    key = typed.keys(made, kept) or source.key
    result = Handle("", "stream", f"time:{key}:{typed.WINDOW}" if typed.is_windowed(kept) else key)
    draft.step("own_typed", (source,), result, made=made, kept=kept, key=source.key, store={"name": draft.fresh("store")})


def mutating_chain(draft: EpochDraft, kept: str) -> None:
    """Functions that change what they are given."""
    source = draft.some_stream(plain=True)
    key, store, spec = source.key, draft.fresh("store"), None
    if kept in {"windowed", "sessions"}:
        spec = windows(draft, "session" if kept == "sessions" else draft.choice(("tumbling", "hopping", "sliding")))
        key = windowed_key(key, spec)
    if kept in mutating.FAILING and draft.failures == "fail":
        draft.failures = draft.choice(("fail", "drop", "drop", "retry", "retry"))
    if kept == "reader":
        draft.add("builder_add_state_store", (), name=store, kind="key_value", key="string", value="json")
    draft.step(
        "own_mutating",
        (source,),
        Handle("", "stream", "string" if kept == "regrouped" else key, windows=spec),
        kept=kept,
        key=source.key,
        store={"name": store},
        stores=[store] if kept == "reader" else None,
        windows=spec,
        failures=draft.failures,
    )


def windowed_sink(draft: Draft) -> None:
    """A table of windows, whose changes go to a sink."""
    table = windowed_table(draft, draft.choice(WINDOWS), draft.choice(("count", "aggregate")), on_close=False, explicit=True)
    changes(draft, table)


OF_LIFE: dict[str, Callable[[Any], object]] = {
    **{fn: partial(living, fn=fn) for fn in LIVES},
    "windowed_sink": windowed_sink,
    **{f"typed_{kept}": partial(typed_chain, kept=kept) for kept in typed.KEPT},
    **{f"mutating_{kept}": partial(mutating_chain, kept=kept) for kept in mutating.KEPT},
}
"""By focus, what adds an operation to an `EpochDraft`."""

IN_TURN = (*OF_LIFE, *ONCE, *ONCE)
"""The foci of cases about the life of an application, those that many cases miss by chance more than once."""

WAITING = tuple(name for name in (*LATE, *ONCE) if name.endswith("wall"))
"""Processors that wait for the wall clock."""
