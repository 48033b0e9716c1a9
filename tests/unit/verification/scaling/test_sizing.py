"""The sizing: by hand, and what must hold for every load."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from verification.scaling.constants import Constants, measured
from verification.scaling.sizing import Host, Load, size

CONSTANTS = Constants(lane_us=8, exchange_us=5, driver_row_us=2, broker_us=0.5, lane_bytes=400e6, row_bytes=44, store_fill=0.5)
LOAD = Load(records=100_000, exchanges=1, keys=1e6)

loads = st.builds(
    Load,
    records=st.floats(1, 1e8),
    record_bytes=st.floats(1, 1e5),
    keys=st.floats(0, 1e10),
    value_bytes=st.floats(0, 1e4),
    stores=st.integers(0, 10),
    exchanges=st.integers(0, 6),
    sinks=st.integers(0, 5),
    hot=st.floats(0, 1),
    executors_write=st.booleans(),
)


def test_an_example_by_hand() -> None:
    found = size(LOAD, CONSTANTS, Host())
    assert found.executor_cores == pytest.approx(2.6)  # twice 100,000 records of 8 µs and 100,000 rows of 5 µs
    assert (found.executors, found.bound_by, found.lanes, found.shards, found.steps) == (1, "cores", 3, 12, 2)
    assert (found.source_partitions, found.written_partitions) == (3, 27)  # a changelog, the lanes' topic, a sink
    assert found.rows == 200_000
    assert found.row_bytes_per_s == pytest.approx(31.6e6)
    assert found.state_bytes == pytest.approx(320e6)
    assert found.host_memory == pytest.approx(4e9 + 1.2e9 + 320e6)
    assert found.host_disk == pytest.approx(640e6)
    assert found.host_network == found.driver_network == pytest.approx(31.6e6)
    assert found.driver_memory == pytest.approx(4e9 + 8 * 31.6e6)  # two seconds, two epochs, each held twice
    assert found.brokers == 3
    assert found.broker_network == pytest.approx(51.6e6)
    assert found.restore_s == pytest.approx(1 / 0.6)


def test_rows_of_other_hosts_cross_the_network() -> None:
    found = size(replace(LOAD, records=1e6), CONSTANTS, Host())
    assert found.executors == 4
    assert found.host_network == pytest.approx((150e6 + 316e6) / 4)  # three of four rows go to another host


def test_executors_that_write_spare_the_driver() -> None:
    found = size(replace(LOAD, executors_write=True), CONSTANTS, Host())
    assert found.executor_cores == pytest.approx(3.0)  # and twice 200,000 rows of 1 µs
    assert (found.steps, found.driver_memory, found.driver_network) == (3, 4e9, 0)
    on_four_hosts = size(replace(LOAD, records=1e6, executors_write=True), CONSTANTS, Host())
    assert on_four_hosts.executors == 4
    assert on_four_hosts.host_network == pytest.approx((0.75 * (200e6 + 316e6) + 316e6) / 4)  # rows travel once more


@pytest.mark.parametrize(
    ("changed", "bound_by", "executors"),
    [
        ({"keys": 1e9, "records": 1}, "memory", 13),  # 320 GB beside 4 + 3.2 GB on hosts of 32 GB
        ({"keys": 1e9, "records": 1, "hot": 0.01}, "disk", 2),
    ],
)
def test_state_needs_hosts_too(changed: dict[str, Any], bound_by: str, executors: int) -> None:
    found = size(replace(LOAD, **changed), CONSTANTS, Host())
    assert (found.bound_by, found.executors, found.lanes) == (bound_by, executors, executors)


def test_a_host_without_room_for_its_lanes_is_refused() -> None:
    with pytest.raises(ValueError, match=r"8 lanes of a host need 7.2 GB.*Cure"):
        size(LOAD, CONSTANTS, Host(memory=7e9))


@given(loads)
def test_each_host_can_carry_its_part(load: Load) -> None:
    host = Host()
    found = size(load, CONSTANTS, host)
    assert found.lanes >= found.executor_cores
    assert found.lanes % found.executors == 0
    assert found.lanes <= found.executors * host.cores
    assert found.host_memory <= host.memory * 1.000001
    assert found.host_disk <= host.disk * 1.000001
    assert found.brokers >= CONSTANTS.replicas


@given(loads, st.floats(1, 100))
def test_more_records_never_need_less(load: Load, times: float) -> None:
    less, more = size(load, CONSTANTS, Host()), size(replace(load, records=load.records * times), CONSTANTS, Host())
    for name in ("lanes", "executors", "shards", "source_partitions", "written_partitions", "rows", "brokers", "driver_memory"):
        assert getattr(more, name) >= getattr(less, name), name


# ---- constants ----------------------------------------------------------------------------------------------------


def report(results: int = 500_000) -> dict[str, object]:
    def median(workers: float) -> dict[str, object]:
        return {
            "median": {
                "results": results,
                "cpu_s_per_million": {"workers": workers, "broker": 0.5},
                "epoch_phases": {"produce": 2.0},
                "peak_pss_mb": 1_200.0,
            }
        }

    return {"throughput": {"B": {"penstock": median(6)}, "C": {"penstock": median(30)}}}


def test_constants_of_the_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(report()))
    found = measured(path)
    assert (found.lane_us, found.exchange_us, found.broker_us, found.lane_bytes) == (6, 3, 0.5, 400e6)
    assert found.driver_rows == pytest.approx(500_000)  # a million rows in two seconds


def test_a_workload_that_was_not_measured_is_named(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(report()))
    with pytest.raises(ValueError, match=r"no 'penstock-columns' of workload 'B'. Cure"):
        measured(path, "penstock-columns")


def test_each_constant_has_a_unit_and_a_source() -> None:
    found = list(CONSTANTS.each())
    assert found[0] == ("lane_us", 8, "µs per record", "`make bench`: B, CPU of the slots, which also read")
    assert all(one.unit and one.source for one in found)
