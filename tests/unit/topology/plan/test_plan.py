"""Plans: the stages of a topology, and what changes the fingerprint."""

from __future__ import annotations

import re
from typing import Any

import pytest

from penstock import Store, StreamsBuilder, Topology, key_value_store
from penstock.topology.plan import Plan, Stage, fingerprint, plan


def stages(topology: Topology) -> list[tuple[list[str], list[str], list[str]]]:
    """Topics, exchanges read and exchanges written of each stage."""
    return [(list(stage.topics), list(stage.reads), list(stage.writes)) for stage in plan(topology).stages]


def first(left: Any, right: Any) -> Any:
    return left


class TestStages:
    def test_without_an_exchange_there_is_one_stage(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").filter(lambda key, value: True).to("out")
        made = plan(builder.build())
        assert made.exchanges == 0
        (stage,) = made.stages
        assert (stage.topics, stage.sinks, stage.is_keyed, len(stage.nodes)) == (("in",), ("out",), False, 3)

    def test_a_store_ties_a_stage_to_lanes(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").group_by_key().count(store="counts")
        (stage,) = plan(builder.build()).stages
        assert (stage.stores, stage.is_keyed) == (("counts",), True)

    def test_two_new_keys_in_a_row_make_three_stages(self) -> None:
        builder = StreamsBuilder()
        once = builder.stream("in").select_key(lambda key, value: value).repartition(name="one")
        once.select_key(lambda key, value: value).repartition(name="two").to("out")
        assert stages(builder.build()) == [
            (["in"], [], ["one-repartition"]),
            ([], ["one-repartition"], ["two-repartition"]),
            ([], ["two-repartition"], []),
        ]

    def test_all_inputs_of_a_join_enter_in_one_stage(self) -> None:
        builder = StreamsBuilder()
        left = builder.stream("left").select_key(lambda key, value: value)
        left.join(builder.stream("right"), first, within=5, name="j").to("out")
        assert stages(builder.build()) == [
            (["left"], [], ["j-left-repartition"]),
            (["right"], ["j-left-repartition"], []),
        ]

    def test_new_keys_beside_each_other_share_a_stage(self) -> None:
        builder = StreamsBuilder()
        left = builder.stream("left").select_key(lambda key, value: value)
        right = builder.stream("right").select_key(lambda key, value: value)
        left.join(right, first, within=5, name="j").to("out")
        assert stages(builder.build()) == [
            (["left", "right"], [], ["j-left-repartition", "j-right-repartition"]),
            ([], ["j-left-repartition", "j-right-repartition"], []),
        ]

    def test_inputs_of_different_depth_meet_at_the_deeper_one(self) -> None:
        builder = StreamsBuilder()
        far = builder.stream("far").select_key(first).repartition(name="one").select_key(first).repartition(name="two")
        near = builder.stream("near").select_key(first).repartition(name="three")
        far.join(near, first, within=5).to("out")
        assert stages(builder.build()) == [
            (["far", "near"], [], ["one-repartition", "three-repartition"]),
            ([], ["one-repartition"], ["two-repartition"]),
            ([], ["two-repartition", "three-repartition"], []),
        ]

    def test_paths_that_part_and_meet_again_are_as_deep_as_the_longer_one(self) -> None:
        builder = StreamsBuilder()
        moved = builder.stream("in").select_key(first).repartition(name="one")
        left = moved.select_key(first).repartition(name="two").select_key(first).repartition(name="four")
        right = moved.select_key(first).repartition(name="three").select_key(first).repartition(name="five")
        left.join(right, first, within=5).to("out")
        assert stages(builder.build()) == [
            (["in"], [], ["one-repartition"]),
            ([], ["one-repartition"], ["two-repartition", "three-repartition"]),
            ([], ["two-repartition", "three-repartition"], ["four-repartition", "five-repartition"]),
            ([], ["four-repartition", "five-repartition"], []),
        ]

    def test_a_foreign_key_join_subscribes_and_gets_responses(self) -> None:
        builder = StreamsBuilder()
        builder.table("orders").join(builder.table("customers"), first, on=lambda order: order, name="fk").to_stream().to("out")
        ask, answer = "fk-subscription-registration-topic", "fk-subscription-response-topic"
        assert stages(builder.build()) == [
            (["orders", "customers"], [], [ask, answer]),
            ([], [ask], [answer]),
            ([], [answer], []),
        ]

    def test_foreign_key_joins_in_a_row_follow_each_other(self) -> None:
        builder = StreamsBuilder()
        one = builder.table("a").join(builder.table("b"), first, on=lambda value: value, name="one")
        one.join(builder.table("c"), first, on=lambda value: value, name="two").to_stream().to("out")
        depths = {read: stage.depth for stage in plan(builder.build()).stages for read in stage.reads}
        order = [f"{name}-subscription-{part}-topic" for name in ("one", "two") for part in ("registration", "response")]
        assert [depths[topic] for topic in order] == sorted(depths.values())
        assert depths[order[3]] > depths[order[2]] > depths[order[1]] > depths[order[0]]

    def test_a_global_table_belongs_to_no_stage(self) -> None:
        builder = StreamsBuilder()
        rates = builder.global_table("rates", store="rates")
        builder.stream("in").join(rates, first, on=first).to("out")
        made = plan(builder.build())
        assert made.global_topics == ("rates",)
        assert [stage.topics for stage in made.stages] == [("in",)]
        assert "global tables from: rates" in str(made)

    def test_patterns_and_choosing_sinks_are_named(self) -> None:
        builder = StreamsBuilder()
        builder.stream(re.compile("in-.*")).to(lambda key, value, context: "out", name="route")
        (stage,) = plan(builder.build()).stages
        assert (stage.topics, stage.sinks) == (("in-.*",), ("(route chooses)",))

    def test_a_plan_prints_what_there_is(self) -> None:
        stage = Stage(0, ("s",), ("s", "n"), ("in",), (), (), (), ())
        assert str(stage) == "stage 0 (anywhere)\n  topics: in\n  nodes: 2"
        assert str(Plan((stage,), (), "abc")) == f"plan abc: 1 stages, 0 exchanges\n{stage}\n"


class TestFingerprint:
    def built(self, store: Any = "counts", *, more: bool = False) -> Topology:
        builder = StreamsBuilder()
        stream = builder.stream("in", value=str).group_by_key()
        stream.count(store=store)
        if more:
            stream.count(store="more")
        return builder.build()

    def test_is_the_same_for_the_same_topology(self) -> None:
        assert fingerprint(self.built()) == fingerprint(self.built()) == plan(self.built()).fingerprint

    @pytest.mark.parametrize(
        "store", ["other", Store("counts", key=int), Store("counts", ttl="1s"), Store("counts", history="1h")]
    )
    def test_changes_with_a_store(self, store: Any) -> None:
        assert fingerprint(self.built(store)) != fingerprint(self.built())

    def test_does_not_change_from_run_to_run_where_a_function_chooses_topics(self) -> None:
        def built() -> Topology:
            builder = StreamsBuilder()
            builder.stream("in").to(lambda key, value, context: "out")
            return builder.build()

        first_run, second_run = built(), built()
        assert fingerprint(first_run) == fingerprint(second_run)

    def test_changes_with_the_graph(self) -> None:
        assert fingerprint(self.built(more=True)) != fingerprint(self.built())

    def test_does_not_depend_on_the_order_of_store_declarations(self) -> None:
        one, two = key_value_store("one"), key_value_store("two")
        assert fingerprint(Topology().add_state_store(one).add_state_store(two)) == fingerprint(
            Topology().add_state_store(two).add_state_store(one)
        )
