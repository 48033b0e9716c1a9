"""`UserMetrics`: the metrics of user code by name, and what they have counted in a shard, a call, a test or all epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar, cast, overload

from penstock.metrics.declarations import (
    BUCKETS,
    MOST_LABEL_SETS,
    MOST_METRICS,
    OTHER,
    Declaration,
    MetricReport,
    check,
    listed,
    sendable,
)
from penstock.metrics.series import Counter, Gauge, Histogram, Series

S = TypeVar("S", bound=Series)


class Labelled(Generic[S]):
    """A metric with labels: `labels` returns the counter, gauge or histogram of one label set.

    Example:
        >>> rejected = UserMetrics().counter("orders_rejected", "Orders that were rejected.", labels=["reason"])
        >>> rejected.labels(reason="too late").inc()
        >>> rejected.labels(reason="too late").value
        1
    """

    __slots__ = ("_make", "_names", "_reported", "_series", "declaration")

    def __init__(self, declaration: Declaration, make: Callable[[], S]) -> None:
        self.declaration: Declaration = declaration
        self._names = declaration.labels
        self._make = make
        self._series: dict[tuple[str, ...], S] = {}
        self._reported: set[tuple[str, ...]] = set()

    def labels(self, **values: str) -> S:
        """Return the counter, gauge or histogram of these values of all labels; keep it, if it is needed often."""
        if tuple(values) != self._names:
            values = self._in_order(values)
        given = tuple(values.values())
        found = self._series.get(given)
        return self._added(given) if found is None else found

    def _in_order(self, values: Mapping[str, str]) -> dict[str, str]:
        if values.keys() != set(self._names):
            raise ValueError(f"Metric {self.declaration.name!r} has the labels {listed(self._names)}, not {listed(values)}.")
        return {name: values[name] for name in self._names}

    def at(self, values: tuple[str, ...]) -> S:
        """Return what has these values of the labels, in order."""
        return self._series.get(values) or self._added(values)

    def _added(self, values: tuple[str, ...]) -> S:
        if not all(isinstance(value, str) for value in values):
            raise TypeError(f"Metric {self.declaration.name!r}: label values must be strings, not {values!r}.")
        if len(self._series) >= MOST_LABEL_SETS:
            values = (OTHER,) * len(values)
        return self._series.setdefault(values, self._make())

    @property
    def is_full(self) -> bool:
        """Whether label sets are counted together, because there are too many."""
        return (OTHER,) * len(self.declaration.labels) in self._series and len(self._series) > MOST_LABEL_SETS

    def report(self) -> MetricReport:
        """Return all numbers."""
        series = [
            (tuple(map(sendable, values)), shard, numbers)
            for values, each in self._series.items()
            if values not in self._reported or each.has_moved
            for shard, numbers in each.numbers()
        ]
        return MetricReport(self.declaration, series)

    def start_again(self) -> None:
        """Count from zero; what is not counted again is not reported again."""
        self._reported = set(self._series)
        for each in self._series.values():
            each.start_again()

    def __getattr__(self, name: str) -> NoReturn:
        named = ", ".join(f"{label}=..." for label in self.declaration.labels)
        raise AttributeError(f"Metric {self.declaration.name!r} has labels: use .labels({named}).{name}.")


class _Made(NamedTuple):
    family: Labelled[Any]
    handle: Any
    """What user code gets: the family, or its only member if it has no labels."""


class UserMetrics:
    """The metrics of user code, by name: `context.metrics` of a processor, and `driver.metrics` of a test.

    A metric may be declared any number of times, by any number of processors: it is the same one.

    Example:
        >>> from penstock import Processor, StreamsBuilder
        >>> from penstock.testing import TopologyTestDriver
        >>> class Check(Processor):
        ...     def init(self, context):
        ...         super().init(context)
        ...         self.rejected = context.metrics.counter("orders_rejected", "Orders that were rejected.", labels=["reason"])
        ...     def process(self, record):
        ...         if record.value > 100:
        ...             self.rejected.labels(reason="too large").inc()
        >>> builder = StreamsBuilder()
        >>> _ = builder.stream("orders", value=int).process(Check)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.input("orders").pipe(101)
        ...     driver.metrics["orders_rejected"].labels(reason="too large").value
        1
    """

    __slots__ = ("_made", "_shard")

    def __init__(self, shard: str = "") -> None:
        self._shard = shard
        self._made: dict[str, _Made] = {}

    @overload
    def counter(self, name: str, about: str) -> Counter: ...

    @overload
    def counter(self, name: str, about: str, labels: Sequence[str]) -> Labelled[Counter]: ...

    def counter(self, name: str, about: str, labels: Sequence[str] = ()) -> Counter | Labelled[Counter]:
        """Return the counter with this name; `about` says what it counts."""
        return cast("Counter | Labelled[Counter]", self._metric("counter", name, about, labels).handle)

    @overload
    def gauge(self, name: str, about: str) -> Gauge: ...

    @overload
    def gauge(self, name: str, about: str, labels: Sequence[str]) -> Labelled[Gauge]: ...

    def gauge(self, name: str, about: str, labels: Sequence[str] = ()) -> Gauge | Labelled[Gauge]:
        """Return the gauge with this name; `about` says what its value is."""
        return cast("Gauge | Labelled[Gauge]", self._metric("gauge", name, about, labels).handle)

    @overload
    def histogram(self, name: str, about: str, *, buckets: Sequence[float] = ...) -> Histogram: ...

    @overload
    def histogram(
        self, name: str, about: str, labels: Sequence[str], *, buckets: Sequence[float] = ...
    ) -> Labelled[Histogram]: ...

    def histogram(
        self, name: str, about: str, labels: Sequence[str] = (), *, buckets: Sequence[float] = BUCKETS
    ) -> Histogram | Labelled[Histogram]:
        """Return the histogram with this name; `buckets` are the upper bounds of its buckets, ascending."""
        return cast("Histogram | Labelled[Histogram]", self._metric("histogram", name, about, labels, buckets).handle)

    def __getitem__(self, name: str) -> Any:
        """A metric that was declared, with its value: for tests."""
        if name not in self._made:
            raise KeyError(f"Nobody has declared a metric {name!r}. Declared: {listed(self._made)}.")
        return self._made[name].handle

    def reports(self) -> list[MetricReport]:
        """Return all metrics that have numbers."""
        return [found for made in self._made.values() if (found := made.family.report()).series]

    def start_again(self) -> None:
        """Count from zero, in the metrics that user code has: those of an epoch were reported."""
        for made in self._made.values():
            made.family.start_again()

    def add(self, report: MetricReport) -> bool:
        """Add what another has measured; return whether the metric has too many label sets."""
        declared = report.declaration
        family = self._metric(declared.kind, declared.name, declared.about, declared.labels, declared.buckets).family
        for labels, shard, numbers in report.series:
            family.at(labels).add(shard, numbers)
        return family.is_full

    def _metric(self, kind: str, name: str, about: str, labels: Sequence[str], buckets: Sequence[float] = ()) -> _Made:
        if isinstance(labels, str):
            raise TypeError(f"Metric {name!r}: labels={labels!r} must be a list of names: [{labels!r}].")
        declared = Declaration(name, kind, about, tuple(labels), tuple(map(float, buckets)))
        known = self._made.get(name)
        if known is None:
            return self._declared(declared)
        if not known.family.declaration.is_same(declared):
            raise ValueError(
                f"Metric {name!r} is already a {_described(known.family.declaration)}, and cannot be a {_described(declared)}. "
                f"Declare it the same everywhere, or choose another name."
            )
        return known

    def _declared(self, declared: Declaration) -> _Made:
        check(declared)
        if len(self._made) >= MOST_METRICS:
            raise ValueError(
                f"Metric {declared.name!r}: an application may have {MOST_METRICS} metrics. A name must not contain data: "
                f"use a label."
            )
        makers: dict[str, Callable[[], Series]] = {
            "counter": Counter,
            "gauge": lambda: Gauge(self._shard),
            "histogram": lambda: Histogram(declared.buckets),
        }
        family = Labelled(declared, makers[declared.kind])
        made = self._made[declared.name] = _Made(family, family if declared.labels else family.at(()))
        return made


def combined(shards: Iterable[UserMetrics]) -> list[MetricReport]:
    """Return the metrics of several shards as one report.

    What cannot be combined is reported by itself: the driver says so once, and the epoch goes on.
    """
    total, apart = UserMetrics(), list[MetricReport]()
    for shard in shards:
        for report in shard.reports():
            try:
                total.add(report)
            except ValueError:
                apart.append(report)
    return [*total.reports(), *apart]


def _described(declared: Declaration) -> str:
    about = f" with the labels {listed(declared.labels)}" if declared.labels else " without labels"
    return f"{declared.kind}{about}" + (f" and the buckets {declared.buckets!r}" if declared.buckets else "")
