"""The generator is a function of seed and index, and its cases survive a round trip to the oracle."""

from collections import Counter
from dataclasses import replace

from verification.conformance import generator, scale
from verification.conformance.coverage import features
from verification.conformance.regressions import regressions
from verification.conformance.spec import Advance, Case, Op, Pipe, durations, from_json, to_json


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


def test_some_cases_have_durations_that_cross_segments_of_stores() -> None:
    long = [case for case in generator.generate(11, 400) if _is_long(case)]
    assert 50 < len(long) < 130
    assert any(case.settings.caching for case in long)
    assert not any(case.settings.caching and '"type":"session"' in to_json(case) for case in long)


def _is_long(case: Case) -> bool:
    times = [step.at for step in case.steps if isinstance(step, Pipe)]
    return any(times) and all(time % scale.FACTOR == 0 for time in times)


def test_all_times_of_a_longer_case_are_longer() -> None:
    ops = (
        Op("n0", "builder_stream", (), {"topic": "in", "key": "time:string:10"}),
        Op("n1", "grouped_windowed_by", ("n0",), {"windows": {"type": "hopping", "size": 10, "advance": 3, "grace": 0}}),
        Op("n2", "windowed_count", ("n1",), {"store": {"name": "size", "retention": 10}, "key": f"time:long:{2**63 - 1}"}),
        Op("n3", "stream_join_stream", ("n0", "n0"), {"within": [5, 0], "grace": 3, "name": "start"}),
    )
    case = Case("one", ops, (Pipe("in", "a", "x", 7), Advance(9)), {"in": ("string", "string")}, probe_times=(7,))
    windows = {"type": "hopping", "size": 200_000, "advance": 60_000, "grace": 0}
    longer = scale.scaled(case)
    assert [op.args for op in longer.ops] == [
        {"topic": "in", "key": "time:string:200000"},
        {"windows": windows},
        {"store": {"name": "size", "retention": 200_000}, "key": f"time:long:{2**63 - 1}"},
        {"within": [100_000, 0], "grace": 60_000, "name": "start"},
    ]
    assert longer.steps == (Pipe("in", "a", "x", 140_000), Advance(180_000))
    assert longer.probe_times == (140_000,)
    late = replace(case, steps=(Pipe("in", "a", "x", 5_000_000),))
    assert scale.scaled(late) == late
