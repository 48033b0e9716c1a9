"""Small charts as SVG text: groups of bars, and lines. They know nothing of benchmarks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 16, 64, 48
INK, FAINT, PAPER = "#24292f", "#d0d7de", "#ffffff"
COLOURS = ("#0969da", "#1f883d", "#bf3989", "#bc4c00", "#8250df", "#57606a")
TICKS = 5


@dataclass(frozen=True, slots=True)
class Bar:
    """A value, and how far its rounds were apart."""

    value: float
    low: float
    high: float


Groups = Mapping[str, Mapping[str, Bar]]
"""Bars by group, then by series. A series may be missing in a group."""
Lines = Mapping[str, Sequence[tuple[float, float]]]
"""Points by series."""


def bars(title: str, unit: str, groups: Groups) -> str:
    """Groups of bars, with whiskers from the lowest to the highest round."""
    series = list(dict.fromkeys(name for group in groups.values() for name in group))
    top = _ceiling(max((bar.high for group in groups.values() for bar in group.values()), default=1))
    parts = [_legend(series), _y_axis(unit, top)]
    slot = (WIDTH - LEFT - RIGHT) / max(1, len(groups))
    width = slot * 0.8 / max(1, len(series))
    for number, (name, group) in enumerate(groups.items()):
        begin = LEFT + number * slot + slot * 0.1
        parts.append(_text(begin + slot * 0.4, HEIGHT - BOTTOM + 18, name, anchor="middle"))
        for at, one in enumerate(series):
            if one in group:
                parts.append(_bar(begin + at * width, width, group[one], top, COLOURS[at % len(COLOURS)]))
    return _chart(title, parts)


def lines(title: str, x_title: str, unit: str, series: Lines) -> str:
    """Lines over a logarithmic axis: sizes grow by factors."""
    points = [point for one in series.values() for point in one]
    top = _ceiling(max((y for _, y in points), default=1))
    sizes = sorted({x for x, _ in points})
    low, high = math.log(sizes[0]), math.log(sizes[-1])

    def across(x: float) -> float:
        share = (math.log(x) - low) / (high - low) if high > low else 0.5
        return LEFT + 20 + share * (WIDTH - LEFT - RIGHT - 40)

    parts = [_legend(list(series)), _y_axis(unit, top), _text(WIDTH / 2, HEIGHT - 10, x_title, anchor="middle")]
    parts += [_text(across(size), HEIGHT - BOTTOM + 18, short(size), anchor="middle") for size in sizes]
    for number, one in enumerate(series.values()):
        colour = COLOURS[number % len(COLOURS)]
        where = [(across(x), _up(y, top)) for x, y in sorted(one)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in where)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in where]
    return _chart(title, parts)


def short(number: float) -> str:
    """A number for an axis: 1.5k, 2M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def _ceiling(highest: float) -> float:
    """A round number that is not below the highest value."""
    if highest <= 0:
        return 1.0
    size = 10 ** math.floor(math.log10(highest))
    return float(next(step * size for step in (1, 2, 2.5, 5, 10) if step * size >= highest))


def _up(value: float, top: float) -> float:
    return HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM)


def _bar(left: float, width: float, bar: Bar, top: float, colour: str) -> str:
    y, middle = _up(bar.value, top), left + width / 2
    drawn = (
        f'<rect x="{left:.1f}" y="{y:.1f}" width="{max(1, width - 2):.1f}" height="{HEIGHT - BOTTOM - y:.1f}" fill="{colour}"/>'
        + _text(middle, min(y, _up(bar.high, top)) - 4, short(bar.value), anchor="middle", size=9)
    )
    if bar.high > bar.low:
        drawn += _line(middle, _up(bar.low, top), middle, _up(bar.high, top), INK)
    return drawn


def _y_axis(unit: str, top: float) -> str:
    drawn = _text(LEFT - 8, TOP - 12, unit, anchor="end")
    for tick in range(TICKS + 1):
        value = top * tick / TICKS
        y = _up(value, top)
        drawn += _line(LEFT, y, WIDTH - RIGHT, y, FAINT) + _text(LEFT - 8, y + 4, short(value), anchor="end")
    return drawn


def _legend(series: Sequence[str]) -> str:
    drawn, x = "", float(LEFT)
    for number, name in enumerate(series):
        drawn += f'<rect x="{x:.0f}" y="34" width="10" height="10" fill="{COLOURS[number % len(COLOURS)]}"/>'
        drawn += _text(x + 14, 43, name)
        x += 30 + 7 * len(name)
    return drawn


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _chart(title: str, parts: Sequence[str]) -> str:
    name = escape(title)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{name}" '
        f'font-family="system-ui, sans-serif" fill="{INK}">'
    )
    paper = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>'
    heading = _text(LEFT, 22, title, size=14)
    return "\n".join([head, paper, heading, *parts, "</svg>"]) + "\n"
