"""From figures to the report: the ratios, their figures, and the lines to print.

Every ratio is Penstock's figure divided by Kafka Streams'.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping
from typing import Any

import psutil

THROUGHPUT_GOAL = 1.5
PENSTOCK = "penstock"

Figures = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Measurement, side, name of the figure."""


def rounded(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Round to significant digits."""
    return {
        name: rounded(value) if isinstance(value, Mapping) else round(value, 2) if isinstance(value, float) else value
        for name, value in figures.items()
    }


def summary(figures: Figures, options: Mapping[str, Any], took_s: float) -> dict[str, Any]:
    """The report. Only the best throughput of Kafka Streams counts, separately for warm and cold processes."""
    penstock = figures["throughput"][PENSTOCK]
    warm, cold = _best_rival(figures, "warm_per_s"), _best_rival(figures, "cold_per_s")
    restored, rival_restored = figures["restore"][PENSTOCK], _rival(figures, "restore")
    report = {
        "throughput_ratio": penstock["warm_per_s"] / figures["throughput"][warm]["warm_per_s"],
        "throughput_ratio_cold": penstock["cold_per_s"] / figures["throughput"][cold]["cold_per_s"],
        "throughput_goal": THROUGHPUT_GOAL,
        "throughput_rival": warm,
        "latency_ms": _latency(figures, "latency"),
        "latency_rekeyed_ms": _latency(figures, "latency-rekeyed"),
        "restore_ratio": restored["cold_start_s"] / rival_restored["cold_start_s"],
        "restore_ratio_without_start": restored["restore_s"] / rival_restored["restore_s"],
        "memory_ratio": penstock["peak_rss_mb"] / figures["throughput"][warm]["peak_rss_mb"],
        "cpu_us_per_record": {
            side: {part: spent * 1e6 / options["records"] for part, spent in figures["throughput"][side]["warm_cpu_s"].items()}
            for side in (PENSTOCK, warm)
        },
        "figures": figures,
        "options": dict(options),
        "machine": {
            "cores": os.cpu_count(),
            "memory_mb": psutil.virtual_memory().total // 1_000_000,
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "took_s": took_s,
    }
    return rounded(report)


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The last lines to print."""
    figures, rival = report["figures"], report["throughput_rival"]
    throughputs, restores = figures["throughput"], figures["restore"]
    if report["throughput_ratio"] < THROUGHPUT_GOAL:
        yield f"throughput is below the goal; CPU time in µs per record, by part: {report['cpu_us_per_record']}"
    yield (
        f"throughput_ratio: {report['throughput_ratio']} (goal {THROUGHPUT_GOAL}; cold {report['throughput_ratio_cold']}); "
        f"penstock {throughputs[PENSTOCK]['warm_per_s']:,.0f}/s, {rival} {throughputs[rival]['warm_per_s']:,.0f}/s"
    )
    for name in ("latency_ms", "latency_rekeyed_ms"):
        yield f"{name}: " + "; ".join(f"{side} {_words(values)}" for side, values in report[name].items())
    yield (
        f"restore_ratio: {report['restore_ratio']} (without the start {report['restore_ratio_without_start']}); "
        + ", ".join(f"{side} {found['cold_start_s']} s" for side, found in restores.items())
    )
    yield (
        f"memory_ratio: {report['memory_ratio']}; "
        + ", ".join(f"{side} {throughputs[side]['peak_rss_mb']:,.0f} MB" for side in (PENSTOCK, rival))
    )


def _best_rival(figures: Figures, figure: str) -> str:
    rivals = {side: found[figure] for side, found in figures["throughput"].items() if side != PENSTOCK}
    return max(rivals, key=rivals.__getitem__)


def _rival(figures: Figures, measurement: str) -> Mapping[str, Any]:
    """The rival of a measurement with only one."""
    [found] = (found for side, found in figures[measurement].items() if side != PENSTOCK)
    return found


def _latency(figures: Figures, measurement: str) -> dict[str, dict[str, float]]:
    sides = {"penstock": figures[measurement][PENSTOCK], "kafka_streams": _rival(figures, measurement)}
    return {side: {name: found[name] for name in ("p50", "p95", "p99")} for side, found in sides.items()}


def _words(values: Mapping[str, float]) -> str:
    return " ".join(f"{name} {value:.0f}" for name, value in values.items())
