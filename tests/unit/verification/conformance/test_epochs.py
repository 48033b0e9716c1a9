"""The epoch oracle: its cases are a function of seed and index, its judge is the test driver, and it finds differences."""

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Topology
from penstock.state import RawLayout
from penstock.testing import TopologyTestDriver
from verification.conformance.build import Effects, build
from verification.conformance.epochs import generator
from verification.conformance.epochs.compare import differences
from verification.conformance.epochs.course import Feed, Run, Start, course
from verification.conformance.epochs.dsl import EpochDsl
from verification.conformance.epochs.host import Outcome, play, shards_of
from verification.conformance.epochs.internals import HANDLERS, Application, contents_of, kept_specs, specs_of
from verification.conformance.epochs.judge import NO_CAUSE, Cause, Judge, Judged, Sent
from verification.conformance.epochs.library import supplier
from verification.conformance.epochs.planted import MUTANTS
from verification.conformance.epochs.router import Router, is_well_ordered, merged, shard_of
from verification.conformance.epochs.spec import Cut, EpochCase, Input, Restart
from verification.conformance.spec import Advance, Op, Settings, Step

TEXT = ("string", "string")
COUNT = (
    Op("n0", "builder_stream", (), {"topic": "in"}),
    Op("n1", "stream_group_by_key", ("n0",)),
    Op("n2", "grouped_count", ("n1",), {"store": {"name": "counts"}}),
    Op("n3", "table_to_stream", ("n2",)),
    Op("n4", "stream_to", ("n3",), {"topic": "out"}),
)


def _ends_late(case: EpochCase) -> bool:
    """Whether a record closes the windows of its shard, and one of the next epoch, which is the last, belongs to them."""
    closing, cut, late = case.steps[-3:]
    if not (isinstance(closing, Input) and isinstance(late, Input) and cut == Cut()):
        return False
    return replace(closing, at=late.at) == late and closing.at > max(
        step.at for step in case.steps[:-3] if isinstance(step, Input)
    )


def case_of(*steps: Step, ops: tuple[Op, ...] = COUNT, key: str = "string", **rest: Any) -> EpochCase:
    return EpochCase("test", ops, steps, {"in": (key, "string")}, **rest)


def record(key: str | None, value: str = "v", at: int = 0, partition: int = 0, blanks: int = 0) -> Input:
    return Input("in", key, value, at, partition=partition, blanks=blanks)


def topology_of(case: EpochCase, folder: Path) -> Topology:
    return build(case, Effects(folder), supplier, EpochDsl)


def runs_of(case: EpochCase, folder: Path) -> list[Run]:
    return [action for action in course(case, topology_of(case, folder)) if isinstance(action, Run)]


class TestGenerator:
    def test_a_case_depends_on_seed_and_index_alone(self) -> None:
        assert list(generator.generate(7, 40))[33] == generator.case(7, 33)
        assert [case.ops for case in generator.generate(1, 20)] != [case.ops for case in generator.generate(2, 20)]

    def test_lanes_are_never_more_than_shards(self) -> None:
        for case in generator.generate(3, 150):
            starts = [step.lanes for step in case.steps if isinstance(step, Restart)]
            assert 1 <= max([case.lanes, *starts]) <= min(8, case.shards)

    def test_it_also_generates_what_the_other_generator_cannot(self) -> None:
        cases = list(generator.generate(1, 250))
        inputs = [step for case in cases for step in case.steps if isinstance(step, Input)]
        assert {step.partition for step in inputs} == {0, 1, 2, 3}
        assert any(step.blanks for step in inputs)
        assert any(step.times > 1 for step in inputs)
        assert any(step.value == "" for step in inputs)
        processors = Counter(op.args.get("fn") for case in cases for op in case.ops)
        assert min(processors[name] for name in ("pairs", "values", "all", "latest", "none")) >= 3
        starts = Counter(step.stores for case in cases for step in case.steps if isinstance(step, Restart))
        assert min(starts[stores] for stores in ("kept", "deleted", "older", "ahead")) >= 10
        assert {case.shards for case in cases} == {1, 2, 3, 4, 5, 8}
        assert {case.in_flight for case in cases} == {0, 1, 2}
        assert sum(step.fails for case in cases if case.in_flight for step in case.steps if isinstance(step, Cut)) >= 20

    def test_no_exchange_carries_values_whose_type_only_the_next_function_says(self, tmp_path: Path) -> None:
        cases = generator.generate(9, 250)
        not_said = [(case, op) for case in cases for op in case.ops if op.args.get("made") == "not_said"]
        assert len(not_said) >= 3
        for case, op in not_said:
            assert f"{op.args['store']['name']}-repartition-sink" not in topology_of(case, tmp_path).nodes

    def test_windows_in_columns_get_a_late_record_in_an_epoch_behind_the_one_that_closes_them(self) -> None:
        for seed in (1, 2, 20261118):
            made = [generator.case(seed, index) for index in range(generator.OFTEN - 1, 200, generator.OFTEN)]
            late = [case for case in made if case.columns and case.settings.caching and _ends_late(case)]
            assert len(late) > 15

    def test_stores_have_changelogs_where_a_start_may_need_them(self) -> None:
        for case in generator.generate(4, 100):
            if any(isinstance(step, Restart) for step in case.steps):
                assert all("logging" not in op.args.get("store", {}) for op in case.ops)


