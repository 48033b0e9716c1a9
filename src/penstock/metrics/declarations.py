"""What a metric is, and what is reported of it; which names, labels and buckets Prometheus would not accept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from math import isfinite

import msgspec

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""The default buckets of histograms, those of Prometheus' own clients: for durations in seconds."""

MOST_METRICS = 100
MOST_LABEL_SETS = 100
"""How many metrics an application may have, and how many label sets each: names from data have no bound."""

OTHER = "(other)"
"""The value of all labels for label sets beyond `MOST_LABEL_SETS`, which are counted together."""

_LONGEST_LABEL = 200
_MOST_BUCKETS = 50
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ADDED_BY_PROMETHEUS = ("_total", "_bucket", "_count", "_sum", "_created")
_RESERVED_LABELS = {"gauge": "shard", "histogram": "le"}


class Declaration(msgspec.Struct, array_like=True, frozen=True):
    """What a metric is: its kind is counter, gauge or histogram, and only a histogram has buckets."""

    name: str
    kind: str
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def is_same(self, other: Declaration) -> bool:
        """Whether both can be one metric; the description may differ."""
        return (self.kind, self.labels, self.buckets) == (other.kind, other.labels, other.buckets)


class MetricReport(msgspec.Struct, array_like=True, frozen=True):
    """A metric, and its numbers by label values and shard: those of an epoch, or of all epochs so far.

    The numbers are the value of a counter or gauge, and the sum and the count of each bucket of a histogram. Only gauges have
    shards.
    """

    declaration: Declaration
    series: list[tuple[tuple[str, ...], str, list[float]]]


def check(declared: Declaration) -> None:
    """Refuse what Prometheus would not accept, or not tell apart."""
    name, kind, buckets = declared.name, declared.kind, declared.buckets
    if not _NAME.fullmatch(name) or name.endswith(_ADDED_BY_PROMETHEUS):
        raise ValueError(
            f"Invalid name of a metric: {name!r}. Use letters, digits and underscores, not beginning with a digit, and none of "
            f"the endings that Prometheus adds itself ({', '.join(_ADDED_BY_PROMETHEUS)})."
        )
    declared.about.encode()  # raises if it cannot be sent
    for label in declared.labels:
        if not _NAME.fullmatch(label) or label.startswith("__") or label == _RESERVED_LABELS.get(kind):
            raise ValueError(f"Metric {name!r}: invalid label {label!r}. Choose another name.")
    if len(set(declared.labels)) < len(declared.labels):
        raise ValueError(f"Metric {name!r}: each label must have a name of its own, not {listed(declared.labels)}.")
    is_ascending = all(isfinite(bound) for bound in buckets) and list(buckets) == sorted(set(buckets))
    if kind == "histogram" and not (1 <= len(buckets) <= _MOST_BUCKETS and is_ascending):
        raise ValueError(f"Metric {name!r}: buckets={buckets!r} must be 1 to {_MOST_BUCKETS} ascending numbers.")


def sendable(label: str) -> str:
    """Return a label value that can be sent and is not too long."""
    return label[:_LONGEST_LABEL].encode("utf-8", "replace").decode()


def listed(names: Iterable[str]) -> str:
    """Return names for a message."""
    return ", ".join(names) or "none"
