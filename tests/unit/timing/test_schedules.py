"""When schedules tick: time zones, days on which clocks change, intervals."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import TopologyError
from penstock.timing import instant_ms, schedule

ZURICH = ZoneInfo("Europe/Zurich")


def ms(*when: int, tz: Any = ZURICH, fold: int = 0) -> int:
    return instant_ms(datetime(*when, tzinfo=tz, fold=fold))  # type: ignore[misc,arg-type]


def local(time: int) -> str:
    return datetime.fromtimestamp(time / 1_000, ZURICH).strftime("%d %H:%M %z")


class TestCron:
    def test_ticks_are_in_the_time_zone(self) -> None:
        nightly = schedule("0 2 * * *", None, "Europe/Zurich", "once")
        assert nightly.first(ms(2026, 6, 1, 2, 0)) == ms(2026, 6, 2, 2, 0)
        assert nightly.first(ms(2026, 6, 1, 1, 59, 59) + 999) == ms(2026, 6, 1, 2, 0)
        assert schedule("0 2 * * *", None, None, "once").first(0) == ms(1970, 1, 1, 2, tz=timezone.utc)

    @pytest.mark.parametrize(
        ("start", "expected"),
        [
            ((2026, 3, 28), ["28 02:30 +0100", "29 03:00 +0200", "30 02:30 +0200"]),  # 02:30 does not exist on the 29th
            ((2026, 10, 24), ["24 02:30 +0200", "25 02:30 +0200", "26 02:30 +0100"]),  # and exists twice on the 25th
        ],
    )
    def test_a_day_on_which_clocks_change_has_one_tick_too(self, start: tuple[int, ...], expected: list[str]) -> None:
        daily = schedule("30 2 * * *", None, "Europe/Zurich", "once")
        time, found = ms(*start), []
        for _ in expected:
            time = daily.following(time)
            found.append(local(time))
        assert found == expected

    def test_hourly_ticks_are_an_hour_apart_all_night(self) -> None:
        hourly = schedule("0 * * * *", None, "Europe/Zurich", "all")
        time = ms(2026, 10, 25, 0, 30)
        for _ in range(6):
            following = hourly.following(time)
            assert 0 < following - time <= 3_600_000
            time = following
        assert local(time) == "25 05:00 +0100"

    @given(
        st.sampled_from(["* * * * *", "*/7 3 * * *", "0 2 * * *", "30 2 1 * *", "0 0 29 2 *", "15 2 * * SUN"]),
        st.integers(ms(2023, 1, 1), ms(2027, 1, 1)),
        st.integers(1, 20),
    )
    def test_the_latest_tick_is_the_last_one_before_the_next(self, cron: str, start: int, steps: int) -> None:
        made = schedule(cron, None, "Europe/Zurich", "once")
        due = latest = made.first(start)
        for _ in range(steps):
            latest = made.following(latest)
        assert made.latest(due, latest) == latest
        assert made.latest(due, made.following(latest) - 1) == latest
        assert made.latest(due, due) == due


class TestEvery:
    def test_ticks_keep_the_interval_from_the_first(self) -> None:
        half = schedule(None, "30s", None, "once")
        first = half.first(1_234)
        assert first == 31_234
        assert half.following(first) == 61_234
        assert (half.latest(first, 61_233), half.latest(first, 61_234), half.latest(first, 500_000)) == (31_234, 61_234, 481_234)


class TestArguments:
    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ((None, None, None, "once"), "either cron= or every="),
            (("* * * * *", "1s", None, "once"), "either cron= or every="),
            (("* * *", None, None, "once"), "cron='\\* \\* \\*'"),
            (("99 * * * *", None, None, "once"), "minute"),
            (("0 0 31 2 *", None, None, "once"), "day"),
            (("0 0 * * *", None, "Europe/Zurik", "once"), "unknown time zone"),
            (("0 0 * * *", None, "", "once"), "unknown time zone"),
            (("0 0 * * *", None, "/etc/passwd", "once"), "unknown time zone"),
            ((None, "1s", "UTC", "once"), "tz= is only for cron="),
            ((None, "0s", None, "once"), "at least 1 ms"),
            ((None, "soon", None, "once"), "every="),
            ((None, "1s", None, "never"), "misfire='never'"),
        ],
    )
    def test_invalid_schedules_are_rejected(self, words: tuple[Any, ...], message: str) -> None:
        with pytest.raises(TopologyError, match=message):
            schedule(*words)

    def test_a_schedule_is_described(self) -> None:
        assert str(schedule(" 0  2 * * *", None, "Europe/Zurich", "all")) == "cron 0 2 * * * in Europe/Zurich, misfire: all"
        assert str(schedule(None, "30s", None, "skip")) == "every 30000 ms, misfire: skip"