class TestRouter:
    def test_the_lowest_time_at_the_head_of_a_partition_is_next_and_ties_go_by_partition(self, tmp_path: Path) -> None:
        case = case_of()
        router = Router(topology_of(case, tmp_path), case.topics, 1)
        steps = [record("a", "1", 5, 1), record("a", "2", 3, 1), record("a", "3", 4), record("a", "4", 5)]
        arrived = [router.arrive(step) for step in steps]
        in_order = merged(arrived, {("in", 0): 0, ("in", 1): 1})
        assert [one.value for one in in_order] == [b"3", b"4", b"1", b"2"]
        assert not is_well_ordered(arrived)
        assert is_well_ordered(arrived[:1] + arrived[2:])
        assert is_well_ordered(arrived[:2])

    def test_a_key_has_one_shard_in_every_encoding(self, tmp_path: Path) -> None:
        case = case_of(ops=(Op("n0", "builder_stream", (), {"topic": "in", "key": "json"}),), key="json")
        router = Router(topology_of(case, tmp_path), case.topics, 1000)
        arrived = [router.arrive(record("a", blanks=blanks)) for blanks in range(4)]
        assert {one.shard for one in arrived} == {shard_of(b'{"k":"a"}', 1000)}
        assert len({one.key for one in arrived}) == 4

    def test_a_record_without_a_key_is_routed_by_its_partition(self, tmp_path: Path) -> None:
        case = case_of()
        router = Router(topology_of(case, tmp_path), case.topics, 3)
        assert [router.arrive(record(None, partition=partition)).shard for partition in range(5)] == [0, 1, 2, 0, 1]


