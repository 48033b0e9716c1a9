"""A topology as a drawing: it is complete, nothing overlaps, and names are only text."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from penstock import Processor, Record, StreamsBuilder, Topology, key_value_store, shared_store
from penstock.topology.layers import Item, Link, arranged, longest_paths
from penstock.topology.layout import Drawing, Part, layout
from tests.golden.topologies import TOPOLOGIES

SVG = "{http://www.w3.org/2000/svg}"
GOLDEN = Path(__file__).parents[2] / "golden" / "word_count.svg"
HOSTILE = "<img src=x onerror=alert(1)>\"'&\x00\x1b\u202egnp.exe\ud800"


class Copy(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


def wide() -> Topology:
    """Sixty nodes; many links skip layers."""
    topology = Topology().add_source("n0", "in")
    for number in range(1, 55):
        parents = {f"n{number // 3}", f"n{number // 2}", f"n{max(0, number - 7)}"}
        topology.add_processor(f"n{number}", Copy, *sorted(parents))
    for number in range(5):
        topology.add_sink(f"out{number}", f"out-{number % 3}", f"n{50 + number}", "n3")
    return topology


def sharing() -> Topology:
    topology = Topology().add_source("in", "lines").add_processor("copy", Copy, "in").add_source("other", "others")
    topology.add_processor("look", Copy, "other").add_state_store(shared_store("seen", value=str), "copy", "look")
    return topology.add_sink("out", "copies", "copy")


def back_to_itself() -> Topology:
    return Topology().add_source("in", "lines").add_processor("copy", Copy, "in").add_sink("again", "lines", "copy")


def scheduled() -> Topology:
    builder = StreamsBuilder()
    builder.schedule("tick", every="1m").to("ticks")
    return builder.build()


ALL: dict[str, Callable[[], Topology]] = {
    **TOPOLOGIES,
    **{build.__name__: build for build in (Topology, wide, sharing, back_to_itself, scheduled)},
}


def drawn(topology: Topology) -> ET.Element:
    return ET.fromstring(topology.svg())


def marked(root: ET.Element, attribute: str) -> list[str]:
    return [element.attrib[attribute] for element in root.iter(f"{SVG}g") if attribute in element.attrib]


@pytest.mark.parametrize("name", ALL)
class TestAnyTopology:
    def test_every_node_store_and_topic_is_there(self, name: str) -> None:
        topology = ALL[name]()
        root = drawn(topology)
        assert sorted(marked(root, "data-node")) == sorted(topology.nodes)
        used = {
            store
            for node in topology.nodes.values()
            for store in (*getattr(node, "stores", ()), *dict(getattr(node, "shared", ())))
        }
        assert set(marked(root, "data-store")) == used
        topics = {topic for node in topology.nodes.values() for topic in getattr(node, "topics", ())}
        assert topics <= set(marked(root, "data-topic"))

    def test_every_edge_is_there(self, name: str) -> None:
        topology = ALL[name]()
        edges = {(line.tail, line.head) for line in layout(topology).lines if line.kind == "flow"}
        expected = {(f"node {parent}", f"node {node.name}") for node in topology.nodes.values() for parent in node.parents}
        assert expected <= edges

    def test_nothing_overlaps(self, name: str) -> None:
        drawing = layout(ALL[name]())
        for these in (drawing.parts, drawing.frames):
            for one, two in combinations(these, 2):
                assert not overlap(one, two), f"{one} and {two}"

    def test_no_flow_runs_through_a_part(self, name: str) -> None:
        drawing = layout(ALL[name]())
        for line in drawing.lines:
            if line.kind in {"flow", "exchange"}:
                for (x, y), (to_x, to_y) in zip(line.points, line.points[1:], strict=False):
                    through = [part for part in drawing.parts if x == to_x and is_through(part, x, y, to_y)]
                    assert through == [], f"{line} runs through {through}"

    def test_everything_is_inside_the_drawing(self, name: str) -> None:
        drawing = layout(ALL[name]())
        everything: list[Any] = [*drawing.parts, *drawing.frames]
        for each in everything:
            assert 0 <= each.x <= each.x + each.width <= drawing.width
            assert 0 <= each.y <= each.y + each.height <= drawing.height

    def test_it_is_drawn_the_same_again(self, name: str) -> None:
        assert ALL[name]().svg() == ALL[name]().svg()


def overlap(one: Any, two: Any) -> bool:
    return bool(
        one.x < two.x + two.width and two.x < one.x + one.width and one.y < two.y + two.height and two.y < one.y + one.height
    )


def is_through(part: Part, x: float, top: float, bottom: float) -> bool:
    return part.x < x < part.x + part.width and top < part.y + part.height - 0.5 and bottom > part.y + 0.5


def test_a_small_drawing_is_unchanged() -> None:
    text = TOPOLOGIES["word_count"]().svg()
    if os.environ.get("PENSTOCK_REWRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_notebooks_show_it() -> None:
    topology = TOPOLOGIES["word_count"]()
    assert topology._repr_svg_() == topology.svg()


def test_it_is_self_contained_and_has_no_scripts() -> None:
    text = TOPOLOGIES["word_count"]().svg()
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert "<script" not in text
    assert "prefers-color-scheme: dark" in text


def test_names_are_only_text() -> None:
    topology = Topology().add_source(HOSTILE, "topic").add_processor("p", Copy, HOSTILE)
    topology.add_state_store(key_value_store("store"), "p")
    root = drawn(topology)
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "style", "defs", "marker", "path", "rect", "text", "g", "title",
    }  # fmt: skip
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
    [name] = set(marked(root, "data-node")) - {"p"}
    assert name == HOSTILE.replace("\x00", "�").replace("\x1b", "�").replace("\ud800", "�")
    shown = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert not any("\u202e" in text for text in shown), "shown text cannot be reversed"
    assert topology.svg().encode()


def test_long_names_are_shortened_with_the_full_name_in_the_title() -> None:
    name = "a-very-long-name-of-a-processor-that-nobody-could-show"
    root = drawn(Topology().add_source(name, "in").add_source("KSTREAM-FLATMAPVALUES-0000000012", "other"))
    shown = {element.text for element in root.iter(f"{SVG}text")}
    assert {"a-very-long-name-…uld-show", "KSTREAM-FLATMAPVALUES-…12"} <= shown
    assert ">orders-STATE-STORE-…0</text>" in Topology().add_source("orders-STATE-STORE-0000000000", "in").svg()
    assert f"{name} (source)" in {element.text for element in root.iter(f"{SVG}title")}
    widest = max(part.width for part in layout(Topology().add_source(name, "in")).parts)
    assert widest < 240


def test_exchanges_and_shared_stores_are_dotted() -> None:
    kinds = {line.kind for line in layout(sharing()).lines}
    assert {"exchange", "shared", "store", "flow"} == kinds
    paths = drawn(sharing()).iter(f"{SVG}path")
    dotted = {path.attrib["class"] for path in paths if "dotted" in path.attrib.get("class", "")}
    assert dotted == {"line exchange dotted", "line shared dotted"}


def test_a_topic_that_leads_back_is_drawn_twice() -> None:
    topics = [part.name for part in layout(back_to_itself()).parts if part.kind == "topic"]
    assert topics == ["lines", "lines"]


def test_side_outputs_have_their_names() -> None:
    topology = Topology().add_source("in", "lines").add_processor("copy", Copy, "in").add_side_output("odd", "copy", "odd-ones")
    assert [line.label for line in layout(topology).lines if line.label] == ["odd-ones"]
    assert ">odd-ones</text>" in topology.svg()


def test_sub_topologies_are_framed() -> None:
    assert [frame.title for frame in layout(TOPOLOGIES["global_table"]()).frames] == ["sub-topology 0 · global", "sub-topology 1"]


def test_an_empty_topology_is_drawn() -> None:
    assert layout(Topology()) == Drawing(20, 20, (), (), ())


class TestLayers:
    def test_a_link_is_straight_if_nothing_is_in_its_way(self) -> None:
        items = [Item(key, 100, 40) for key in "abc"]
        links = [Link("a", "b"), Link("b", "c"), Link("a", "c")]
        done = arranged(items, links, longest_paths("abc", links), gap=(20, 30))
        assert [round(done.places[key][1]) for key in "abc"] == [0, 70, 140]
        assert done.routes[0][0][1] == 40
        assert len(done.routes[2]) == 4, "it passes the layer between"

    def test_crossings_are_removed(self) -> None:
        items = [Item(key, 10, 10) for key in "abcdxyzw"]
        links = [Link("a", "w"), Link("b", "z"), Link("c", "y"), Link("d", "x")]
        done = arranged(items, links, longest_paths("abcdxyzw", links), gap=(5, 5))
        below = sorted("xyzw", key=lambda key: done.places[key][0])
        above = sorted("abcd", key=lambda key: done.places[key][0])
        pairs = {link.tail: link.head for link in links}
        assert [pairs[key] for key in above] == below

    def test_a_cycle_is_rejected(self) -> None:
        with pytest.raises(AssertionError, match="cycle"):
            longest_paths("ab", [Link("a", "b"), Link("b", "a")])
