"""Durations and instants, as users write them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import TopologyError
from penstock.timing import MAX_MS, duration_ms, instant_ms


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("250ms", 250),
        ("30s", 30_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("7d", 604_800_000),
        (" 10 s ", 10_000),
        ("-2s", -2_000),
        ("0ms", 0),
        (timedelta(minutes=1, milliseconds=5), 60_005),
        (timedelta(microseconds=1_999), 1),
        (timedelta(seconds=-1), -1_000),
        (1_500, 1_500),
        (MAX_MS, MAX_MS),
    ],
)
def test_reads_durations(written: Any, milliseconds: int) -> None:
    assert duration_ms(written) == milliseconds


@pytest.mark.parametrize("written", ["", "5", "5 minutes", "1.5h", "1h30m", "ms", "5M", 1.5, True, None, b"5s"])
def test_rejects_invalid_durations(written: Any) -> None:
    with pytest.raises(TopologyError, match=r"^grace: .*5m"):
        duration_ms(written, "grace")


def test_rejects_durations_beyond_64_bits() -> None:
    with pytest.raises(TopologyError, match="64 bits"):
        duration_ms("106751991168d")
    with pytest.raises(TopologyError, match="64 bits"):
        duration_ms(MAX_MS + 1)


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        (0, 0),
        (-1, -1),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T00:00:01z", 1_000),
        ("1970-01-01T01:00:00.250+01:00", 250),
        ("1969-12-31T23:59:59.999Z", -1),
        (datetime(2024, 5, 1, 12, tzinfo=timezone.utc), 1_714_564_800_000),
        (datetime(1970, 1, 1, 0, 0, 0, 1_999, tzinfo=timezone.utc), 1),
        (datetime(1970, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))), 0),
    ],
)
def test_reads_instants(written: Any, milliseconds: int) -> None:
    assert instant_ms(written) == milliseconds


@pytest.mark.parametrize("written", ["", "Z", "yesterday", "2024-13-01T00:00:00Z", 1.5, True, None])
def test_rejects_invalid_instants(written: Any) -> None:
    with pytest.raises(TopologyError, match=r"^start: .*ISO 8601"):
        instant_ms(written, "start")


@pytest.mark.parametrize("written", ["2024-05-01", "2024-05-01T12:00:00", datetime(2024, 5, 1)])  # noqa: DTZ001
def test_rejects_instants_without_a_time_zone(written: Any) -> None:
    with pytest.raises(TopologyError, match="no time zone"):
        instant_ms(written)


def test_rejects_instants_beyond_64_bits() -> None:
    with pytest.raises(TopologyError, match="64 bits"):
        instant_ms(MAX_MS + 1)


@given(st.integers(0, 10**9), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_a_written_duration_is_the_timedelta_of_its_unit(count: int, unit: str) -> None:
    names = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
    if unit == "d":
        count %= 10**6
    assert duration_ms(f"{count}{unit}") == duration_ms(timedelta(**{names[unit]: count}))


@given(st.datetimes(timezones=st.just(timezone.utc)))
def test_an_instant_is_the_same_as_datetime_and_as_text(instant: datetime) -> None:
    assert instant_ms(instant) == instant_ms(instant.isoformat())
