"""Deduplication: the verb of a stream, and its node in a draft."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from penstock.dsl.place import Place
from penstock.dsl.repartitions import exchanged
from penstock.operators.deduplication import Deduplicate, seen_spec
from penstock.timing import Duration, duration_ms
from penstock.topology import Line, user_line
from penstock.topology.functions import checked

if TYPE_CHECKING:
    from typing_extensions import Self

K_co = TypeVar("K_co", covariant=True)
V_co = TypeVar("V_co", covariant=True)


class Deduplicating(Generic[K_co, V_co]):
    """The verb of a stream that drops duplicates."""

    __slots__ = ()

    _place: Place

    if TYPE_CHECKING:

        def __init__(self, place: Place) -> None: ...

    def deduplicate(
        self,
        *,
        within: Duration,
        by: Callable[[K_co, V_co], object] | None = None,
        store: str | None = None,
        name: str | None = None,
    ) -> Self:
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
        return type(self)(_deduplicated(self._place, within, by, store, name, user_line()))


def _deduplicated(
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
