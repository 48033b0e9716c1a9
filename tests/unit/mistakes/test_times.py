"""Mistakes with durations, times and late records."""

from __future__ import annotations

import time

from penstock import StreamsBuilder, hopping, log_and_continue, tumbling
from penstock.errors import ProcessingError, TopologyError
from penstock.testing import TopologyTestDriver
from tests.unit.mistakes.teaching import teaches, wrong


def test_a_duration_without_a_unit() -> None:
    with teaches(TopologyError, "invalid duration '5 minutes'", 'write a number and a unit: "250ms"'):
        tumbling("5 minutes")


def test_a_number_of_seconds_as_a_duration() -> None:
    with teaches(TopologyError, "milliseconds, got 2.5", 'expected a string such as "5m", a timedelta or milliseconds'):
        tumbling(wrong(2.5))


def test_an_advance_longer_than_its_window() -> None:
    with teaches(TopologyError, "at most the window size of 1000 ms", "got 60000 ms", line=False):
        hopping("1s", "1m")


def test_a_time_without_a_zone() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=dict, timestamp=lambda record: record.value["at"]).to("out")
    with (
        TopologyTestDriver(builder.build()) as driver,
        teaches(ProcessingError, "2026-01-31T12:00:00 has no time zone", "add one, such as Z or tzinfo=timezone.utc"),
    ):
        driver.input("in").pipe({"at": "2026-01-31T12:00:00"})


def test_seconds_in_place_of_milliseconds() -> None:
    builder = StreamsBuilder()
    builder.stream("in", value=float, timestamp=wrong(lambda record: record.value)).to("out", value=float)
    with (
        TopologyTestDriver(builder.build()) as driver,
        teaches(ProcessingError, "epoch milliseconds, got ", "seconds become milliseconds with int(seconds * 1000)"),
    ):
        driver.input("in").pipe(time.time())


def test_a_time_zone_that_does_not_exist() -> None:
    with teaches(TopologyError, "tz='Europe/Zuerich': unknown time zone", "write it like Europe/Zurich"):
        StreamsBuilder().schedule("nightly", cron="0 2 * * *", tz="Europe/Zuerich")


def test_late_records_without_a_watermark() -> None:
    with teaches(TopologyError, "late= needs watermark=", "which decides when a record is late"):
        StreamsBuilder().stream("in", late=log_and_continue())
