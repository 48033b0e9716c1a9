"""The position of each part of a topology in a drawing: frozen values, in pixels; `drawing` turns them into SVG."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.state import StoreSpec
from penstock.topology.layers import Arrangement, Item, Link, Point, arranged, longest_paths
from penstock.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode

_CHARACTER, _SMALL = 7.25, 6.65
"""The width of a character in pixels: names at font size 12, details at 11."""
_LONGEST = 26
_PADDING = 12.0
_BOX, _LOW = 42.0, 28.0
_NARROWEST = 132.0
"""Leaves room for a running application's figures below a short name."""
_BETWEEN: Point = (28.0, 26.0)
_AROUND = 16.0
_TITLE = 16.0
_MARGIN = 10.0


@dataclass(frozen=True, slots=True)
class Part:
    """A box, pill or cylinder: its kind, name and position.

    Kinds are source, processor, sink, topic, schedule, exchange and store.
    """

    kind: str
    name: str
    detail: str
    x: float
    y: float
    width: float
    height: float

    @property
    def key(self) -> str:
        """The key by which lines refer to it."""
        return key_of(self.kind, self.name)


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
    """The frame around a sub-topology."""

    title: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """A whole drawing, in pixels from its upper left corner."""

    width: float
    height: float
    frames: tuple[Frame, ...]
    parts: tuple[Part, ...]
    lines: tuple[Line, ...]


class Drawable(Protocol):
    """As much of a topology as a picture shows."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """By name."""

    @property
    def stores(self) -> Mapping[str, StoreSpec]:
        """By name."""

    @property
    def global_stores(self) -> Mapping[str, str]:
        """By name, each with the source that feeds it."""

    def groups(self) -> list[list[str]]:
        """The names of nodes by sub-topology."""


def layout(topology: Drawable) -> Drawing:
    """Lay out each sub-topology in its own layers, then sub-topologies and the topics between them in layers."""
    sheets = [_sheet(topology, number, names) for number, names in enumerate(topology.groups())]
    topics: dict[str, Part] = {}
    ways: list[tuple[Link, str, str, str]] = []  # link, kind of line, and the parts at its ends
    for sheet in sheets:
        for node in sheet.nodes:
            if isinstance(node, SourceNode):
                for name in topics_of(node):
                    topic = _topic(node, name)
                    topics.setdefault(topic.key, topic)
                    ways.append(
                        (Link(topic.key, sheet.key, 0, sheet.dx(node.name)), _way(node), topic.key, key_of("node", node.name))
                    )
    for sheet in sheets:
        for node in sheet.nodes:
            if isinstance(node, SinkNode):
                topic = _topic(node, topics_of(node)[0])
                key = topic.key
                if _leads(key, sheet.key, [way[0] for way in ways]):  # it would form a cycle: draw the topic a second time
                    key = f"{key} again"
                topics.setdefault(key, topic)
                ways.append((Link(sheet.key, key, sheet.dx(node.name), 0), _way(node), key_of("node", node.name), key))
    items = [*(Item(key, topic.width, topic.height) for key, topic in topics.items()), *(sheet.item for sheet in sheets)]
    links = [way[0] for way in ways]
    whole = arranged(items, links, _inputs_last(longest_paths([item.key for item in items], links), links), gap=_BETWEEN)
    return _assembled(topology, sheets, topics, ways, whole)


def topics_of(node: SourceNode | SinkNode) -> tuple[str, ...]:
    """Return the topics of a node as drawn: names or a pattern, a schedule, or a note that the node chooses."""
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
        """Return how far a node's middle is to the right of the frame's middle."""
        [part] = [part for part in self.parts if part.key == key_of("node", node)]
        return part.x + part.width / 2 - self.frame.width / 2


def _sheet(topology: Drawable, number: int, names: Sequence[str]) -> _Sheet:
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
            yield Line("flow", key_of("node", parent), key_of("node", node.name), points, aside.get(node.name, ""))


def _owners(topology: Drawable) -> dict[str, str]:
    """Return the node beside which each store is drawn: the first that owns it, or that shares it."""
    processors = [node for node in topology.nodes.values() if isinstance(node, ProcessorNode)]
    owners = {store: node.name for node in reversed(processors) for store, _ in reversed(node.shared)}
    owners |= {store: node.name for node in reversed(processors) for store in reversed(node.stores)}
    return {store: owners[store] for store in topology.stores if store in owners}


# ---- all of them ----------------------------------------------------------------------------------------------------


def _inputs_last(layers: dict[str, int], links: Sequence[Link]) -> dict[str, int]:
    """Move each item without incoming links directly above the item it links to."""
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
    topology: Drawable,
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


def _store_lines(topology: Drawable, at: Mapping[str, Part]) -> Iterator[Line]:
    for node in topology.nodes.values():
        if isinstance(node, ProcessorNode):
            uses = [(store, "store") for store in node.stores] + [(store, "shared") for store, _ in node.shared]
            for store, kind in uses:
                tail, head = at[key_of("node", node.name)], at[key_of("store", store)]
                yield Line(kind, tail.key, head.key, _beside(tail, head))


def _beside(node: Part, store: Part) -> tuple[Point, ...]:
    """Draw a line from a node's side to its store's; from its lower or upper edge if the store is beside another node."""
    middle = node.y + node.height / 2
    if store.y < middle < store.y + store.height:
        right = store.x > node.x
        return ((node.x + node.width * right, middle), (store.x + store.width * (not right), middle))
    below = store.y > node.y
    end = (store.x + store.width / 2, store.y + store.height * (not below))
    return ((node.x + node.width / 2, node.y + node.height * below), end)


# ---- words and shapes -----------------------------------------------------------------------------------------------


def key_of(kind: str, name: str) -> str:
    """Return the key by which lines refer to a part; a topic may have the same name as a node."""
    things = {"topic": "topic", "schedule": "topic", "exchange": "topic", "store": "store"}
    return f"{things.get(kind, 'node')} {name}"


def _kind(node: Node) -> str:
    return "source" if isinstance(node, SourceNode) else "sink" if isinstance(node, SinkNode) else "processor"


def _word(node: Node) -> str:
    """Return what the node does, in one word."""
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
    width = max(_columns(shown(name)) * _CHARACTER, _columns(detail) * _SMALL) + 2 * _PADDING
    return Part(kind, name, detail, 0, 0, max(width, _NARROWEST), height)


def _columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def shown(name: str) -> str:
    """Return the name without characters that hide or reverse text; a long one loses its zeros, then its middle."""
    visible = "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(each)[0] in "CZ" and each != " " else each for each in name
    )
    if len(visible) > _LONGEST:
        visible = re.sub(r"0{4,}(?=\d)", "…", visible)
    return visible if len(visible) <= _LONGEST else f"{visible[: _LONGEST - 9]}…{visible[-8:]}"