class TestCourse:
    def test_epochs_end_at_cuts_and_before_the_order_becomes_undefined(self, tmp_path: Path) -> None:
        steps = (
            record("a", "1", 5),
            record("b", "2", 6, 1),
            Cut(),
            record("a", "3", 4),
            record("b", "4", 7, 1),
            record("a", "5", 3),
        )
        case = case_of(*steps)
        runs = [action for action in course(case, topology_of(case, tmp_path)) if isinstance(action, Run)]
        assert [[one.value for one in run.records] for run in runs] == [[b"1", b"2"], [b"3", b"4"], [b"5"]]

    def test_an_attempt_with_more_records_comes_before_two_epochs(self, tmp_path: Path) -> None:
        case = case_of(record("a", "1"), record("a", "2"), record("a", "3"), Cut("more"))
        runs = [action for action in course(case, topology_of(case, tmp_path)) if isinstance(action, Run)]
        assert [([one.value for one in run.records], [len(records) for records in run.before]) for run in runs] == [
            ([b"1"], [3]),
            ([b"2", b"3"], []),
            ([], []),
        ]

    def test_an_epoch_that_is_ahead_at_a_start_runs_again_after_it(self, tmp_path: Path) -> None:
        case = case_of(record("a", "1"), Restart(1, "ahead"), Advance(5))
        actions = list(course(case, topology_of(case, tmp_path)))
        start = next(action for action in actions if isinstance(action, Start))
        assert start.ahead is not None
        assert [one.value for one in start.ahead] == [b"1"]
        runs = [action for action in actions if isinstance(action, Run)]
        assert [([one.value for one in run.records], run.wall_clock) for run in runs] == [([b"1"], 0), ([], 5), ([], 5)]

    def test_each_record_of_the_left_table_of_a_foreign_key_join_is_an_epoch(self, tmp_path: Path) -> None:
        ops = (
            Op("n0", "builder_table", (), {"topic": "in"}),
            Op("n1", "builder_table", (), {"topic": "right"}),
            Op("n2", "table_join_foreign", ("n0", "n1"), {"kind": "inner", "fn": "pair", "on": "fk_head"}),
        )
        rights = [Input("right", "a", "v", at) for at in (1, 2)]
        case = replace(case_of(*rights, record("a", at=3), record("b", at=4), ops=ops), topics={"in": TEXT, "right": TEXT})
        assert [len(run.records) for run in runs_of(case, tmp_path)] == [2, 1, 1]

    def test_each_record_that_reaches_an_exchange_from_several_stages_is_an_epoch(self, tmp_path: Path) -> None:
        ops = (
            Op("n0", "builder_stream", (), {"topic": "in"}),
            Op("n1", "stream_repartition", ("n0",)),
            Op("n2", "stream_merge", ("n0", "n1")),
            Op("n3", "stream_repartition", ("n2",)),
        )
        alone = case_of(record("a", at=3), record("b", at=4), ops=ops[:2])
        assert [len(run.records) for run in runs_of(alone, tmp_path)] == [2]
        assert [len(run.records) for run in runs_of(replace(alone, ops=ops), tmp_path)] == [1, 1]


def test_what_caches_emit_goes_on_in_the_order_of_the_shards_that_send_it() -> None:
    sessions = {"windows": {"type": "session", "size": 10}, "kept": "sessions", "store": {"name": "sessions"}}
    hopping = {"type": "hopping", "size": 10, "advance": 3, "grace": 5}
    ops = (
        Op("n0", "builder_stream", (), {"topic": "in"}),
        Op("n1", "own_mutating", ("n0",), {"key": "string", "failures": "drop", **sessions}),
        Op("n2", "stream_select_key", ("n1",), {"fn": "by_value"}),
        Op("n3", "stream_group_by_key", ("n2",), {"key": "string", "value": "string"}),
        Op("n4", "grouped_windowed_by", ("n3",), {"windows": hopping}),
        Op("n5", "windowed_aggregate", ("n4",), {"fn": "keyed_concat", "init": "empty", "store": {"caching": False}}),
        Op("n6", "table_group_by", ("n5",), {"fn": "head_length", "key": "string", "value": "long"}),
        Op("n7", "regrouped_agg", ("n6",), {"fields": {"sum": "sum"}, "store": {"name": "sums", "value": "json"}}),
        Op("n8", "table_to_stream", ("n7",)),
        Op("n9", "stream_to", ("n8",), {"topic": "out"}),
    )
    headed = replace(record("a", at=48), value=None, headers=(("i", ""),))  # only one shard's records have headers
    case = case_of(headed, record("c", "c", at=63), ops=ops, shards=2, settings=Settings(caching=True))
    outcome = play(case)
    assert differences(case, outcome) == []
    assert len(outcome.actual) == 1


def is_comparable(case: EpochCase, topology: Topology) -> bool:
    """Whether the test driver is comparable: it has one time for all topics of a pattern, and with one shard for all nodes.

    Behind an exchange, it names that where a record was read.
    """
    ask_for_time = {"stream_timer", "late_stream", "once_stream"} if case.shards == 1 else set()
    asks_for_it = any(op.args.get("fn") in {"metadata", *ask_for_time} for op in case.ops)
    by_pattern = any("pattern" in op.args and "timestamp" in op.args for op in case.ops)
    return not by_pattern and not (asks_for_it and len(topology.groups()) > 1)


