"""When a sensor counts as silent, when it is back, and the hourly report: without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from examples.iot_alerts.app import SILENT_MS, Alert, Reading, Report, app
from examples.samples import pipe, samples
from penstock.testing import TopologyTestDriver

DATA = Path(__file__).parent / "data"


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(app.topology, wall_clock=0) as driver:
        yield driver


def read(driver: TopologyTestDriver, *timestamps: int, sensor: str = "roof") -> None:
    for timestamp in timestamps:
        driver.input("readings").pipe(Reading(20.0), key=sensor, timestamp=timestamp)


def alerts(driver: TopologyTestDriver) -> list[tuple[str, Alert, int]]:
    records = driver.output("sensor-alerts", key=str, value=Alert).records()
    return [(record.key, record.value, record.timestamp) for record in records]


def test_a_sensor_is_silent_five_minutes_after_its_last_reading(driver: TopologyTestDriver) -> None:
    read(driver, 0, 60_000)
    driver.advance_watermark(60_000 + SILENT_MS - 1)
    assert alerts(driver) == []
    driver.advance_watermark(60_000 + SILENT_MS)
    assert alerts(driver) == [("roof", Alert("silent", 60_000), 60_000 + SILENT_MS)]


def test_it_is_silent_once_and_back_once(driver: TopologyTestDriver) -> None:
    read(driver, 0)
    driver.advance_watermark(3 * SILENT_MS)
    read(driver, 4 * SILENT_MS, 4 * SILENT_MS + 1)
    assert alerts(driver) == [("roof", Alert("silent", 0), SILENT_MS), ("roof", Alert("back", 0), 4 * SILENT_MS)]


def test_a_reading_in_time_prevents_the_alert(driver: TopologyTestDriver) -> None:
    read(driver, 0, SILENT_MS - 1, 2 * SILENT_MS - 2)
    assert alerts(driver) == []


def test_the_reading_that_ends_a_silence_also_shows_that_there_was_one(driver: TopologyTestDriver) -> None:
    read(driver, 0, SILENT_MS)  # the timer cannot have fired: the watermark is ten seconds behind
    assert [alert.state for _, alert, _ in alerts(driver)] == ["silent", "back"]


def test_an_earlier_reading_does_not_bring_the_alert_forward(driver: TopologyTestDriver) -> None:
    read(driver, 10_000, 1_000)
    driver.advance_watermark(SILENT_MS + 1_000)
    assert alerts(driver) == []


def test_sensors_fall_silent_when_all_do(driver: TopologyTestDriver) -> None:
    read(driver, 0)
    read(driver, 1, sensor="hall")
    driver.advance_wall_clock("6m")
    assert [(sensor, alert.state) for sensor, alert, _ in alerts(driver)] == [("roof", "silent"), ("hall", "silent")]


def test_every_hour_the_report_counts_the_silent_sensors(driver: TopologyTestDriver) -> None:
    for sensor in ("roof", "hall", "cellar"):
        read(driver, 0, sensor=sensor)
    driver.advance_wall_clock("59m")
    assert driver.output("sensor-reports").is_empty
    read(driver, 59 * 60_000, sensor="hall")
    driver.advance_wall_clock("1m")
    [report] = driver.output("sensor-reports").records()
    assert (report.value, report.timestamp) == (Report(silent=2), 3_600_000)


def test_the_sample_data(driver: TopologyTestDriver) -> None:
    pipe(driver, samples(DATA))

    def at(minutes: int, seconds: int) -> int:
        return int(datetime(2026, 3, 2, 9, minutes, seconds, tzinfo=timezone.utc).timestamp() * 1000)

    assert sorted(alerts(driver), key=str) == [
        ("cellar", Alert("back", at(0, 30)), at(9, 0)),
        ("cellar", Alert("silent", at(0, 30)), at(5, 30)),
        ("cellar", Alert("silent", at(9, 0)), at(14, 0)),
        ("hall", Alert("back", at(4, 50)), at(9, 50)),
        ("hall", Alert("silent", at(4, 50)), at(9, 50)),
        ("hall", Alert("silent", at(9, 50)), at(14, 50)),
    ]
