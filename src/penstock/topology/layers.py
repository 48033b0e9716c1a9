"""The arithmetic of a layered drawing: the layer of each item, the order within layers, and the x positions.

It works on sizes and links only. The same items and links always give the same arrangement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

Point = tuple[float, float]

_SWEEPS = 12
_STRAIGHT = 4.0
"""How much more strongly a long link pulls on its own points than on its ends: so it runs straight and bends at the ends."""


@dataclass(frozen=True, slots=True)
class Item:
    """Something with a size."""

    key: str
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Link:
    """From one item down to another, with the horizontal offsets of its ends from their middles."""

    tail: str
    head: str
    tail_dx: float = 0.0
    head_dx: float = 0.0


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The positions of items (left, top), and the points of each link from top to bottom."""

    places: Mapping[str, Point]
    routes: tuple[tuple[Point, ...], ...]
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class _Pull:
    """A neighbour, with the offset from it at which it pulls the item."""

    other: str
    dx: float
    weight: float


def longest_paths(keys: Iterable[str], links: Iterable[Link]) -> dict[str, int]:
    """Return the layer of each item: one below the lowest item that links to it. Links must not form a cycle."""
    above: dict[str, list[str]] = defaultdict(list)
    for link in links:
        above[link.head].append(link.tail)
    layers: dict[str, int] = {}
    waiting = list(keys)
    while waiting:
        later = []
        for key in waiting:
            if all(tail in layers for tail in above[key]):
                layers[key] = 1 + max((layers[tail] for tail in above[key]), default=-1)
            else:
                later.append(key)
        assert len(later) < len(waiting), "links form a cycle"
        waiting = later
    return layers


def arranged(items: Sequence[Item], links: Sequence[Link], layers: Mapping[str, int], *, gap: Point) -> Arrangement:
    """Arrange items in their layers, at least `gap` apart, with few crossings and links as straight as possible."""
    sizes = {item.key: item for item in items}
    rows: list[list[str]] = [[] for _ in range(1 + max(layers.values(), default=-1))]
    for item in items:
        rows[layers[item.key]].append(item.key)
    chains = []
    for number, link in enumerate(links):
        passed = [f"{number} passes {layer}" for layer in range(layers[link.tail] + 1, layers[link.head])]
        for layer, key in enumerate(passed, start=layers[link.tail] + 1):
            sizes[key] = Item(key, 0.0, 0.0)
            rows[layer].append(key)
        chains.append((link, [link.tail, *passed, link.head]))
    middles = _Columns(rows, chains, {key: item.width for key, item in sizes.items()}, gap[0]).settled()
    tops, bottoms = _lines(rows, sizes, gap[1])
    places = {item.key: (middles[item.key] - item.width / 2, tops[layers[item.key]]) for item in items}
    routes = tuple(_route(link, chain, middles, sizes, layers[link.tail], tops, bottoms) for link, chain in chains)
    width = max((left + sizes[key].width for key, (left, _) in places.items()), default=0.0)
    return Arrangement(places, routes, width, bottoms[-1] if bottoms else 0.0)


def _lines(rows: Sequence[Sequence[str]], sizes: Mapping[str, Item], gap: float) -> tuple[list[float], list[float]]:
    """Return the top and the bottom of each layer."""
    tops, bottoms, top = [], [], 0.0
    for row in rows:
        tops.append(top)
        bottoms.append(top + max(sizes[key].height for key in row))
        top = bottoms[-1] + gap
    return tops, bottoms


def _route(
    link: Link,
    chain: Sequence[str],
    middles: Mapping[str, float],
    sizes: Mapping[str, Item],
    layer: int,
    tops: Sequence[float],
    bottoms: Sequence[float],
) -> tuple[Point, ...]:
    """Route a link: vertical within a layer, sideways only between layers, so that it crosses no item."""
    x = middles[link.tail] + link.tail_dx
    points = [(x, tops[layer] + sizes[link.tail].height), (x, bottoms[layer])]
    for below, key in enumerate(chain[1:-1], start=layer + 1):
        points += [(middles[key], tops[below]), (middles[key], bottoms[below])]
    points.append((middles[link.head] + link.head_dx, tops[layer + len(chain) - 1]))
    return tuple(dict.fromkeys(points))


