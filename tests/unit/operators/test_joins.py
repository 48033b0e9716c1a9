"""Stream–stream joins. Expected results are those of Kafka Streams 4.3.1 on the same input."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from penstock.errors import ProcessingError
from penstock.operators.joins import JoinWindowStore, StreamStreamJoin, join_store_specs
from penstock.records import NO_HEADERS
from penstock.serdes import Int64, String
from penstock.state import StoreKind
from penstock.timing import JoinWindows
from tests.unit.operators.join_host import MemoryHost, Out


def combine(key: str, left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


class Join(MemoryHost):
    """A join of two streams of strings."""

    def __init__(self, kind: Any, before: int, after: int, grace: int = 0, rebind: bool = False, joiner: Any = combine) -> None:
        windows, outer = JoinWindows(before, after, grace), None if kind == "inner" else "outer"
        specs = join_store_specs(windows, "left", "right", outer, key=String(), left_value=String(), right_value=String())
        super().__init__(*specs, rebind=rebind)
        for side in ("left", "right"):
            join = StreamStreamJoin(kind, side == "left", "left", "right", outer, windows, joiner)
            self.add(side, JoinWindowStore(side), join)

    def left(self, key: str | None, value: str | None, timestamp: int) -> list[Out]:
        return self.pipe("left", key, value, timestamp)

    def right(self, key: str | None, value: str | None, timestamp: int) -> list[Out]:
        return self.pipe("right", key, value, timestamp)


@pytest.fixture(params=[False, True], ids=["bound once", "bound for every record"])
def rebind(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_both_bounds_of_a_window_are_inclusive(rebind: bool) -> None:
    join = Join("inner", before=5, after=10, rebind=rebind)
    assert join.left("a", "L", 100) == []
    assert join.right("a", "94", 94) == []
    assert join.right("a", "95", 95) == [("a", "L+95", 100)]
    assert join.right("a", "110", 110) == [("a", "L+110", 110)]
    assert join.right("a", "111", 111) == []
    assert join.left("a", "M", 105) == [("a", "M+110", 110), ("a", "M+111", 111)]


def test_keys_do_not_mix() -> None:
    join = Join("inner", 10, 10)
    join.left("a", "A", 0)
    join.left("ab", "AB", 0)
    assert join.right("a", "x", 0) == [("a", "A+x", 0)]


def test_duplicates_all_join_in_order_of_arrival(rebind: bool) -> None:
    join = Join("inner", 10, 10, rebind=rebind)
    join.left("a", "late", 5)
    for value in ("1", "2", "1"):
        join.left("a", value, 0)
    assert [out.value for out in join.right("a", "r", 0)] == ["1+r", "2+r", "1+r", "late+r"]


def test_the_result_has_the_later_time_and_the_current_records_headers() -> None:
    join = Join("inner", 10, 10)
    join.pipe("left", "a", "L", 7, (("h", b"left"),))
    assert join.pipe("right", "a", "R", 3, (("h", b"right"),)) == [("a", "L+R", 7)]
    assert join.headers == [(("h", b"right"),)]


def test_a_negative_side_puts_the_window_wholly_after_the_record() -> None:
    join = Join("inner", before=-5, after=10, grace=10)
    join.right("a", "4", 4)
    join.right("a", "5", 5)
    join.right("a", "10", 10)
    assert [out.value for out in join.left("a", "L", 0)] == ["L+5", "L+10"]


@pytest.mark.parametrize("kind", ["inner", "left", "outer"])
def test_records_older_than_window_and_grace_are_not_found(kind: Any) -> None:
    join = Join(kind, 10, 10, grace=5)
    join.left("a", "kept", 100)
    join.left("x", "moves the left side's time", 124)
    assert ("a", "kept+r", 100) in join.right("a", "r", 95)
    join.left("x", "moves it again", 125)
    assert [out.value for out in join.right("a", "r", 95)] == ([] if kind != "outer" else ["None+r"])


def test_a_record_too_old_to_be_kept_is_counted_but_still_looks_for_partners() -> None:
    join = Join("inner", 10, 10)
    join.right("a", "R", 0)
    join.left("x", "moves the left side's time", 20)
    assert join.left("a", "late", 0) == [("a", "late+R", 0)]
    assert join.drops == ["expired"]
    assert join.right("a", "R", 0) == []


def test_null_keys_and_values_are_dropped_by_an_inner_join() -> None:
    join = Join("inner", 10, 10)
    assert join.left(None, "v", 0) == join.left("a", None, 0) == join.right(None, None, 0) == []
    assert len(join.drops) == 3
    assert join.right("a", "r", 0) == []


def test_a_left_join_emits_null_keys_of_its_left_side_immediately() -> None:
    join = Join("left", 10, 10)
    assert join.left(None, "L", 5) == [(None, "L+None", 5)]
    assert join.right(None, "R", 5) == []
    assert join.left(None, None, 5) == join.left("a", None, 5) == []
    assert len(join.drops) == 3


def test_an_outer_join_emits_null_keys_of_both_sides_immediately() -> None:
    join = Join("outer", 10, 10)
    assert join.left(None, "L", 5) == [(None, "L+None", 5)]
    assert join.right(None, "R", 5) == [(None, "None+R", 5)]


def test_a_record_with_a_null_key_advances_the_time_but_emits_no_other_record(rebind: bool) -> None:
    join = Join("left", 10, 10, rebind=rebind)
    join.left("a", "A", 0)
    assert join.left(None, "L", 50) == [(None, "L+None", 50)]
    assert join.left("b", "old", 20) == [("b", "old+None", 20)]  # its own window is closed: it need not wait
    assert join.left("b", "B", 50) == [("a", "A+None", 0)]


@pytest.mark.parametrize("grace", [0, 5])
def test_a_left_record_without_partner_is_emitted_when_its_window_closes(grace: int, rebind: bool) -> None:
    join = Join("left", before=3, after=10, grace=grace, rebind=rebind)
    assert join.left("a", "A", 0) == []
    assert join.left("b", "B", 10 + grace) == []
    assert join.left("c", "C", 11 + grace) == [("a", "A+None", 0)]
    assert join.left("d", "D", 11 + grace) == []


def test_a_left_record_with_a_partner_is_not_emitted_alone(rebind: bool) -> None:
    join = Join("left", 10, 10, rebind=rebind)
    join.left("a", "A1", 0)
    join.left("a", "A2", 0)
    join.left("b", "B", 0)
    assert [out.value for out in join.right("a", "R", 10)] == ["A1+R", "A2+R"]
    assert join.right("c", "only moves the time", 11) == [("b", "B+None", 0)]
    assert list(join.store("outer").scan()) == []


def test_a_left_join_never_emits_the_right_side_alone(rebind: bool) -> None:
    join = Join("left", 10, 10, rebind=rebind)
    join.right("a", "R", 0)
    assert join.left("a", "L", 1) == [("a", "L+R", 1)]
    assert join.right("b", "R", 100) == []
    assert list(join.store("outer").scan()) == []


def test_an_outer_join_emits_right_before_left_and_by_each_sides_window(rebind: bool) -> None:
    join = Join("outer", before=5, after=10, rebind=rebind)
    join.left("a", "A", 100)
    join.right("b", "B", 100)
    assert join.left("c", "C", 106) == []  # b's window has closed, but a left record only checks its own side's window
    assert join.right("d", "D", 111) == [("b", "None+B", 100), ("a", "A+None", 100)]
    assert join.left("e", "E", 112) == []


def test_an_outer_join_stops_scanning_when_both_sides_are_open(rebind: bool) -> None:
    join = Join("outer", before=10, after=10, rebind=rebind)
    join.left("a", "A", 0)
    for timestamp in (5, 6):
        join.left("l", "L", timestamp)
        join.right("r", "R", timestamp)
    assert join.left("b", "B", 11) == [("a", "A+None", 0)]
    assert join.left("b", "B", 17) == [
        ("r", "None+R", 5),
        ("l", "L+None", 5),
        ("r", "None+R", 6),
        ("l", "L+None", 6),
    ]


def test_duplicates_without_partner_are_emitted_in_order_of_arrival(rebind: bool) -> None:
    join = Join("left", 10, 10, rebind=rebind)
    for value in ("2", "1", "2"):
        join.left("a", value, 0)
    assert [out.value for out in join.left("b", "B", 11)] == ["2+None", "1+None", "2+None"]


def test_a_record_without_partner_has_its_own_time_and_the_headers_that_advanced_the_time() -> None:
    join = Join("left", 10, 10)
    join.pipe("left", "a", "A", 3, (("h", b"a"),))
    assert join.pipe("right", "b", "B", 50, (("h", b"b"),)) == [("a", "A+None", 3)]
    assert join.headers == [(("h", b"b"),)]


def test_an_out_of_order_record_emits_no_others(rebind: bool) -> None:
    join = Join("left", 10, 10, rebind=rebind)
    join.left("a", "A", 0)
    join.right(None, "moves the time", 40)
    assert join.left("b", "B", 39) == []
    assert join.left("b", "B", 40) == [("a", "A+None", 0)]


def test_a_late_record_without_partner_is_emitted_immediately(rebind: bool) -> None:
    join = Join("outer", before=2, after=10, rebind=rebind)
    join.left("x", "X", 100)
    assert join.left("a", "closed", 89) == [("a", "closed+None", 89)]
    assert join.left("a", "open", 90) == []
    assert join.right("b", "closed", 97) == [("b", "None+closed", 97)]
    assert join.right("b", "open", 98) == []


def test_the_scan_of_waiting_records_continues_where_it_stopped(rebind: bool) -> None:
    """Kafka Streams takes the last record it visited as the earliest: b is emitted later than its window closes."""
    join = Join("left", 10, 10, rebind=rebind)
    join.left("a", "A", 0)
    join.left("b", "B", 5)
    join.left("c", "C", 10)
    assert join.left("d", "D", 11) == [("a", "A+None", 0)]
    assert join.left("e", "E", 16) == []
    assert join.left("f", "F", 21) == [("b", "B+None", 5), ("c", "C+None", 10)]


@pytest.mark.parametrize("kind", ["inner", "outer"])
def test_a_failing_joiner_is_reported_with_its_record(kind: Any) -> None:
    join = Join(kind, 10, 10, joiner=lambda key, left, right: left[1000])
    join.left("a", "A", 0)
    with pytest.raises(ProcessingError, match="index out of range"):
        join.right("a", "R", 0)


def test_records_whose_emission_failed_are_emitted_again(rebind: bool) -> None:
    calls = []

    def joiner(key: str, left: str | None, right: str | None) -> str:
        calls.append(left)
        if left == "bad" and calls.count("bad") == 1:
            raise ValueError(left)
        return combine(key, left, right)

    join = Join("left", 10, 10, joiner=joiner, rebind=rebind)
    join.go_on = True
    for key, value in (("a", "ok"), ("b", "ok"), ("c", "bad"), ("d", "ok")):
        join.left(key, value, 0)
    assert [out.key for out in join.left("e", "E", 11)] == ["a", "b"]
    assert [out.key for out in join.left("f", "F", 12)] == ["b", "c", "d"]
    assert [str(error) for error in join.failures] == ["bad"]


def test_an_error_from_downstream_passes_through() -> None:
    for kind in ("inner", "left"):
        join = Join(kind, 10, 10)
        join.left("a", "A", 0)

        def fail(*record: Any) -> None:
            raise ProcessingError("downstream")

        operator = StreamStreamJoin("inner", False, "left", "right", None, JoinWindows(10, 10), combine)
        chains = [operator.bind(join, fail), JoinWindowStore("right").bind(join, fail)]
        if kind == "left":
            chains.append(
                StreamStreamJoin("left", False, "left", "right", "outer", JoinWindows(10, 10), combine).bind(join, fail)
            )
        for process in chains:
            with pytest.raises(ProcessingError, match="downstream"):
                process("a", "R", 0, NO_HEADERS)
        assert join.failures == []


def test_an_unattributed_error_names_the_node() -> None:
    host = Join("inner", 10, 10)
    process = JoinWindowStore("right").bind(host, lambda *record: record[1000])
    with pytest.raises(ProcessingError):
        process("a", "R", 0, NO_HEADERS)
    assert len(host.failures) == 1


def test_the_stores_of_a_join() -> None:
    windows = JoinWindows(5_000, 10_000, 1_000)
    config = (("retention.ms", "1"), ("cleanup.policy", "compact"))
    left, right, outer = join_store_specs(
        windows, "l", "r", "o", key=String(), left_value=String(), right_value=Int64(), logged=False, changelog_config=config
    )
    assert (left.name, left.kind, left.retention_ms, left.window_size_ms) == ("l", StoreKind.WINDOW, 16_000, 15_000)
    assert left.retain_duplicates
    assert (left.cached, left.logged) == (False, False)
    assert left.changelog_config == (("retention.ms", "1"), ("cleanup.policy", "delete"))
    assert (right.name, right.value) == ("r", Int64())
    assert (outer.name, outer.kind, outer.logged, outer.changelog_config) == ("o", StoreKind.RAW, False, config)
    assert len(join_store_specs(windows, "l", "r", None, key=String(), left_value=String(), right_value=String())) == 2


def test_operators_are_picklable() -> None:
    join = StreamStreamJoin("outer", True, "l", "r", "o", JoinWindows(1, 2, 3), max)
    assert pickle.loads(pickle.dumps(join)) == join
