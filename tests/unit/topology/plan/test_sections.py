"""Where atomic sections run: each in its own stage, after everything that does not depend on it."""

from __future__ import annotations

from typing import Any

from penstock import KStream, Processor, StreamsBuilder, Topology, key_value_store, shared_store
from penstock.topology import ProcessorNode
from penstock.topology.plan import facts, incompatibilities, plan
from penstock.topology.plan.stages import Stage


class Nothing(Processor[Any, Any, Any, Any]):
    def process(self, record: Any) -> None:
        """Nothing."""


def section(stream: KStream[Any, Any], name: str) -> KStream[Any, Any]:
    return stream.process_atomically(Nothing, stores=["kept"], value=str, name=name)


def builder() -> StreamsBuilder:
    made = StreamsBuilder(value=str)
    made.add_state_store(shared_store("kept", value=int))
    return made


def stage_of(topology: Topology, source: str) -> Stage:
    [found] = [stage for stage in plan(topology).stages if source in stage.sources]
    return found


def test_a_section_comes_after_everything_that_does_not_depend_on_it() -> None:
    build = builder()
    stream = build.stream("in")
    section(stream, "pay").to("out")
    counted = stream.group_by(lambda _, value: value).count(store="once").to_stream()
    counted.group_by(lambda _, count: str(count), value=int).count(store="twice")
    stages = plan(build.build()).stages
    assert [stage.is_serial for stage in stages] == [False, False, False, True, False]
    assert stages[3].sources == ("pay-section-source",)
    assert str(stages[3]).startswith("stage 3 (serially, over all lanes)\n  from exchanges: pay-section\n  shared stores: kept\n")


def test_writes_to_shared_stores_are_applied_before_a_section_they_do_not_depend_on() -> None:
    build = builder()
    stream = build.stream("in")
    before = section(stream, "pay")
    stream.process(Nothing, stores=["kept"], name="write")
    topology = build.build()
    assert stage_of(topology, "kept-writes-source").depth < stage_of(topology, "pay-section-source").depth
    before.process(Nothing, stores=["kept"], name="write-later")
    topology = build.build()
    assert stage_of(topology, "kept-writes-source").depth > stage_of(topology, "pay-results-source").depth


def test_each_section_has_its_own_stage() -> None:
    build = builder()
    stream = build.stream("in")
    first, second = section(stream, "first"), section(stream, "second")
    section(first.merge(second), "third").to("out")
    first.group_by_key().count(store="counts")
    stages = plan(build.build()).stages
    serial = [stage for stage in stages if stage.is_serial]
    assert [stage.sources for stage in serial] == [
        ("first-section-source",),
        ("second-section-source",),
        ("third-section-source",),
    ]
    assert [stage.depth for stage in stages] == list(range(len(stages)))
    counts = next(stage.depth for stage in stages if "counts" in stage.stores)
    assert counts < serial[2].depth


def test_what_is_joined_with_a_sections_results_waits_for_them() -> None:
    build = builder()
    results = section(build.stream("in"), "pay")
    results.join(build.table("names", store="names"), lambda left, right: left + right).to("out")
    topology = build.build()
    assert stage_of(topology, "pay-results-source") == next(stage for stage in plan(topology).stages if "names" in stage.topics)
    assert stage_of(topology, "pay-results-source").depth > stage_of(topology, "pay-section-source").depth


def test_a_section_in_a_ring_of_sub_topologies_is_still_alone() -> None:
    """The subscription of a foreign-key join comes before the section, its response after it."""
    build = builder()
    orders = build.table("orders", store="orders")
    joined = orders.join(build.table("names", store="names"), lambda left, right: left + right, on=lambda value: value)
    results = section(orders.to_stream(), "pay")
    results.join(build.table("others", store="others"), lambda left, right: left + right).to("out")
    results.left_join(joined, lambda left, right: left).to("out-too")
    [serial] = [stage for stage in plan(build.build()).stages if stage.is_serial]
    assert serial.sources == ("pay-section-source",)


def test_processors_that_share_a_store_need_not_be_together() -> None:
    build = builder()
    for topic in ("a", "b"):
        build.stream(topic).process(Nothing, stores=["kept"], name=f"use-{topic}")
    topology = build.build()
    assert len(topology.groups()) == 3
    user = topology.nodes["use-a"]
    assert isinstance(user, ProcessorNode)
    assert user.shared == (("kept", "use-a-kept-writes"),)
    assert "Processor: use-a (stores: [], shared: [kept])" in topology.describe()
    assert "-.-" in topology.mermaid()


def test_a_store_does_not_become_shared_or_unshared_over_its_old_content() -> None:
    shared, plain = builder().build(), StreamsBuilder()
    plain.add_state_store(key_value_store("kept", value=int))
    assert incompatibilities(facts(plain.build(), "a"), facts(shared, "b")) == [
        "store 'kept': shared was none and is by its own keys"
    ]
    assert not incompatibilities(facts(shared, "a"), facts(builder().build(), "b"))
