"""Scheduled sources through lanes: each tick once, in the lane of the schedule's name, whatever happens in between."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock import KStream, StreamsBuilder, Topology
from penstock.errors import TopologyError
from penstock.operators.schedules import LATE_MS, MOST_AT_ONCE
from penstock.testing import TopologyTestDriver
from penstock.topology.plan import plan
from tests.unit.epochs.application import Application, Raw

NOON = 1_780_000_000_000
SECOND = 1_000


def ticking(misfire: str = "all", every: str = "1s", name: str = "beat") -> Topology:
    """Ticks to a topic and, behind an exchange, counted; beside them a stream."""
    builder = StreamsBuilder()
    builder.stream("in", value=str).group_by_key().count(store="seen")
    ticks = builder.schedule(name, every=every, misfire=misfire)
    ticks.to("ticks", value=int)
    counted: KStream[Any, Any] = ticks.select_key(lambda *_: "all")
    counted.group_by_key(key=str, value=int).count(store="counted").to_stream().to("counts", value=int)
    return builder.build()


def application(directory: Path, topology: Topology, lanes: int) -> Application:
    app = Application(directory / "state", lambda: topology)
    app.now_ms = NOON
    app.start(lanes)
    app.step([])
    return app


def ticks(app: Application) -> list[int]:
    found = [(key, int.from_bytes(value or b"", "big"), time) for topic, key, value, time in app.sent if topic == "ticks"]
    assert all(key == b"beat" and value == time for key, value, time in found)
    return [time - NOON for *_, time in found]


class TestExactlyOnce:
    @pytest.mark.parametrize("lanes", [1, 2, 5])
    def test_a_schedule_begins_from_now_and_ticks_in_one_lane(self, tmp_path: Path, lanes: int) -> None:
        app = application(tmp_path, ticking(), lanes)
        assert (app.due, app.sent) == (NOON + SECOND, [])
        app.now_ms += SECOND - 1
        app.step([Raw(b"a", b"x", 0)])
        assert app.sent == []
        for _ in range(3):
            app.now_ms = app.due or 0
            app.step([])
        assert ticks(app) == [1_000, 2_000, 3_000]
        assert [value for topic, _, value, _ in app.sent if topic == "counts"][-1] == (3).to_bytes(8, "big")
        app.check()

    @pytest.mark.parametrize("seed", range(4))
    def test_each_tick_comes_once_through_retries_crashes_and_other_lanes(self, tmp_path: Path, seed: int) -> None:
        chance = random.Random(seed)
        app = application(tmp_path, ticking(), 2)
        for _ in range(25):
            app.now_ms += chance.choice([0, 300, 999, 1_000, 4_700])
            what = chance.random()
            if what < 0.5:
                app.run([])
            if what < 0.4:
                if what < 0.2:
                    shutil.rmtree(app.lane_directory(0).parent)
                app.topics.compact()
                app.start(chance.choice([1, 2, 5]))
            app.step([Raw(b"a", b"x", 0)] if chance.random() < 0.5 else [])
        app.step([])
        seconds = (app.now_ms - NOON) // SECOND
        assert ticks(app) == [SECOND * number for number in range(1, seconds + 1)]
        assert [value for topic, _, value, _ in app.sent if topic == "counts"][-1] == seconds.to_bytes(8, "big")
        app.check()


class TestMisfires:
    @pytest.mark.parametrize(
        ("misfire", "away", "expected"),
        [
            ("all", 3_500, [1_000, 2_000, 3_000]),
            ("once", 3_500, [3_000]),
            ("once", 900_500, [900_000]),
            ("skip", 3_500, [3_000]),
        ],
    )
    def test_what_was_missed_while_the_application_was_down(
        self, tmp_path: Path, misfire: str, away: int, expected: list[int]
    ) -> None:
        app = application(tmp_path, ticking(misfire), 2)
        app.now_ms += away
        app.start(5)
        app.step([])
        assert ticks(app) == expected
        assert app.due == NOON + (away // SECOND + 1) * SECOND

    @pytest.mark.parametrize(("late", "is_sent"), [(LATE_MS, True), (LATE_MS + 1, False)])
    def test_a_tick_that_is_late_may_be_skipped(self, tmp_path: Path, late: int, is_sent: bool) -> None:
        app = application(tmp_path, ticking("skip", every="1h"), 2)
        app.now_ms += 3_600_000 + late
        app.step([])
        assert ticks(app) == ([3_600_000] if is_sent else [])
        assert app.due == NOON + 7_200_000

    def test_many_missed_ticks_are_sent_in_several_epochs(self, tmp_path: Path) -> None:
        app = application(tmp_path, ticking("all"), 2)
        app.now_ms += (MOST_AT_ONCE + 5) * SECOND
        app.step([])
        assert len(ticks(app)) == MOST_AT_ONCE
        assert (app.due or 0) < app.now_ms
        app.step([])
        assert ticks(app) == [SECOND * number for number in range(1, MOST_AT_ONCE + 6)]
        assert app.due == app.now_ms + SECOND


class TestChanges:
    def test_another_expression_starts_from_now(self, tmp_path: Path) -> None:
        app = application(tmp_path, ticking(every="1h"), 2)
        app.now_ms += 1_800_000
        app.topology = ticking(every="10m")
        app.start(5)
        app.step([])
        assert (app.sent, app.due) == ([], NOON + 2_400_000)
        app.now_ms += 86_400_000
        app.topology = ticking(every="1h")
        app.start(2)
        app.step([])
        assert (app.sent, app.due) == ([], app.now_ms + 3_600_000)
        app.check()

    def test_another_policy_is_the_same_schedule(self, tmp_path: Path) -> None:
        app = application(tmp_path, ticking("skip"), 2)
        app.now_ms += 2_500
        app.topology = ticking("all")
        app.start(2)
        app.step([])
        assert ticks(app) == [1_000, 2_000]

    def test_the_plan_knows_the_schedule(self) -> None:
        fingerprints = {plan(ticking(every=every)).fingerprint for every in ("1s", "2s", "1s")}
        assert len(fingerprints) == 2
        assert "Source: beat-schedule (schedule: every 1000 ms, misfire: all)" in ticking().describe()
        assert "every 1000 ms" in ticking().mermaid()


class TestDriver:
    def test_the_clock_that_a_test_sets_fires_ticks(self) -> None:
        builder = StreamsBuilder()
        builder.schedule("nightly", cron="0 2 * * *", tz="Europe/Zurich").to("nights", value=int)
        with TopologyTestDriver(builder.build(), wall_clock="2026-06-01T12:00:00+02:00") as driver:
            driver.advance_wall_clock("13h")
            assert driver.output("nights").is_empty
            driver.advance_wall_clock("1h")
            [record] = driver.output("nights").records()
            assert (record.key, record.value, record.timestamp) == ("nightly", 1_780_358_400_000, 1_780_358_400_000)
            driver.advance_wall_clock("3d")
            assert driver.output("nights").values() == [1_780_358_400_000 + 3 * 86_400_000]

    def test_all_of_many_missed_ticks_come(self) -> None:
        with TopologyTestDriver(ticking("all"), wall_clock=NOON) as driver:
            driver.advance_wall_clock(3 * MOST_AT_ONCE * SECOND)
            assert len(driver.output("ticks").values()) == 3 * MOST_AT_ONCE

    def test_schedules_fire_in_the_order_of_time(self) -> None:
        builder = StreamsBuilder()
        for name, every in (("slow", "3s"), ("quick", "2s")):
            builder.schedule(name, every=every, misfire="all").to("out", value=int)
        with TopologyTestDriver(builder.build(), wall_clock=0) as driver:
            driver.advance_wall_clock("6s")
            expected = [("quick", 2_000), ("slow", 3_000), ("quick", 4_000), ("slow", 6_000), ("quick", 6_000)]
            assert driver.output("out").pairs() == expected

    def test_ticks_do_not_move_stream_time(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in", value=str, name="in").to("out", value=str)
        builder.schedule("beat", every="1s").to("ticks", value=int)
        with TopologyTestDriver(builder.build(), wall_clock=NOON) as driver:
            driver.input("in").pipe("x", key="a", timestamp=5)
            driver.advance_wall_clock("5s")
            assert driver.output("ticks").values() == [NOON + 5 * SECOND]
            assert driver._lane.clocks.stream_time_of("in").value == 5

    def test_an_invalid_schedule_names_the_schedule_and_the_line(self) -> None:
        with pytest.raises(TopologyError, match=r"Schedule 'x': cron='boo'.*test_schedules.py"):
            StreamsBuilder().schedule("x", cron="boo")
        builder = StreamsBuilder()
        builder.schedule("x", every="1s")
        builder.schedule("x", every="2s")
        with pytest.raises(TopologyError, match="already exists"):
            builder.build()
