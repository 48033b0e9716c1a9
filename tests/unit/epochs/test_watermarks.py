"""Watermarks through stages and lanes: what closes when, over restarts, retries and other numbers of lanes."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    EmitStrategy,
    StreamsBuilder,
    Topology,
    bounded_disorder,
    session,
    sliding,
    tumbling,
    until_window_closes,
)
from tests.unit.epochs.application import Application, Raw, SentRow

WINDOWS = [tumbling("10s", grace="1s"), sliding("10s", grace="1s"), session("5s", grace="1s")]


def suppressed(window: Any) -> Callable[[], Topology]:
    def make() -> Topology:
        builder = StreamsBuilder()
        clicks = builder.stream("in", value=str, watermark=bounded_disorder("1d"))
        counts = clicks.group_by(lambda _, page: page).windowed_by(window).count(store="counts")
        closed = counts.suppress(until_window_closes()).to_stream(lambda windowed, _: f"{windowed.key}@{windowed.start}")
        closed.to("out", value=int)
        return builder.build()

    return make


def on_close(window: Any) -> Callable[[], Topology]:
    def make() -> Topology:
        builder = StreamsBuilder()
        clicks = builder.stream("in", value=str, watermark=bounded_disorder("1d"))
        grouped = clicks.group_by(lambda _, page: page).windowed_by(window).emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        closed = grouped.count(store="counts").to_stream(lambda windowed, _: f"{windowed.key}@{windowed.start}")
        closed.to("out", value=int)
        return builder.build()

    return make


def cascade(window: Any) -> Callable[[], Topology]:
    """Counts per page, and after an exchange their sums over all pages: what closes upstream is not late downstream."""

    def make() -> Topology:
        builder = StreamsBuilder()
        clicks = builder.stream("in", value=str, watermark=bounded_disorder("1d"))
        counts = clicks.group_by(lambda _, page: page).windowed_by(window).count(store="counts").suppress(until_window_closes())
        all_pages = (
            counts.to_stream(lambda windowed, _: "all").group_by_key(key=str, value=int).windowed_by(tumbling("20s", grace="1m"))
        )
        sums = all_pages.reduce(lambda total, count: total + count, store="sums").suppress(until_window_closes())
        sums.to_stream(lambda windowed, _: f"{windowed.key}@{windowed.start}").to("out", value=int)
        return builder.build()

    return make


def clicks(seconds: list[int]) -> list[Raw]:
    return [Raw(b"user", b"page-%d" % (second % 3), second * 1_000) for second in seconds]


def results(app: Application) -> list[SentRow]:
    return sorted(app.sent)


class TestClosing:
    def test_time_that_is_far_ahead_does_not_expire_what_is_still_open(self, tmp_path: Path) -> None:
        app = Application(tmp_path / "state", suppressed(WINDOWS[0]))
        app.watermark = -1
        app.start(2)
        app.step(clicks([3_000, 3, 6]))
        assert (app.sent, app.event_due) == ([], 11_000)
        app.watermark = 11_000
        app.step([])
        assert app.sent == [("out", b"page-0@0", (2).to_bytes(8, "big"), 6_000)]
        assert app.event_due == 3_011_000

    @pytest.mark.parametrize("lanes", [1, 5])
    def test_open_windows_survive_lost_files_and_another_number_of_lanes(self, tmp_path: Path, lanes: int) -> None:
        app = Application(tmp_path / "state", suppressed(WINDOWS[0]))
        app.watermark = -1
        app.start(2)
        app.step(clicks([3_000, 3, 4, 5]))
        app.watermark = 2_000
        app.step(clicks([6]))
        shutil.rmtree(tmp_path / "state")
        app.start(lanes)
        app.step(clicks([9]))
        app.watermark = 11_000
        app.step([])
        assert [(key, int.from_bytes(value or b"", "big")) for _, key, value, _ in results(app)] == [
            (b"page-0@0", 3),
            (b"page-1@0", 1),
            (b"page-2@0", 1),
        ]
        app.check()

    def test_a_retried_epoch_closes_windows_once(self, tmp_path: Path) -> None:
        app = Application(tmp_path / "state", suppressed(WINDOWS[0]))
        app.watermark = -1
        app.start(2)
        app.step(clicks([1, 2, 3]))
        app.watermark = 11_000
        first, again = app.run([]), app.run([])
        assert first.equals(again)
        app.commit([], again)
        app.step([])
        assert len(app.sent) == 3


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("make", [suppressed, on_close, cascade])
class TestHowInputIsCut:
    def test_makes_no_difference(self, tmp_path: Path, make: Any, window: Any) -> None:
        chance = random.Random(1)
        records = clicks([max(0, number + chance.randrange(-20, 20)) for number in range(90)])

        def run(name: str, sizes: Callable[[], int], lanes: int) -> list[SentRow]:
            app = Application(tmp_path / name, make(window))
            app.watermark = -1
            app.start(lanes)
            fed = 0
            while fed < len(records):
                size = sizes()
                app.step(records[fed : fed + size])
                fed += size
                app.watermark = max(app.watermark, fed * 1_000 - 41_000)
            app.watermark = 10**7
            app.step([])
            return results(app)

        whole = run("whole", lambda: len(records), 1)
        assert len(whole) > 4
        assert run("small", lambda: 7, 2) == whole
        assert run("random", lambda: chance.randrange(1, 40), 5) == whole