class _Columns:
    """The middles of items, improved step by step."""

    def __init__(
        self, rows: list[list[str]], chains: Sequence[tuple[Link, list[str]]], widths: Mapping[str, float], gap: float
    ) -> None:
        self._rows = rows
        self._widths = widths
        self._gap = gap
        self._above: dict[str, list[_Pull]] = defaultdict(list)
        self._below: dict[str, list[_Pull]] = defaultdict(list)
        self._steps: list[list[tuple[str, float, str, float]]] = [[] for _ in rows]
        self._middles: dict[str, float] = {}
        layer = {key: number for number, row in enumerate(rows) for key in row}
        for link, chain in chains:
            for tail, head in pairwise(chain):
                tail_dx = link.tail_dx if tail == link.tail else 0.0
                head_dx = link.head_dx if head == link.head else 0.0
                weight = _STRAIGHT if len(chain) > 2 else 1.0
                self._above[head].append(_Pull(tail, tail_dx - head_dx, weight))
                self._below[tail].append(_Pull(head, head_dx - tail_dx, weight))
                self._steps[layer[tail]].append((tail, tail_dx, head, head_dx))

    def settled(self) -> Mapping[str, float]:
        """Sweep down and up, keep the order with the fewest crossings, then straighten links within that order."""
        for row in self._rows:
            self._place(row, dict.fromkeys(row, 0.0))
        best, fewest = [list(row) for row in self._rows], self._crossings()
        for sweep in range(_SWEEPS):
            downwards = sweep % 2 == 0
            for row in self._rows if downwards else reversed(self._rows):
                wishes = self._wishes(row, self._above if downwards else self._below)
                row.sort(key=wishes.__getitem__)
                self._place(row, wishes)
            if (crossings := self._crossings()) < fewest:
                best, fewest = [list(row) for row in self._rows], crossings
        for sweep in range(2 * _SWEEPS):
            for row in best if sweep % 2 == 0 else reversed(best):
                self._place(row, self._wishes(row, self._above, self._below))
        for members in self._components(best):
            self._move_up(members, best)
        leftmost = min((middle - self._widths[key] / 2 for key, middle in self._middles.items()), default=0.0)
        return {key: middle - leftmost for key, middle in self._middles.items()}

    def _components(self, rows: Sequence[Sequence[str]]) -> list[set[str]]:
        """Return the connected components, from left to right."""
        components: list[set[str]] = []
        for key in (key for row in rows for key in row):
            if any(key in members for members in components):
                continue
            members, waiting = {key}, [key]
            while waiting:
                one = waiting.pop()
                others = {pull.other for side in (self._above, self._below) for pull in side.get(one, ())} - members
                members |= others
                waiting += sorted(others)
            components.append(members)
        return sorted(components, key=lambda members: min(self._middles[key] - self._widths[key] / 2 for key in members))

    def _move_up(self, members: set[str], rows: Sequence[Sequence[str]]) -> None:
        """Move a component to the left until it touches another: sweeps may have driven them apart."""
        room = [
            (self._middles[key] - self._widths[key] / 2) - (self._middles[before] + self._widths[before] / 2) - self._gap
            for row in rows
            for before, key in pairwise(row)
            if key in members and before not in members
        ]
        for key in members if room else ():
            self._middles[key] -= min(room)

    def _wishes(self, row: Sequence[str], *sides: Mapping[str, list[_Pull]]) -> dict[str, float]:
        """Return for each item of a layer the mean of its neighbours, or its own position if it has none."""
        wishes = {}
        for key in row:
            pulls = [pull for side in sides for pull in side.get(key, ())]
            weights = sum(pull.weight for pull in pulls)
            pulled = sum((self._middles[pull.other] + pull.dx) * pull.weight for pull in pulls)
            wishes[key] = pulled / weights if pulls else self._middles[key]
        return wishes

    def _place(self, row: Sequence[str], wishes: Mapping[str, float]) -> None:
        """Place items as close to their wishes as order and gaps allow, by least squares.

        Neighbours that would come too close move as one block from then on, around the mean of their wishes.
        """
        blocks: list[tuple[float, int]] = []  # the sum of wishes, each less its offset in the row, and how many
        offsets, offset = [], 0.0
        for number, key in enumerate(row):
            if number:
                offset += (self._widths[row[number - 1]] + self._widths[key]) / 2 + self._gap
            offsets.append(offset)
            total, count = wishes[key] - offset, 1
            while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
                before, more = blocks.pop()
                total, count = total + before, count + more
            blocks.append((total, count))
        starts = [total / count for total, count in blocks for _ in range(count)]
        for key, start, offset in zip(row, starts, offsets, strict=True):
            self._middles[key] = start + offset

    def _crossings(self) -> int:
        crossings = 0
        for steps in self._steps:
            ends = [(self._middles[tail] + tail_dx, self._middles[head] + head_dx) for tail, tail_dx, head, head_dx in steps]
            crossings += sum((one[0] - two[0]) * (one[1] - two[1]) < 0 for one, two in combinations(ends, 2))
        return crossings
