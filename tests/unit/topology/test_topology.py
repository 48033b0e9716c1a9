"""`Topology`, the entry point of the Processor API: what can be added, and what is rejected."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Processor, Record, RecordContext, StreamsBuilder, Topology, key_value_store
from penstock.errors import TopologyError
from penstock.errors.lines import PACKAGE
from penstock.testing import TopologyTestDriver
from penstock.topology import Exchange, Line, ProcessorNode, SinkNode, SourceNode, user_line


class Copy(Processor[Any, Any, Any, Any]):
    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


class Keep(Processor[str, int, str, int]):
    def process(self, record: Record[str, int]) -> None:
        self.context.store("kept")[record.key] = record.value


class Look(Processor[str, Any, str, Any]):
    def process(self, record: Record[str, Any]) -> None:
        self.context.forward(record.with_value(self.context.store("kept").get(record.key)))


def source() -> Topology:
    return Topology().add_source("in", "lines", value=str)


class TestNodes:
    def test_records_go_from_sources_through_processors_to_sinks(self) -> None:
        topology = source().add_processor("copy", Copy, "in").add_sink("out", "copies", "copy", value=str)
        with TopologyTestDriver(topology) as driver:
            driver.input("lines").pipe("hello", key="a", timestamp=5, headers=(("h", b"1"),))
            assert driver.output("copies").read() == Record("a", "hello", 5, (("h", b"1"),))

    def test_keys_are_text_and_values_json_by_default(self) -> None:
        topology = Topology().add_source("in", "lines").add_sink("out", "copies", "in")
        node = topology.nodes["out"]
        assert isinstance(node, SinkNode)
        assert (repr(node.key), repr(node.value)) == ("String()", "Json()")

    def test_a_source_reads_topics_or_one_pattern(self) -> None:
        topology = Topology().add_source("several", "a", "b").add_source("pattern", re.compile("c.*"), reset="latest")
        several, pattern = topology.nodes["several"], topology.nodes["pattern"]
        assert isinstance(several, SourceNode)
        assert isinstance(pattern, SourceNode)
        assert (several.topics, several.pattern) == (("a", "b"), None)
        assert (pattern.topics, pattern.pattern, pattern.reset) == ((), re.compile("c.*"), "latest")

    @pytest.mark.parametrize("topics", [(), ("a", re.compile("b")), (re.compile("a"), re.compile("b")), (1,)])
    def test_a_source_of_anything_else_is_rejected(self, topics: tuple[Any, ...]) -> None:
        with pytest.raises(
            TopologyError, match=r"Source 'in' needs topic names or one compiled pattern \(.*test_topology.py:\d+"
        ):
            Topology().add_source("in", *topics)

    def test_a_topic_is_read_by_one_source(self) -> None:
        with pytest.raises(
            TopologyError, match=r"Topic 'lines' is read by both 'in' \(.*test_topology.py.*\) and 'again' \(.*test_topology.py"
        ):
            source().add_source("again", "other", "lines")

    def test_a_topic_that_a_pattern_matches_is_already_read(self) -> None:
        with pytest.raises(TopologyError, match="Topic 'lines-eu'"):
            Topology().add_source("all", re.compile("lines-.*")).add_source("eu", "lines-eu")
        with pytest.raises(TopologyError, match="Topic 'lines-eu'"):
            Topology().add_source("eu", "lines-eu").add_source("all", re.compile("lines-.*"))

    def test_functions_of_the_wrong_arity_are_rejected(self) -> None:
        wrong: Any = lambda one, two, three, four, five: None  # noqa: E731 - one function, wrong everywhere
        with pytest.raises(TopologyError, match=r"test_topology\.py"):
            Topology().add_source("in", "lines", timestamp=wrong)
        with pytest.raises(TopologyError, match=r"test_topology\.py"):
            source().add_processor("p", wrong, "in")
        with pytest.raises(TopologyError, match=r"test_topology\.py"):
            source().add_sink("out", wrong, "in")

    def test_names_are_unique(self) -> None:
        with pytest.raises(TopologyError, match=r"Node 'in' already exists \(.*test_topology.py"):
            source().add_processor("in", Copy, "in")

    def test_parents_come_first(self) -> None:
        with pytest.raises(TopologyError, match=r"Node 'copy' cannot read from 'later' \(.*test_topology.py"):
            source().add_processor("copy", Copy, "in", "later")

    def test_errors_list_the_known_names(self) -> None:
        topology = source().add_processor("copy", Copy, "in").add_state_store(key_value_store("kept"))
        with pytest.raises(TopologyError, match=r"cannot read from 'inn' .* Nodes: in, copy.$"):
            topology.add_processor("again", Copy, "inn")
        with pytest.raises(TopologyError, match=r"no processor 'in' to connect stores to .* Processors: copy.$"):
            topology.connect_processor_and_state_stores("in", "kept")
        with pytest.raises(TopologyError, match=r"Store 'keep' is not declared .* Declared stores: kept.$"):
            topology.connect_processor_and_state_stores("copy", "keep")
        with pytest.raises(TopologyError, match=r"Nodes: none.$"):
            Topology().add_processor("copy", Copy, "in")
        with pytest.raises(TopologyError, match=r"Processors: none.$"):
            source().connect_processor_and_state_stores("copy", "kept")
        with pytest.raises(TopologyError, match=r"Declared stores: none.$"):
            source().add_processor("copy", Copy, "in", stores=["kept"])

    def test_a_topic_given_twice_is_one(self) -> None:
        several = Topology().add_source("in", "a", "b", "a").nodes["in"]
        assert isinstance(several, SourceNode)
        assert several.topics == ("a", "b")

    def test_a_partitioner_takes_four_arguments(self) -> None:
        def lacks_an_argument(topic: Any, key: Any, value: Any) -> Any:
            """Return nothing."""

        wrong: Any = lacks_an_argument
        with pytest.raises(TopologyError, match=r"partitioner= calls its function with \(topic, key, value, partitions\)"):
            source().add_sink("out", "copies", "in", partitioner=wrong)

    def test_a_sink_has_no_children(self) -> None:
        with pytest.raises(TopologyError, match="Node 'copy' cannot read from 'out'"):
            source().add_sink("out", "copies", "in").add_processor("copy", Copy, "out")

    def test_all_but_sources_need_parents(self) -> None:
        with pytest.raises(TopologyError, match=r"Processor 'copy' needs at least one parent \(.*test_topology.py"):
            source().add_processor("copy", Copy)
        with pytest.raises(TopologyError, match=r"Sink 'out' needs at least one parent \(.*test_topology.py"):
            source().add_sink("out", "copies")

    def test_a_sink_may_choose_topic_and_partition(self) -> None:
        asked: list[tuple[Any, ...]] = []

        def choose(key: str, value: str, context: RecordContext) -> str:
            return f"{context.topic}-{value}"

        def partition(*arguments: Any) -> int:
            asked.append(arguments)
            return 0

        topology = source().add_sink("out", choose, "in", value=str, partitioner=partition)
        with TopologyTestDriver(topology) as driver:
            driver.input("lines").pipe("x", key="a")
            assert driver.output("lines-x").read_pair() == ("a", "x")
        assert asked == [("lines-x", "a", "x", 1)]

    def test_the_properties_are_read_only(self) -> None:
        topology = source()
        mappings: list[Any] = [topology.nodes, topology.stores, topology.global_stores, topology.exchanges]
        for mapping in mappings:
            with pytest.raises(TypeError):
                mapping["x"] = None


def built() -> Topology:
    """A topology with something in each of its collections."""
    builder = StreamsBuilder()
    facts = builder.global_table("facts", store="facts")
    counted = builder.stream("lines").group_by(lambda _, line: line).count(store="counted").to_stream()
    known = counted.join(facts, lambda count, fact: fact, on=lambda key, _: key)
    known.join(builder.stream("others"), max, within="1s").to("out")
    return builder.build()


ADDITIONS: list[Callable[[Topology], object]] = [
    lambda topology: topology.add_source("more", "more"),
    lambda topology: topology.add_processor("more", Copy, "KSTREAM-SOURCE-0000000002"),
    lambda topology: topology.add_sink("more", "more", "KSTREAM-SOURCE-0000000002"),
    lambda topology: topology.add_state_store(key_value_store("more")),
    lambda topology: topology.add_global_store(key_value_store("more"), "more", Keep, source="more", processor="keep"),
    lambda topology: topology.add_read_only_state_store(key_value_store("more"), "more", Keep, source="more", processor="keep"),
    lambda topology: topology.connect_processor_and_state_stores("KSTREAM-MERGE-0000000015", "counted"),
    lambda topology: topology.add_exchange(Exchange("more")),
    lambda topology: topology.copartition(["KSTREAM-SOURCE-0000000002"]),
    lambda topology: vars(topology)["_nodes"].update(more=None),
    lambda topology: vars(topology)["_copartitioned"].append(frozenset()),
    lambda topology: setattr(topology, "_nodes", {}),
    lambda topology: setattr(topology, "nodes", {}),
]


class TestABuiltTopology:
    def test_has_something_that_could_be_changed(self) -> None:
        topology = built()
        assert all((topology.nodes, topology.stores, topology.global_stores, topology.exchanges, topology.copartitioned))

    @pytest.mark.parametrize("add", ADDITIONS)
    def test_cannot_be_changed_in_any_way(self, add: Callable[[Topology], object]) -> None:
        topology = built()
        before = whole(topology)
        with pytest.raises((TopologyError, AttributeError), match=r"is built|no attribute"):
            add(topology)
        assert whole(topology) == before

    def test_says_how_to_do_it_instead(self) -> None:
        with pytest.raises(TopologyError, match=r"is built .*test_topology\.py:\d+.*; declare all of it before build\(\)"):
            built().add_source("more", "more")

    def test_does_not_change_with_its_builder(self) -> None:
        builder = StreamsBuilder()
        builder.stream("a").to("b")
        topology = builder.build()
        before = whole(topology)
        builder.stream("c").to("d")
        assert whole(topology) == before
        assert len(builder.build().nodes) == 4

    def test_may_be_frozen_again(self) -> None:
        topology = built()
        assert topology.freeze() is topology


def whole(topology: Topology) -> tuple[Any, ...]:
    mappings = (topology.nodes, topology.stores, topology.global_stores, topology.exchanges)
    return (*(tuple(mapping.items()) for mapping in mappings), topology.copartitioned)


class TestStores:
    def test_a_store_is_connected_to_processors(self) -> None:
        topology = source().add_processor("keep", Keep, "in").add_processor("look", Look, "in")
        topology.add_state_store(key_value_store("kept", value=str), "keep")
        topology.connect_processor_and_state_stores("look", "kept").connect_processor_and_state_stores("look", "kept")
        topology.add_sink("out", "found", "look")
        look = topology.nodes["look"]
        assert isinstance(look, ProcessorNode)
        assert look.stores == ("kept",)
        with TopologyTestDriver(topology) as driver:
            driver.input("lines").pipe("x", key="a")
            assert driver.output("found").values() == ["x"]

    def test_a_processor_may_name_its_stores(self) -> None:
        topology = source().add_state_store(key_value_store("kept")).add_processor("keep", Keep, "in", stores=["kept"])
        node = topology.nodes["keep"]
        assert isinstance(node, ProcessorNode)
        assert node.stores == ("kept",)

    def test_stores_are_for_processors(self) -> None:
        for name in ("in", "nobody"):
            with pytest.raises(TopologyError, match=rf"There is no processor '{name}' to connect stores to \(.*test_topology.py"):
                source().add_state_store(key_value_store("kept"), name)

    def test_a_store_is_declared_before_it_is_connected(self) -> None:
        with pytest.raises(TopologyError, match=r"Store 'kept' is not declared \(.*test_topology.py.*add_state_store"):
            source().add_processor("keep", Keep, "in", stores=["kept"])

    def test_a_store_is_declared_once(self) -> None:
        kept = key_value_store("kept")
        topology = source().add_state_store(kept).add_state_store(kept)
        with pytest.raises(TopologyError, match=r"Store 'kept' is declared twice \(.*test_topology.py"):
            topology.add_state_store(key_value_store("kept"))

    def test_a_global_store_is_seen_whole_by_every_processor(self) -> None:
        topology = Topology().add_global_store(
            key_value_store("kept", value=int), "facts", Keep, source="facts", processor="keep", value=int
        )
        topology.add_source("in", "asks").add_processor("look", Look, "in").add_sink("out", "found", "look")
        topology.connect_processor_and_state_stores("look", "kept")
        look = topology.nodes["look"]
        assert isinstance(look, ProcessorNode)
        assert look.stores == ()
        with TopologyTestDriver(topology) as driver:
            driver.input("facts").pipe(3, key="a")
            driver.input("asks").pipe(None, key="a")
            assert driver.output("found").values() == [3]
            assert driver.produced_topic_names() == {"found"}

    def test_a_read_only_store_mirrors_its_topic(self) -> None:
        topology = Topology().add_read_only_state_store(
            key_value_store("kept", value=int), "facts", Keep, source="facts", processor="keep", value=int
        )
        topology.add_source("in", "asks").add_processor("look", Look, "in", stores=["kept"]).add_sink("out", "found", "look")
        assert len(topology.groups()) == 1
        with TopologyTestDriver(topology) as driver:
            driver.input("facts").pipe(3, key="a")
            driver.input("asks").pipe(None, key="a")
            assert driver.output("found").values() == [3]


class TestGroups:
    def test_edges_and_stores_connect(self) -> None:
        topology = Topology().add_source("a", "a").add_source("b", "b").add_source("c", "c")
        topology.add_processor("from-a", Keep, "a").add_processor("from-b", Look, "b").add_sink("from-c", "out", "c")
        assert topology.groups() == [["a", "from-a"], ["b", "from-b"], ["c", "from-c"]]
        topology.add_state_store(key_value_store("kept"), "from-a", "from-b")
        assert topology.groups() == [["a", "b", "from-a", "from-b"], ["c", "from-c"]]

    def test_global_stores_do_not_connect(self) -> None:
        topology = Topology().add_global_store(key_value_store("kept"), "facts", Keep, source="facts", processor="keep")
        topology.add_source("in", "asks").add_processor("look", Look, "in")
        topology.connect_processor_and_state_stores("look", "kept")
        assert topology.groups() == [["facts", "keep"], ["in", "look"]]


class TestTexts:
    def test_patterns_and_choosing_sinks_are_described_and_drawn(self) -> None:
        topology = Topology().add_source("in", re.compile("a|b")).add_sink("out", Chooser(), "in")
        assert "Source: in (topics: a|b)" in topology.describe()
        assert "Sink: out (extractor class: Chooser)" in topology.describe()
        assert '(["a|b"])' in topology.mermaid()
        assert '(["out chooses"])' in topology.mermaid()

    def test_functions_that_choose_topics_have_a_stable_name(self) -> None:
        topology = source().add_sink("one", choose, "in").add_sink("two", lambda key, value, context: "out", "in")
        described = topology.describe()
        assert "Sink: one (extractor class: choose)" in described
        assert "Sink: two (extractor class: TestTexts.test_functions_that_choose_topics_have" in described
        assert " at 0x" not in described

    def test_an_empty_topology_is_described_too(self) -> None:
        assert Topology().describe() == "Topologies:\n "
        assert Topology().mermaid() == "flowchart TD\n"

    def test_an_unused_store_is_not_drawn(self) -> None:
        assert "kept" not in source().add_state_store(key_value_store("kept")).mermaid()

    def test_two_nodes_may_use_a_topic_that_is_drawn_once(self) -> None:
        topology = source().add_sink("one", "copies", "in").add_sink("two", "copies", "in")
        assert topology.mermaid().count('(["copies"])') == 1


def choose(key: Any, value: Any, context: RecordContext) -> str:
    return "out"


class Chooser:
    def __call__(self, key: Any, value: Any, context: RecordContext) -> str:
        return "out"

    def __str__(self) -> str:
        return "by size"


class TestLines:
    def test_a_line_is_the_users_own(self) -> None:
        line = user_line()
        assert Path(line.file).name == "test_topology.py"
        assert line.function == "test_a_line_is_the_users_own"
        assert str(Line("app.py", 3, "main")) == "app.py:3 (in main)"

    def test_a_package_with_a_similar_name_is_user_code(self) -> None:
        scope: dict[str, Any] = {"user_line": user_line}
        neighbour = f"{PACKAGE.rstrip(os.sep)}_app/app.py"
        exec(compile("line = user_line()", neighbour, "exec"), scope)
        assert scope["line"].file == neighbour

    def test_every_node_of_the_dsl_remembers_where_it_was_declared(self) -> None:
        builder = StreamsBuilder()
        words = builder.stream("in").group_by(lambda key, value: value).count()
        words.filter(lambda key, value: value > 1).to_stream().to("out")
        for node in builder.build().nodes.values():
            assert Path(node.line.file).name == "test_topology.py", node