class TestJudge:
    @pytest.mark.parametrize("shards", [1, 3])
    def test_it_is_the_test_driver_with_as_many_shards(self, tmp_path: Path, shards: int) -> None:
        compared = 0
        for number, generated in enumerate(generator.generate(11, 60)):
            steps = tuple(replace(step, partition=0) if isinstance(step, Input) else step for step in generated.steps)
            case = replace(generated, steps=steps, shards=shards, settings=replace(generated.settings, caching=False))
            folder = tmp_path / str(number)
            folder.mkdir()
            topology = topology_of(case, folder)
            if is_comparable(case, topology):
                compared += 1
                assert_is_the_driver(case, topology, folder)
        assert compared > 40

    def test_an_exchange_routes_to_the_shard_of_the_new_key(self, tmp_path: Path) -> None:
        ops = (COUNT[0], Op("n1", "stream_group_by", ("n0",), {"fn": "by_value"}), *COUNT[2:])
        case = case_of(*(record(key, value) for key in "abcd" for value in "xy"), ops=ops, shards=4)
        topology = topology_of(case, tmp_path)
        judge = judged(case, topology)
        [counts] = kept_specs(topology, specs_of(topology, caching=False))
        kept = [{key for key, *_ in shard[counts.name]} for shard in judge.contents([counts])]
        assert {repr(key) for key in "xy"} == set().union(*kept)
        for key in "xy":
            assert repr(key) in kept[shard_of(key.encode(), 4)]
        assert [row.cause.hops for row in judge.outputs] == [1] * 8

    def test_arbitrary_keys_of_a_processor_are_counted_by_shard(self, tmp_path: Path) -> None:
        ops = (
            COUNT[0],
            Op("n1", "builder_add_state_store", (), {"name": "own", "kind": "key_value", "key": "string", "value": "long"}),
            Op("n2", "stream_process", ("n0",), {"fn": "all", "uses": "own", "stores": ["own"]}),
            Op("n3", "stream_to", ("n2",), {"topic": "out"}),
        )
        case = case_of(*(record(None, partition=partition) for partition in (0, 1, 1)), ops=ops, shards=2)
        assert [row.sent.value for row in judged(case, topology_of(case, tmp_path)).outputs] == [b"v#1", b"v#1", b"v#2"]


def judged(case: EpochCase, topology: Topology) -> Judge:
    judge = Judge(case, topology, specs_of(topology, caching=False), case.settings.wall_clock)
    for action in course(case, topology):
        if isinstance(action, Feed):
            judge.feed(action.record)
        elif isinstance(action, Run):
            judge.epoch(action.records, {("in", number): number for number in range(9)}, action.wall_clock)
    return judge


def assert_is_the_driver(case: EpochCase, topology: Topology, folder: Path) -> None:
    specs = specs_of(topology, caching=False)
    # A buffer remembers where a record was read; behind an exchange the driver names that.
    kept = [spec for spec in kept_specs(topology, specs) if spec.layout not in {RawLayout.HELD, RawLayout.WAITING}]
    places = sorted({(step.topic, step.partition) for step in case.steps if isinstance(step, Input)})
    origins = {place: number for number, place in enumerate(places)}
    judge = Judge(case, build(case, Effects(folder), supplier, partial(EpochDsl, is_judge=True)), specs, case.settings.wall_clock)
    now = case.settings.wall_clock
    options: dict[str, Any] = {"wall_clock": now, "caching": False, "shards": case.shards}
    with TopologyTestDriver(topology, processing_errors=HANDLERS[case.failures], **options) as driver:
        driver.seed = None  # processors live as long as the driver, and as the judge's
        for action in course(case, topology):
            failures = []
            try:
                if isinstance(action, Run):
                    judge.epoch(action.records, origins, action.wall_clock)
                elif isinstance(action, Feed):
                    judge.feed(action.record)
            except Exception as error:  # noqa: BLE001 - both have to fail
                failures.append(error)
            try:
                if isinstance(action, Run):
                    driver.advance_wall_clock(action.wall_clock - now)
                    now = action.wall_clock
                    for one in merged(action.records, origins):
                        driver.pipe_raw(one.origin[0], one.key, one.value, one.timestamp, one.headers)
                elif isinstance(action, Feed):
                    one = action.record
                    driver.pipe_raw(one.origin[0], one.key, one.value, one.timestamp, one.headers)
            except Exception as error:  # noqa: BLE001 - both have to fail
                failures.append(error)
            assert len(failures) in {0, 2}, (case.id, failures)
            if failures:
                return
        sent = {topic: [Sent(*row[:5]) for row in rows] for topic, rows in driver._outputs.items() if rows}
        expected: dict[str, list[Sent]] = {}
        for row in judge.outputs:
            expected.setdefault(row.sent.topic, []).append(row.sent._replace(partition=None))
        assert expected == sent, case.id
        assert judge.contents(kept) == [contents_of(driver._state, kept, shard) for shard in range(case.shards)], case.id


