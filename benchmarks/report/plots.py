"""The plots of a report: throughput, latency and growth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.report.svg import Bar, bars, lines

Content = Mapping[str, Any]
PERCENTILES = ("p50", "p95", "p99")
GROWTH = {"cores": "cores", "partitions": "partitions", "keys": "keys", "depth": "exchanges", "time": "quarter of a long run"}


def plots(content: Content) -> Iterator[tuple[str, str]]:
    """Names of files and their SVG, for what was measured."""
    throughputs = {letter: _bars(sides, "per_s") for letter, sides in content.get("throughput", {}).items()}
    if any(throughputs.values()):
        yield "bench-throughput.svg", bars("Throughput by workload", "records/s", throughputs)
    for exchanges, rates in content.get("latency", {}).items():
        groups = {
            f"{rate}/s {percentile}": _bars(sides, "after_60_s", percentile)
            for rate, sides in rates.items()
            for percentile in PERCENTILES
        }
        groups = {name: group for name, group in groups.items() if group}
        if groups:
            yield f"bench-latency-{exchanges.replace(' ', '-')}.svg", bars(f"Latency, {exchanges}", "ms", groups)
    for of, title in GROWTH.items():
        found: dict[str, list[tuple[float, float]]] = {}
        for size, sides in content.get("growth", {}).get(of, {}).items():
            for side, bar in (_bars(sides, "cpu_us_per_record") if isinstance(sides, Mapping) else {}).items():
                found.setdefault(side, []).append((float(size), bar.value))
        if found:
            yield f"bench-growth-{of}.svg", lines(f"CPU time of a record by {title}", title, "µs", found)


def _bars(sides: Content, *figure: str) -> dict[str, Bar]:
    """A figure of every side that has it, with its lowest and its highest round."""
    found: dict[str, Bar] = {}
    for side, of_side in sides.items():
        if not isinstance(of_side, Mapping) or "median" not in of_side:
            continue
        values = [value for one in of_side["rounds"] if (value := _at(one, figure)) is not None]
        if values:
            found[side] = Bar(_at(of_side["median"], figure) or 0.0, min(values), max(values))
    return found


def _at(figures: Any, path: tuple[str, ...]) -> float | None:
    for name in path:
        if not isinstance(figures, Mapping) or name not in figures:
            return None
        figures = figures[name]
    return float(figures)
