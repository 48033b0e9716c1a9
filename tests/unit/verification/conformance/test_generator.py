"""The generator is a function of seed and index, and its cases survive a round trip to the oracle."""

from collections import Counter

from verification.conformance import generator
from verification.conformance.coverage import features
from verification.conformance.regressions import regressions
from verification.conformance.spec import Advance, Pipe, durations, from_json, to_json


def test_same_seed_gives_the_same_cases() -> None:
    assert [to_json(case) for case in generator.generate(7, 60)] == [to_json(case) for case in generator.generate(7, 60)]


def test_a_case_does_not_depend_on_the_cases_before_it() -> None:
    assert list(generator.generate(7, 40))[33] == generator.case(7, 33)


def test_another_seed_gives_other_cases() -> None:
    assert [case.ops for case in generator.generate(1, 20)] != [case.ops for case in generator.generate(2, 20)]


def test_cases_survive_json() -> None:
    for case in [*generator.generate(3, len(generator.FOCI)), *regressions()]:
        assert from_json(to_json(case)) == case
        assert "\n" not in to_json(case)


def test_operations_refer_to_earlier_ones_only() -> None:
    for case in generator.generate(5, 150):
        known: set[str] = set()
        for op in case.ops:
            assert {name.split(".")[0] for name in op.inputs} <= known
            known.add(op.id)


def test_input_goes_to_topics_that_the_case_declares_and_never_before_the_epoch() -> None:
    for case in generator.generate(5, 150):
        for step in case.steps:
            if isinstance(step, Pipe):
                assert step.topic in case.topics
                assert step.at >= 0
            else:
                assert isinstance(step, Advance)
                assert step.ms > 0


def test_every_focus_comes_up_as_often_as_any_other() -> None:
    seen = Counter(
        feature for case in generator.generate(1, 3 * len(generator.FOCI)) for op in case.ops for feature in features(op)
    )
    assert {f"windows:{kind}" for kind in ("tumbling", "hopping", "sliding", "session", "unlimited")} <= seen.keys()
    assert {f"stream_join_stream:{kind}" for kind in ("inner", "left", "outer")} <= seen.keys()
    assert {f"table_join_foreign:{kind}" for kind in ("inner", "left")} <= seen.keys()
    assert min(seen[name] for name in ("stream_map", "table_suppress", "cogrouped_aggregate", "topology_add_global_store")) >= 3


def test_durations_include_all_window_edges() -> None:
    case = next(case for case in regressions() if case.id == "hopping windows overlap")
    assert durations(case) == {10, 4, 3, 13}


def test_fixed_cases_have_unique_names() -> None:
    names = [case.id for case in regressions()]
    assert len(names) == len(set(names))
    assert len(names) >= 40
