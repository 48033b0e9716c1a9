"""Where each way to commit breaks."""

from __future__ import annotations

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.unit.verification.scaling.test_sizing import CONSTANTS, LOAD, loads
from verification.scaling.designs import DESIGNS, Design, Limit, breaking, number_of_groups, tightest
from verification.scaling.sizing import Host, Load, size

ONE_PRODUCER, WRITERS, GROUPS = DESIGNS


def test_one_producer_breaks_at_its_rows() -> None:
    found = breaking(ONE_PRODUCER, LOAD, CONSTANTS, Host())
    assert found.limit.name == "rows of the driver's producer"
    assert found.records == pytest.approx(250_000, rel=0.002)  # a result and a changelog row for each record, 500,000 rows/s


def test_one_producer_of_large_records_breaks_at_the_network() -> None:
    found = breaking(ONE_PRODUCER, replace(LOAD, record_bytes=100_000), CONSTANTS, Host(memory=1e12))
    assert found.limit.name == "the driver's network"
    assert found.records == pytest.approx(1.25e9 / 100_116, rel=0.002)


def test_one_transaction_breaks_at_its_writers() -> None:
    found = breaking(WRITERS, LOAD, CONSTANTS, Host())
    assert found.limit.name == "writers of a transaction"
    assert found.sizing.lanes == 96  # twelve hosts of eight cores; a thirteenth would make it more than a hundred
    assert found.records == pytest.approx(96 / 30e-6, rel=0.002)


def test_one_transaction_with_many_stores_breaks_at_its_commit() -> None:
    found = breaking(WRITERS, replace(LOAD, stores=20), CONSTANTS, Host())
    assert found.limit.name == "the commit"
    assert found.sizing.written_partitions * 0.13 <= 500


def test_groups_break_at_the_driver() -> None:
    found = breaking(GROUPS, LOAD, CONSTANTS, Host())
    assert found.limit.name == "requests of the driver"
    assert found.sizing.lanes == 1_280  # 160 hosts; three requests of 0.52 ms to each lane in two seconds


def test_groups_are_as_many_as_needed() -> None:
    sizing = size(LOAD, CONSTANTS, Host())
    assert number_of_groups(sizing, CONSTANTS) == 1
    assert number_of_groups(replace(sizing, lanes=101), CONSTANTS) == 2
    assert number_of_groups(replace(sizing, written_partitions=10_000), CONSTANTS) == 6  # 1,300 ms, a quarter of a second each


def test_the_tightest_limit_decides() -> None:
    sizing = size(replace(LOAD, records=1e6), CONSTANTS, Host())
    limit = tightest(ONE_PRODUCER, sizing, CONSTANTS, Host())
    assert limit == Limit("rows of the driver's producer", 2e6, 500_000, "rows/s")
    assert limit.use == 4


@given(loads, st.sampled_from(DESIGNS))
def test_a_design_carries_what_is_below_its_limit(load: Load, design: Design) -> None:
    found = breaking(design, load, CONSTANTS, Host())
    assert found.limit.use > 1
    if found.records >= 1:
        assert tightest(design, found.sizing, CONSTANTS, Host()).use <= 1
