"""Workloads: what they expect is what their topologies give in the test driver, and a check finds what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

import penstock
from benchmarks.applications import columns_app
from benchmarks.applications.penstock_app import TOPOLOGIES, Topologies, topology
from benchmarks.workloads import WORKLOADS, Totals, Workload
from benchmarks.workloads.documents import LARGE_BYTES, document
from benchmarks.workloads.enriched import Enriched
from benchmarks.workloads.foreign_keys import ForeignKeys
from benchmarks.workloads.hopping import EARLY, Hopping, windows_of
from benchmarks.workloads.results import LastOfEachKey, OneForEachKey
from benchmarks.workloads.sessions import Sessions
from benchmarks.workloads.workload import START_MS, Expected, Result, WrongResultError
from penstock.testing import TopologyTestDriver

pytestmark = pytest.mark.slow  # whole workloads, which `make bench` checks as well

SMALL: dict[str, tuple[Workload, int]] = {
    "A": (WORKLOADS["A"], 300),
    "B": (Totals(title="", keys=100, records=0), 500),
    "C": (WORKLOADS["C"], 50),
    "D": (Enriched(users=50), 500),
    "E": (ForeignKeys(customers=20), 1_500),
    "F": (Hopping(keys=50), EARLY + 1_000),
    "G": (Sessions(keys_of_block=50, records_of_block=200), 2_000),
    "M": (Totals(title="", keys=100, records=0, depth=3), 300),
}


def results_of(workload: Workload, records: int, topologies: Topologies = TOPOLOGIES) -> tuple[list[Result], Expected]:
    inputs, expected = workload.inputs(records)
    with TopologyTestDriver(topology(workload.topology, list(workload.sources), "out", topologies)) as driver:
        sources = {source: driver.input(source, key=bytes, value=bytes) for source in workload.sources}
        for record in inputs:
            sources[record.source].pipe(record.value, key=record.key.encode(), timestamp=record.timestamp_ms)
        found = [(record.key, record.value) for record in driver.output("out", key=bytes, value=bytes).records()]
    return found, expected


@cache
def small_results(letter: str) -> tuple[list[Result], Expected]:
    return results_of(*SMALL[letter])


@pytest.mark.parametrize("letter", SMALL)
def test_the_test_driver_gives_the_expected_results(letter: str) -> None:
    results, expected = small_results(letter)
    assert results
    assert expected.check(results, keeps_late=False) == len(results)


@pytest.mark.skipif(not hasattr(penstock, "agg"), reason="this version has no expressions over columns")
@pytest.mark.parametrize("letter", "ABCDEFG")
def test_expressions_over_columns_give_the_same_results(letter: str) -> None:
    results, expected = results_of(*SMALL[letter], columns_app.TOPOLOGIES)
    assert expected.check(results, keeps_late=False) == len(results)


def test_every_workload_has_a_topology_with_columns() -> None:
    assert {workload.topology for workload in WORKLOADS.values()} == set(columns_app.TOPOLOGIES)


def without_last(results: list[Result]) -> list[Result]:
    last = results[-1][0]
    return [result for result in results if result[0] != last]


def with_one_changed(results: list[Result]) -> list[Result]:
    key, value = results[-1]
    return [
        *results,
        (key, value.replace(b"[", b"[1").replace(b'"amount":', b'"amount":1').replace(b":0", b":1") + b"0" * value.isdigit()),
    ]


@pytest.mark.parametrize("spoil", [without_last, with_one_changed])
@pytest.mark.parametrize("letter", SMALL)
def test_a_lost_or_wrong_result_is_found(letter: str, spoil: Callable[[list[Result]], list[Result]]) -> None:
    results, expected = small_results(letter)
    with pytest.raises(WrongResultError):
        expected.check(spoil(results), keeps_late=False)


@pytest.mark.parametrize("letter", ["A", "G"])
def test_a_result_that_is_there_twice_is_found(letter: str) -> None:
    results, expected = small_results(letter)
    with pytest.raises(WrongResultError, match="two results"):
        expected.check([*results, results[0]], keeps_late=False)


def test_late_records_have_windows_of_their_own() -> None:
    inputs, expected = Hopping(keys=5).inputs(EARLY + 2_000)
    late = [record for record in inputs if record.timestamp_ms < START_MS - 80_000_000]
    assert late
    assert isinstance(expected, LastOfEachKey)
    results = [(key.encode(), f"[{n},{total}]".encode()) for key, (n, total) in expected.values.items()]
    of_late = (f"{late[0].key}@{windows_of(late[0].timestamp_ms)[0]}".encode(), b"[1,1]")
    expected.check([*results, of_late], keeps_late=True)
    with pytest.raises(WrongResultError):
        expected.check([*results, of_late], keeps_late=False)


def test_a_pause_begins_a_new_session_of_the_same_key() -> None:
    inputs, expected = SMALL["G"][0].inputs(SMALL["G"][1])
    list(inputs)
    assert isinstance(expected, OneForEachKey)
    sessions = [key.partition("@")[0] for key in expected.values]
    assert len(set(sessions)) < len(sessions)
    assert any(n > 1 for n, _ in expected.values.values())


def test_a_record_is_in_every_window_that_contains_its_time() -> None:
    assert windows_of(12_000) == [10_000, 5_000]
    assert windows_of(10_000) == [10_000, 5_000]
    assert windows_of(9_999) == [5_000, 0]


def test_a_result_may_be_a_list_or_named() -> None:
    inputs, expected = Totals(title="", keys=2, records=0).inputs(2)
    amounts = [int(record.value.split(b'"amount":')[1].split(b",")[0]) for record in inputs]
    named = f'{{"n":1,"total":{amounts[1]}}}'.encode()
    assert expected.check([(b"k0", f"[1,{amounts[0]}]".encode()), (b"k1", named)], keeps_late=False) == 2


def test_each_key_comes_once_before_any_comes_twice() -> None:
    inputs, _ = Totals(title="", keys=100, records=0).inputs(150)
    assert len({record.key for record in list(inputs)[:100]}) == 100


def test_the_same_records_are_generated_each_time() -> None:
    for workload, records in SMALL.values():
        assert list(workload.inputs(records)[0]) == list(workload.inputs(records)[0])


@pytest.mark.parametrize("size", [100, LARGE_BYTES])
def test_a_document_has_exactly_its_size(size: int) -> None:
    assert {len(document(number, f"k{number}", 999, size)) for number in (0, 7, 5_999_999)} == {size}


def test_workloads_of_the_report_have_distinct_titles() -> None:
    assert len({workload.title for workload in WORKLOADS.values()}) == len(WORKLOADS)