def sent_by(shard: int, value: bytes, key: bytes = b"k", hops: int = 0) -> Judged:
    return Judged(Sent("out", key, value, 0, ()), shard, Cause(("in", 0), 0, hops) if hops >= 0 else NO_CAUSE)


def found(expected: list[Judged], actual: list[bytes]) -> list[str]:
    outcome = Outcome(expected=expected, actual=[Sent("out", b"k", value, 0, ()) for value in actual])
    return [difference.kind for difference in differences(case_of(), outcome)]


class TestCompare:
    def test_a_keys_rows_come_in_the_order_of_their_shard(self) -> None:
        one_shard = [sent_by(0, b"1", hops=1), sent_by(0, b"2", hops=1)]
        assert found(one_shard, [b"1", b"2"]) == []
        assert found(one_shard, [b"2", b"1"]) == ["output"]
        assert found(one_shard, [b"1"]) == ["output"]

    def test_rows_of_several_shards_may_interleave_but_not_be_reordered(self) -> None:
        two_shards = [sent_by(0, b"1", hops=1), sent_by(0, b"2", hops=1), sent_by(1, b"3", hops=1)]
        assert found(two_shards, [b"3", b"1", b"2"]) == []
        assert found(two_shards, [b"2", b"3", b"1"]) == ["output"]
        assert found(two_shards, [b"1", b"3", b"3"]) == ["output"]

    def test_rows_of_one_partition_come_in_its_order_whatever_their_shards(self) -> None:
        assert found([sent_by(0, b"1"), sent_by(1, b"2")], [b"2", b"1"]) == ["output"]

    def test_rows_of_a_stage_come_before_those_of_the_next_one_in_the_same_epoch(self) -> None:
        stages = [(1, 0), (1, 1), (1, 0), (2, 0)]
        rows = [sent_by(0, b"%d" % number, hops=1)._replace(when=when) for number, when in enumerate(stages)]
        assert found(rows, [b"0", b"2", b"1", b"3"]) == []
        assert found(rows, [b"0", b"1", b"2", b"3"]) == ["output"]
        assert found(rows, [b"0", b"2", b"3", b"1"]) == ["output"]

    def test_stores_are_compared_shard_by_shard(self) -> None:
        expected = [{"store": [("a", 1)]}, {"store": [("b", 1)]}]
        right = Outcome(expected_stores=expected, stores=[(range(2), {"store": [("b", 1), ("a", 1)]})])
        assert differences(case_of(), right) == []
        wrong = Outcome(expected_stores=expected, changelogs=[(range(1), {"store": [("b", 1)]}), (range(1, 2), expected[1])])
        [difference] = differences(case_of(), wrong)
        assert (difference.kind, difference.where) == ("changelog", "store")

    def test_reads_of_the_committed_epoch_are_compared(self) -> None:
        expected = [{"store": [("a", 1)]}]
        right, wrong = (expected, [(range(1), {"store": [("a", 1)]})]), (expected, [(range(1), {"store": [("a", 2)]})])
        assert differences(case_of(), Outcome(committed_reads=[right])) == []
        assert [one.kind for one in differences(case_of(), Outcome(committed_reads=[right, wrong]))] == ["committed"]

    def test_both_sides_must_fail_together(self) -> None:
        assert differences(case_of(), Outcome(failure="one", expected_failure="two")) == []
        assert [one.kind for one in differences(case_of(), Outcome(failure="one"))] == ["error"]

    def test_dropped_records_are_counted(self) -> None:
        outcome = Outcome(dropped=Counter({("node", "null key"): 1}))
        assert [one.kind for one in differences(case_of(), outcome)] == ["dropped"]


