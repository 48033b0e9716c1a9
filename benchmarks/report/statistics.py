"""Statistics of rounds: medians and spread, of figures that may be nested; percentiles of latencies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

Figures = Mapping[str, Any]


def medians(rounds: Sequence[Figures]) -> dict[str, Any]:
    """The median of each figure over all rounds that have it."""
    return _over(rounds, median)


def spreads(rounds: Sequence[Figures]) -> dict[str, Any]:
    """The distance of the largest and the smallest of each figure, as a share of its median."""
    return _over(rounds, spread)


def spread(values: Sequence[float]) -> float:
    """0 if all are equal."""
    middle = median(values)
    return (max(values) - min(values)) / abs(middle) if middle else 0.0


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest of the ordered values that at least `percent` % of them do not exceed."""
    if not ordered:
        raise ValueError("no values")
    rank = -(-len(ordered) * percent // 100)  # rounded up
    return ordered[max(0, int(rank) - 1)]


def rounded(figures: Any) -> Any:
    """Four significant digits are more than a measurement has."""
    if isinstance(figures, Mapping):
        return {name: rounded(value) for name, value in figures.items()}
    if isinstance(figures, (list, tuple)):
        return [rounded(value) for value in figures]
    return float(f"{figures:.4g}") if isinstance(figures, float) else figures


def _over(rounds: Sequence[Figures], figure: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for one in rounds for name in one):
        values = [one[name] for one in rounds if name in one]
        if all(isinstance(value, Mapping) for value in values):
            found[name] = _over(values, figure)
        elif all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
            found[name] = figure(values)
    return found
