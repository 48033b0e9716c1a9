"""A topology as SVG: one self-contained document, for light and dark mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from penstock.topology.layers import Point
from penstock.topology.layout import Drawing, Frame, Line, Part, key_of, shown

STYLE = """
.penstock { --paper: #ffffff; --ink: #1c2430; --faint: #5b6675; --edge: #8a94a3; --box: #ffffff; --topic: #e8f0fb;
  --store: #f6efe0; --frame: #f5f7fa; --frame-edge: #dde3ea;
  font: 12px ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", Consolas, monospace; }
@media (prefers-color-scheme: dark) { .penstock { --paper: #12161c; --ink: #e4e8ee; --faint: #9aa5b4; --edge: #6a7686;
  --box: #1d242d; --topic: #1b2d45; --store: #342c1b; --frame: #171c23; --frame-edge: #2a323d; } }
.penstock .paper { fill: var(--paper); }
.penstock .frame { fill: var(--frame); stroke: var(--frame-edge); }
.penstock text { fill: var(--ink); }
.penstock .frame-title, .penstock .detail, .penstock .label { fill: var(--faint); font-size: 11px; }
.penstock .label { paint-order: stroke; stroke: var(--frame); stroke-width: 4px; }
.penstock .shape { fill: var(--box); stroke: var(--edge); }
.penstock .topic .shape, .penstock .schedule .shape { fill: var(--topic); }
.penstock .exchange .shape { fill: none; stroke-dasharray: 3 3; }
.penstock .store .shape { fill: var(--store); }
.penstock .line { fill: none; stroke: var(--edge); stroke-width: 1.2px; }
.penstock .line.dotted { stroke-dasharray: 3 3; }
.penstock .tip { fill: var(--edge); }
"""
"""The style of a drawing; a page that embeds one under a policy without inline styles serves it as a file."""

_TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path class="tip" fill="#8a94a3" d="M0 0.5 8 4 0 7.5z"/></marker></defs>'
)
_RIM = 4.0
_PLAIN = 'font-family="monospace" font-size="12"'
_SHAPE, _STROKE = 'fill="#fff" stroke="#8a94a3"', 'fill="none" stroke="#8a94a3"'
"""Attributes for programs that ignore the style, and for browsers under a policy that forbids it."""


def svg(drawing: Drawing, *, style: str = STYLE) -> str:
    """Return the drawing as a self-contained document; parts have `data-node`, `data-topic` or `data-store` with their name."""
    size = f'width="{drawing.width:g}" height="{drawing.height:g}" viewBox="0 0 {drawing.width:g} {drawing.height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="penstock" {size} {_PLAIN} role="img" aria-label="topology">',
        f"<style>{style}</style>" if style else "",
        _TIP,
        '<rect class="paper" fill="#fff" width="100%" height="100%"/>',
        *map(_frame_text, drawing.frames),
        *(text for line in drawing.lines for text in _line_texts(line)),
        *map(_part_text, drawing.parts),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def drawable(text: str) -> str:
    """Return the text without characters that are invalid in XML."""
    return "".join(character if _is_xml(ord(character)) else "\N{REPLACEMENT CHARACTER}" for character in text)


def _is_xml(code: int) -> bool:
    return code in {0x9, 0xA, 0xD} or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


def _text(text: str) -> str:
    return escape(drawable(text))


def _frame_text(frame: Frame) -> str:
    box = f'x="{frame.x:g}" y="{frame.y:g}" width="{frame.width:g}" height="{frame.height:g}" rx="10"'
    title = f'<text class="frame-title" x="{frame.x + 14:g}" y="{frame.y + 20:g}">{_text(frame.title)}</text>'
    return f'<rect class="frame" fill="#f5f7fa" {box}/>{title}'


def _part_text(part: Part) -> str:
    attribute, place = key_of(part.kind, "").strip(), f'transform="translate({part.x:g} {part.y:g})"'
    x, y = part.width / 2, part.height / 2 + (0.75 * _RIM if part.kind == "store" else 0)
    name = f'<text x="{x:g}" y="{y + (-3 if part.detail else 4):g}">{_text(shown(part.name))}</text>'
    detail = f'<text class="detail" x="{x:g}" y="{y + 13:g}">{_text(part.detail)}</text>' if part.detail else ""
    place = f'transform="translate({part.x:g} {part.y:g})"'
    return (
        f'<g class="part {part.kind}" data-{attribute}="{_text(part.name)}" {place} text-anchor="middle">'
        f"<title>{_text(part.name)} ({_text(part.detail or part.kind)})</title>{_shape(part)}{name}{detail}</g>"
    )


def _shape(part: Part) -> str:
    width, height = part.width, part.height
    if part.kind == "store":
        rim = f"{width / 2:g} {_RIM:g} 0 0"
        side = f"M0 {_RIM:g}V{height - _RIM:g}A{rim} 0 {width:g} {height - _RIM:g}V{_RIM:g}A{rim} 0 0 {_RIM:g}"
        return f'<path class="shape" {_SHAPE} d="{side}A{rim} 0 {width:g} {_RIM:g}"/>'
    radius = 4 if part.kind in {"source", "processor", "sink"} else height / 2
    return f'<rect class="shape" {_SHAPE} width="{width:g}" height="{height:g}" rx="{radius:g}"/>'


def _line_texts(line: Line) -> Iterator[str]:
    is_dotted, has_tip = line.kind in {"exchange", "shared"}, line.kind in {"exchange", "flow"}
    ends = f'data-tail="{_text(line.tail)}" data-head="{_text(line.head)}"'
    tip = ' marker-end="url(#tip)"' if has_tip else ""
    yield f'<path class="line {line.kind}{" dotted" if is_dotted else ""}" {_STROKE} {ends} d="{_path(line.points)}"{tip}/>'
    if line.label:
        x, y = line.points[-1]
        yield f'<text class="label" x="{x + 6:g}" y="{y - 10:g}">{_text(shown(line.label))}</text>'


def _path(points: Sequence[Point]) -> str:
    """Return a straight line between points above or beside each other, otherwise a curve with vertical ends."""
    steps = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for (x, y), (to_x, to_y) in pairwise(points):
        if abs(x - to_x) < 0.5 or y == to_y:
            steps.append(f"L{to_x:g} {to_y:g}")
        else:
            half = (y + to_y) / 2
            steps.append(f"C{x:g} {half:g} {to_x:g} {half:g} {to_x:g} {to_y:g}")
    return "".join(steps)