@pytest.mark.parametrize("stores", ["kept", "deleted", "older", "ahead"])
def test_a_count_survives_every_kind_of_start(stores: str) -> None:
    steps = (record("a"), Cut(copy=True), record("b"), record("a"), Cut("same", mark=True), record("b"), Restart(1, stores))
    case = case_of(*steps, record("a"), settings=Settings(caching=False))
    outcome = play(case)
    assert differences(case, outcome) == []
    assert [row.value for row in outcome.actual if row.key == b"a"] == [bytes(7) + bytes([count]) for count in (1, 2, 3)]


def test_an_attempt_fails_of_a_record_that_the_judge_has_in_a_later_epoch() -> None:
    ops = (
        Op("n0", "builder_stream", (), {"topic": "in"}),
        Op("n1", "stream_map_values", ("n0",), {"fn": "fail"}),
        Op("n2", "stream_to", ("n1",), {"topic": "out"}),
    )
    outcome = play(case_of(record("a"), record("a", "boom"), Cut("more"), ops=ops))
    assert differences(case_of(), outcome) == []
    assert outcome.failure is not None
    assert outcome.expected_failure is not None


def test_an_attempt_may_not_fail_if_its_records_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Application.run

    def run_once(application: Any, records: Any, now: int) -> Any:
        if len(records) == 2:
            raise ValueError("it fails with both")
        return run(application, records, now)

    monkeypatch.setattr(Application, "run", run_once)
    outcome = play(case_of(record("a"), record("a"), Cut("more")))
    assert [one.kind for one in differences(case_of(), outcome)] == ["error"]


class TestInFlight:
    def test_so_many_epochs_are_in_flight_while_the_next_one_runs(self) -> None:
        steps = [step for number in range(4) for step in (record("a", str(number)), Cut())]
        for in_flight, counts in ((0, []), (1, [0, 0, 1, 2, 3]), (2, [0, 0, 0, 1, 2])):
            case = case_of(*steps, in_flight=in_flight)
            outcome = play(case)
            assert differences(case, outcome) == []
            assert outcome.in_flight == (4 if in_flight else 0)
            known = [expected[0]["counts"] for expected, _ in outcome.committed_reads]
            assert known == [[("'a'", str(count), 0)] if count else [] for count in counts]

    def test_a_commit_that_fails_takes_all_of_them_back(self) -> None:
        steps = (record("a"), Cut(), record("a"), record("b"), Cut(), record("a"), Cut(fails=True), record("a"))
        case = case_of(*steps, in_flight=2, settings=Settings(caching=False))
        outcome = play(case)
        assert differences(case, outcome) == []
        assert outcome.in_flight == 2 + 2 + 1  # as they ran, as they ran again, and after that
        assert [row.value for row in outcome.actual if row.key == b"a"] == [bytes(7) + bytes([count]) for count in (1, 2, 3, 4)]

    @pytest.mark.parametrize("stores", ["kept", "deleted", "older", "ahead", "foreign"])
    def test_a_start_runs_again_what_was_not_committed(self, stores: str) -> None:
        steps = (record("a"), Cut(mark=True), record("a"), Cut(copy=True), record("b"), Cut(), record("a"), Restart(1, stores))
        case = case_of(*steps, record("a"), in_flight=2, settings=Settings(caching=False))
        outcome = play(case)
        assert differences(case, outcome) == []
        assert [row.value for row in outcome.actual if row.key == b"a"] == [bytes(7) + bytes([count]) for count in (1, 2, 3, 4)]


def test_a_case_as_wide_as_its_shards_does_not_set_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = [record("a"), record("b", partition=1), record("c", partition=2)]
    topology = topology_of(case_of(*wide), tmp_path)
    assert [shards_of(case_of(*wide, shards=shards), topology) for shards in (1, 2, 3, 4)] == [1, 2, 3, 4]
    monkeypatch.setattr("verification.conformance.epochs.host.shards_by_default", lambda topology, widths: widths["in"] + 5)
    assert [shards_of(case_of(*wide, shards=shards), topology) for shards in (1, 2, 3, 4)] == [1, 2, 8, 4]
    assert shards_of(case_of(record("a"), shards=1), topology) == 6


def test_every_bug_can_be_planted() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(names) == len(set(names)) >= 12
    sources = Path(str(penstock.__file__)).parent
    for mutant in MUTANTS:
        assert (sources / mutant.module).read_text(encoding="utf-8").count(mutant.old) == 1, mutant.name
        assert mutant.new != mutant.old
