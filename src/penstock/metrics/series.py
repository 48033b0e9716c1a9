"""Counters, gauges and histograms: the numbers of one metric with one label set."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Protocol

_LARGEST_AMOUNT = 2**53  # beyond, a float is not exact; a sum of integers without a bound might not even be a float


class Series(Protocol):
    """The numbers of one metric with one label set."""

    def numbers(self) -> Iterator[tuple[str, list[float]]]:
        """The numbers by shard."""

    def add(self, shard: str, numbers: Sequence[float]) -> None:
        """Add numbers that another has reported."""

    @property
    def has_moved(self) -> bool:
        """Whether anything was counted or set."""

    def start_again(self) -> None:
        """Forget what was counted or set."""


class Counter:
    """Counts events: it only increases.

    Example:
        >>> from penstock.metrics import UserMetrics
        >>> rejected = UserMetrics().counter("orders_rejected", "Orders that were rejected.")
        >>> rejected.inc()
        >>> rejected.inc(2)
        >>> rejected.value
        3
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0
        """How much was counted: in this epoch, or in this test."""

    def inc(self, amount: float = 1) -> None:
        """Count one event, or as many as `amount`."""
        if not 0 <= amount <= _LARGEST_AMOUNT:
            raise ValueError(f"A counter cannot increase by {amount!r}: only by 0 to 2**53. Use a gauge for what can decrease.")
        self.value += amount

    def numbers(self) -> Iterator[tuple[str, list[float]]]:
        """Return what was counted."""
        yield "", [float(self.value)]

    def add(self, shard: str, numbers: Sequence[float]) -> None:
        """Add what another counter has counted."""
        self.value += numbers[0]

    @property
    def has_moved(self) -> bool:
        """Whether anything was counted."""
        return self.value != 0

    def start_again(self) -> None:
        """Count from zero."""
        self.value = 0


class Gauge:
    """A value that goes up and down. Every shard has its own: the last one it has set, in any epoch.

    Example:
        >>> from penstock.metrics import UserMetrics
        >>> pending = UserMetrics().gauge("orders_pending", "Orders that wait for a payment.")
        >>> pending.set(7)
        >>> pending.value
        7.0
    """

    __slots__ = ("_by_shard", "_shard")

    def __init__(self, shard: str) -> None:
        self._shard = shard
        self._by_shard: dict[str, float] = {}

    def set(self, value: float) -> None:
        """Set the value."""
        self._by_shard[self._shard] = float(value)

    @property
    def value(self) -> float | None:
        """The value that was set last, in this epoch or in this test; None if there is none."""
        return self._by_shard.get(self._shard)

    def numbers(self) -> Iterator[tuple[str, list[float]]]:
        """Return the values that were set."""
        for shard, value in self._by_shard.items():
            yield shard, [value]

    def add(self, shard: str, numbers: Sequence[float]) -> None:
        """Take over the value of a shard; one that does not know its shard belongs to this one."""
        self._by_shard[shard or self._shard] = numbers[0]

    @property
    def has_moved(self) -> bool:
        """Whether a value was set."""
        return bool(self._by_shard)

    def start_again(self) -> None:
        """Forget the value."""
        self._by_shard.clear()


class Histogram:
    """Counts values by their size.

    Example:
        >>> from penstock.metrics import UserMetrics
        >>> amounts = UserMetrics().histogram("order_amount", "Amounts of orders.", buckets=(10, 100, 1_000))
        >>> amounts.observe(42)
        >>> amounts.observe(5_000)
        >>> amounts.count, amounts.sum
        (2, 5042.0)
    """

    __slots__ = ("_buckets", "_counts", "sum")

    def __init__(self, buckets: Sequence[float]) -> None:
        self._buckets = buckets
        self._counts = [0] * (len(buckets) + 1)
        self.sum: float = 0.0
        """The sum of all values: of this epoch, or of this test."""

    def observe(self, value: float) -> None:
        """Count a value."""
        number = float(value)
        if not isfinite(number):
            raise ValueError(f"A histogram cannot count {value!r}.")
        self._counts[bisect_left(self._buckets, number)] += 1
        self.sum += number

    @property
    def count(self) -> int:
        """How many values were counted: in this epoch, or in this test."""
        return sum(self._counts)

    def numbers(self) -> Iterator[tuple[str, list[float]]]:
        """Return the sum, and the count of each bucket."""
        yield "", [self.sum, *self._counts]

    def add(self, shard: str, numbers: Sequence[float]) -> None:
        """Add what another histogram has counted."""
        self.sum += numbers[0]
        self._counts = [mine + int(more) for mine, more in zip(self._counts, numbers[1:], strict=True)]

    @property
    def has_moved(self) -> bool:
        """Whether a value was counted."""
        return any(self._counts)

    def start_again(self) -> None:
        """Count from zero."""
        self._counts = [0] * len(self._counts)
        self.sum = 0.0
