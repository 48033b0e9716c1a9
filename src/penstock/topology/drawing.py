"""A topology as a picture: where each of its parts stands (`layout`), and that as SVG (`svg`), by itself and in light and dark."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.topology.layers import Arrangement, Item, Link, Point, arranged, longest_paths
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

if TYPE_CHECKING:
    from penstock.topology.graph import Topology

STYLE = """
.penstock { --paper: #ffffff; --ink: #1c2430; --faint: #5b6675; --edge: #8a94a3; --box: #ffffff; --topic: #e8f0fb;
  --store: #f6efe0; --frame: #f5f7fa; --frame-edge: #dde3ea;
  font: 12px ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", Consolas, monospace; }
@media (prefers-color-scheme: dark) { .penstock { --paper: #12161c; --ink: #e4e8ee; --faint: #9aa5b4; --edge: #6a7686; --box: #1d242d;
  --topic: #1b2d45; --store: #342c1b; --frame: #171c23; --frame-edge: #2a323d; } }
.penstock .paper { fill: var(--paper); }
.penstock .frame { fill: var(--frame); stroke: var(--frame-edge); }
.penstock text { fill: var(--ink); }
.penstock .part text { text-anchor: middle; }
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
"""What a drawing looks like; a page that shows one inside itself and allows no style but its own files' serves this as one."""

_CHARACTER, _SMALL = 7.25, 6.65
"""How wide a character is, in pixels: names at 12, details at 11."""
_LONGEST = 26
_PADDING = 12.0
_BOX, _LOW = 44.0, 28.0
_NARROWEST = 132.0
"""So that the figures of a running application have room below a short name."""
_BETWEEN: Point = (28.0, 30.0)
_AROUND = 18.0
_TITLE = 20.0
_RIM = 5.0
_MARGIN = 10.0


@dataclass(frozen=True, slots=True)
class Part:
    """A box, pill or cylinder: its kind (source, processor, sink, topic, schedule, exchange, store), its name, and where it is."""

    kind: str
    name: str
    detail: str
    x: float
    y: float
    width: float
    height: float

    @property
    def key(self) -> str:
        """What lines call it; a topic may have the name of a node."""
        return _key(self.kind, self.name)


@dataclass(frozen=True, slots=True)
class Line:
    """From part to part, by their keys: flow, exchange, store or shared. `label` is the side output it carries."""

    kind: str
    tail: str
    head: str
    points: tuple[Point, ...]
    label: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """What is drawn around a sub-topology."""

    title: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """All of a picture, in pixels from its upper left corner."""

    width: float
    height: float
    frames: tuple[Frame, ...]
    parts: tuple[Part, ...]
    lines: tuple[Line, ...]


def drawable(text: str) -> str:
    """The text without characters that XML cannot have."""
    return "".join(character if _is_xml(ord(character)) else "\N{REPLACEMENT CHARACTER}" for character in text)


def layout(topology: Topology) -> Drawing:
    """Where everything stands: each sub-topology in layers of its own, and those in layers with the topics between them."""
    sheets = [_sheet(topology, number, names) for number, names in enumerate(topology.groups())]
    topics: dict[str, Part] = {}
    ways: list[tuple[Link, str, str, str]] = []  # with the kind of line, and the parts at its ends
    for sheet in sheets:
        for node in sheet.nodes:
            if isinstance(node, SourceNode):
                for name in topics_of(node):
                    topic = _topic(node, name)
                    topics.setdefault(topic.key, topic)
                    ways.append(
                        (Link(topic.key, sheet.key, 0, sheet.dx(node.name)), _way(node), topic.key, _key("node", node.name))
                    )
    for sheet in sheets:
        for node in sheet.nodes:
            if isinstance(node, SinkNode):
                topic = _topic(node, topics_of(node)[0])
                key = topic.key
                if _leads(key, sheet.key, [way[0] for way in ways]):  # back to itself: drawn once more instead of a circle
                    key = f"{key} again"
                topics.setdefault(key, topic)
                ways.append((Link(sheet.key, key, sheet.dx(node.name), 0), _way(node), _key("node", node.name), key))
    items = [*(Item(key, topic.width, topic.height) for key, topic in topics.items()), *(sheet.item for sheet in sheets)]
    links = [way[0] for way in ways]
    whole = arranged(items, links, _inputs_last(longest_paths([item.key for item in items], links), links), gap=_BETWEEN)
    return _assembled(topology, sheets, topics, ways, whole)


def svg(drawing: Drawing) -> str:
    """The picture as a document that needs no other; parts carry `data-node`, `data-topic` or `data-store` with their name."""
    size = f'width="{drawing.width:g}" height="{drawing.height:g}" viewBox="0 0 {drawing.width:g} {drawing.height:g}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="penstock" {size} role="img" aria-label="topology">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="tip" d="M0 0.5 8 4 0 7.5z"/></marker></defs>',
        '<rect class="paper" width="100%" height="100%"/>',
        *map(_frame_text, drawing.frames),
        *(text for line in drawing.lines for text in _line_texts(line)),
        *map(_part_text, drawing.parts),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def topics_of(node: SourceNode | SinkNode) -> tuple[str, ...]:
    """The topics of a node as they are drawn: by name or pattern; in their place a schedule, or that the node chooses."""
    if isinstance(node, SinkNode):
        return (node.topic,) if isinstance(node.topic, str) else (f"{node.name} chooses",)
    if node.schedule is not None:
        return (str(node.schedule),)
    return (node.pattern.pattern,) if node.pattern else node.topics


# ---- one sub-topology -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sheet:
    """A sub-topology laid out from (0, 0), its frame included."""

    key: str
    frame: Frame
    nodes: tuple[Node, ...]
    parts: tuple[Part, ...]
    lines: tuple[Line, ...]

    @property
    def item(self) -> Item:
        return Item(self.key, self.frame.width, self.frame.height)

    def dx(self, node: str) -> float:
        """How far right of the frame's middle a node's middle is."""
        [part] = [part for part in self.parts if part.key == _key("node", node)]
        return part.x + part.width / 2 - self.frame.width / 2


def _sheet(topology: Topology, number: int, names: Sequence[str]) -> _Sheet:
    nodes = tuple(topology.nodes[name] for name in names)
    owners = _owners(topology)
    cells: dict[str, list[Part]] = {}
    for node in nodes:
        cells[node.name] = [_part(_kind(node), node.name, _word(node), _BOX)]
        cells[node.name] += [_part("store", store, "store", _BOX) for store, owner in owners.items() if owner == node.name]
    widths = {name: sum(part.width for part in cell) + _BETWEEN[0] * (len(cell) - 1) for name, cell in cells.items()}
    ports = {name: cell[0].width / 2 - widths[name] / 2 for name, cell in cells.items()}
    items = [Item(name, width, _BOX) for name, width in widths.items()]
    links = [Link(parent, node.name, ports[parent], ports[node.name]) for node in nodes for parent in node.parents]
    layers = longest_paths(names, links)
    lowest = max(layers.values())
    layers.update({node.name: lowest for node in nodes if isinstance(node, SinkNode)})
    inner = arranged(items, links, layers, gap=_BETWEEN)
    parts = []
    for name, cell in cells.items():
        x, top = inner.places[name]
        for part in cell:
            parts.append(replace(part, x=x + _AROUND, y=top + _TITLE + _AROUND))
            x += part.width + _BETWEEN[0]
    title = f"sub-topology {number}"
    if set(names) & set(topology.global_stores.values()):
        title += " · global"
    width = max(inner.width, len(title) * _SMALL) + 2 * _AROUND
    frame = Frame(title, 0, 0, width, inner.height + _TITLE + 2 * _AROUND)
    lines = tuple(_flows(nodes, inner))
    return _Sheet(f"sub-topology {number}", frame, nodes, tuple(parts), lines)


def _flows(nodes: Sequence[Node], inner: Arrangement) -> Iterator[Line]:
    aside = {child: output for node in nodes if isinstance(node, ProcessorNode) for output, child in node.side_outputs}
    routes = iter(inner.routes)
    for node in nodes:
        for parent in node.parents:
            points = tuple((x + _AROUND, y + _TITLE + _AROUND) for x, y in next(routes))
            yield Line("flow", _key("node", parent), _key("node", node.name), points, aside.get(node.name, ""))


def _owners(topology: Topology) -> dict[str, str]:
    """The node beside which each store stands: the first that keeps it, or that shares it."""
    processors = [node for node in topology.nodes.values() if isinstance(node, ProcessorNode)]
    owners = {store: node.name for node in reversed(processors) for store, _ in reversed(node.shared)}
    owners |= {store: node.name for node in reversed(processors) for store in reversed(node.stores)}
    return {store: owners[store] for store in topology.stores if store in owners}


# ---- all of them ----------------------------------------------------------------------------------------------------


def _inputs_last(layers: dict[str, int], links: Sequence[Link]) -> dict[str, int]:
    """What nothing leads to stands right above what it leads to."""
    heads = {link.head for link in links}
    for key in layers:
        below = [layers[link.head] for link in links if link.tail == key]
        if key not in heads and below:
            layers[key] = min(below) - 1
    return layers


def _leads(start: str, goal: str, links: Sequence[Link]) -> bool:
    reached = {start}
    before = 0
    while len(reached) > before:
        before = len(reached)
        reached |= {link.head for link in links if link.tail in reached}
    return goal in reached


def _assembled(
    topology: Topology,
    sheets: Sequence[_Sheet],
    topics: Mapping[str, Part],
    ways: Sequence[tuple[Link, str, str, str]],
    whole: Arrangement,
) -> Drawing:
    frames, parts, lines = [], [], []
    for key, topic in topics.items():
        x, y = whole.places[key]
        parts.append((key, replace(topic, x=x + _MARGIN, y=y + _MARGIN)))
    for sheet in sheets:
        dx, dy = (place + _MARGIN for place in whole.places[sheet.key])
        frames.append(replace(sheet.frame, x=dx, y=dy))
        parts += [(part.key, replace(part, x=part.x + dx, y=part.y + dy)) for part in sheet.parts]
        lines += [replace(line, points=tuple((x + dx, y + dy) for x, y in line.points)) for line in sheet.lines]
    at = dict(parts)
    for (_, kind, tail, head), route in zip(ways, whole.routes, strict=True):
        points = [(x + _MARGIN, y + _MARGIN) for x, y in route]
        begin, end = (points[0][0], at[tail].y + at[tail].height), (points[-1][0], at[head].y)
        lines.append(Line(kind, at[tail].key, at[head].key, tuple(dict.fromkeys((begin, *points[1:], end)))))
    lines += _store_lines(topology, at)
    size = (whole.width + 2 * _MARGIN, whole.height + 2 * _MARGIN)
    return Drawing(*size, tuple(frames), tuple(part for _, part in parts), tuple(lines))


def _store_lines(topology: Topology, at: Mapping[str, Part]) -> Iterator[Line]:
    for node in topology.nodes.values():
        if isinstance(node, ProcessorNode):
            uses = [(store, "store") for store in node.stores] + [(store, "shared") for store, _ in node.shared]
            for store, kind in uses:
                tail, head = at[_key("node", node.name)], at[_key("store", store)]
                yield Line(kind, tail.key, head.key, _beside(tail, head))


def _beside(node: Part, store: Part) -> tuple[Point, ...]:
    """From a node's side to its store's; from its lower or upper edge if the store stands beside another."""
    middle = node.y + node.height / 2
    if store.y < middle < store.y + store.height:
        right = store.x > node.x
        return ((node.x + node.width * right, middle), (store.x + store.width * (not right), middle))
    below = store.y > node.y
    end = (store.x + store.width / 2, store.y + store.height * (not below))
    return ((node.x + node.width / 2, node.y + node.height * below), end)


# ---- words and shapes -----------------------------------------------------------------------------------------------


def _key(kind: str, name: str) -> str:
    things = {"topic": "topic", "schedule": "topic", "exchange": "topic", "store": "store"}
    return f"{things.get(kind, 'node')} {name}"


def _kind(node: Node) -> str:
    return "source" if isinstance(node, SourceNode) else "sink" if isinstance(node, SinkNode) else "processor"


def _word(node: Node) -> str:
    """What the node does, in a word."""
    if not isinstance(node, ProcessorNode):
        return _kind(node)
    name = type(node.operator).__name__
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _topic(node: SourceNode | SinkNode, name: str) -> Part:
    if node.internal:
        return _part("exchange", name, "", _LOW)
    is_schedule = isinstance(node, SourceNode) and node.schedule is not None
    return _part("schedule" if is_schedule else "topic", name, "schedule" if is_schedule else "topic", _BOX)


def _way(node: SourceNode | SinkNode) -> str:
    return "exchange" if node.internal else "flow"


def _part(kind: str, name: str, detail: str, height: float) -> Part:
    width = max(_columns(_shown(name)) * _CHARACTER, _columns(detail) * _SMALL) + 2 * _PADDING
    return Part(kind, name, detail, 0, 0, max(width, _NARROWEST), height)


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _shown(name: str) -> str:
    """The name without what would hide or turn around other text; of a long one first the zeros go, then its middle."""
    visible = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(each)[0] in "CZ" and each != " " else each for each in name
    )
    if len(visible) > _LONGEST:
        visible = re.sub("0{4,}", "…", visible)
    return visible if len(visible) <= _LONGEST else f"{visible[: _LONGEST - 9]}…{visible[-8:]}"


def _is_xml(code: int) -> bool:
    return code in {0x9, 0xA, 0xD} or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or code >= 0x10000


def _text(text: str) -> str:
    return escape(drawable(text))


def _frame_text(frame: Frame) -> str:
    box = f'x="{frame.x:g}" y="{frame.y:g}" width="{frame.width:g}" height="{frame.height:g}" rx="10"'
    title = f'<text class="frame-title" x="{frame.x + 14:g}" y="{frame.y + 20:g}">{_text(frame.title)}</text>'
    return f'<rect class="frame" {box}/>{title}'


def _part_text(part: Part) -> str:
    attribute = _key(part.kind, "").strip()
    x, y = part.width / 2, part.height / 2 + (_RIM / 2 if part.kind == "store" else 0)
    name = f'<text x="{x:g}" y="{y + (-3 if part.detail else 4):g}">{_text(_shown(part.name))}</text>'
    detail = f'<text class="detail" x="{x:g}" y="{y + 13:g}">{_text(part.detail)}</text>' if part.detail else ""
    return (
        f'<g class="part {part.kind}" data-{attribute}="{_text(part.name)}" transform="translate({part.x:g} {part.y:g})">'
        f"<title>{_text(part.name)} ({_text(part.detail or part.kind)})</title>{_shape(part)}{name}{detail}</g>"
    )


def _shape(part: Part) -> str:
    width, height = part.width, part.height
    if part.kind == "store":
        rim = f"{width / 2:g} {_RIM:g} 0 0"
        side = f"M0 {_RIM:g}V{height - _RIM:g}A{rim} 0 {width:g} {height - _RIM:g}V{_RIM:g}A{rim} 0 0 {_RIM:g}"
        return f'<path class="shape" d="{side}A{rim} 0 {width:g} {_RIM:g}"/>'
    radius = 4 if part.kind in {"source", "processor", "sink"} else height / 2
    return f'<rect class="shape" width="{width:g}" height="{height:g}" rx="{radius:g}"/>'


def _line_texts(line: Line) -> Iterator[str]:
    is_dotted, has_tip = line.kind in {"exchange", "shared"}, line.kind in {"exchange", "flow"}
    ends = f'data-tail="{_text(line.tail)}" data-head="{_text(line.head)}"'
    tip = ' marker-end="url(#tip)"' if has_tip else ""
    yield f'<path class="line {line.kind}{" dotted" if is_dotted else ""}" {ends} d="{_path(line.points)}"{tip}/>'
    if line.label:
        x, y = line.points[-1]
        yield f'<text class="label" x="{x + 6:g}" y="{y - 10:g}">{_text(_shown(line.label))}</text>'


def _path(points: Iterable[Point]) -> str:
    """Straight where two points are above or beside each other, otherwise a curve that leaves and arrives upright."""
    points = tuple(points)
    steps = [f"M{points[0][0]:g} {points[0][1]:g}"]
    for (x, y), (to_x, to_y) in pairwise(points):
        if abs(x - to_x) < 0.5 or y == to_y:
            steps.append(f"L{to_x:g} {to_y:g}")
        else:
            half = (y + to_y) / 2
            steps.append(f"C{x:g} {half:g} {to_x:g} {half:g} {to_x:g} {to_y:g}")
    return "".join(steps)
