"""Where visits begin and end, clicks out of order, and clicks that come too late: without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.samples import pipe, samples
from examples.session_analytics.app import Click, Visit, app
from penstock.testing import TopologyTestDriver

DATA = Path(__file__).parent / "data"
MINUTE = 60_000


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(app.topology, wall_clock=0) as driver:
        yield driver


def click(driver: TopologyTestDriver, *clicks: tuple[int, str], visitor: str = "ann", platform: str = "web") -> None:
    """Clicks as their time in milliseconds and their page."""
    for timestamp, page in clicks:
        driver.input("clicks").pipe(Click(page, platform), key=visitor, timestamp=timestamp)


def visits(driver: TopologyTestDriver) -> list[tuple[str, Visit]]:
    return driver.output("visits", key=str, value=Visit).pairs()


def test_clicks_thirty_minutes_apart_are_one_visit(driver: TopologyTestDriver) -> None:
    click(driver, (0, "/"), (30 * MINUTE, "/thanks"))
    driver.advance_watermark(90 * MINUTE)
    assert visits(driver) == [("ann", Visit(2, 1800.0, "/", "/thanks", is_purchase=True))]


def test_a_longer_pause_begins_another_visit(driver: TopologyTestDriver) -> None:
    click(driver, (0, "/"), (30 * MINUTE + 1, "/shoes"))
    driver.advance_watermark(90 * MINUTE)
    assert visits(driver) == [
        ("ann", Visit(1, 0.0, "/", "/", is_purchase=False)),
        ("ann", Visit(1, 0.0, "/shoes", "/shoes", is_purchase=False)),
    ]


def test_a_visit_is_told_once_when_it_is_over(driver: TopologyTestDriver) -> None:
    click(driver, (0, "/"), (MINUTE, "/shoes"))
    driver.advance_watermark(31 * MINUTE)
    assert visits(driver) == []
    driver.advance_watermark(31 * MINUTE + 1)
    assert [visit.pages for _, visit in visits(driver)] == [2]


def test_a_click_out_of_order_joins_what_it_is_between(driver: TopologyTestDriver) -> None:
    click(driver, (0, "/"), (31 * MINUTE, "/cart"), (29 * MINUTE, "/shoes"))
    driver.advance_watermark(90 * MINUTE)
    assert visits(driver) == [("ann", Visit(3, 1860.0, "/", "/cart", is_purchase=False))]


def test_a_click_that_comes_too_late_is_kept_aside_and_counted(driver: TopologyTestDriver) -> None:
    click(driver, (10 * MINUTE, "/"))
    click(driver, (8 * MINUTE, "/sale"), (8 * MINUTE - 1, "/hats"), platform="ios")
    driver.advance_watermark(90 * MINUTE)
    assert [visit.entry for _, visit in visits(driver)] == ["/sale"]
    assert [letter.timestamp for letter in driver.output("clicks-late").records()] == [8 * MINUTE - 1]
    assert driver.output("late-by-platform").table() == {"ios": 1}


def test_visits_end_when_clicks_stop(driver: TopologyTestDriver) -> None:
    click(driver, (0, "/"))
    driver.advance_wall_clock("33m")
    assert [visitor for visitor, _ in visits(driver)] == ["ann"]


def test_the_sample_data(driver: TopologyTestDriver) -> None:
    pipe(driver, samples(DATA))
    assert sorted(visits(driver), key=str) == [
        ("ann", Visit(1, 0.0, "/", "/", is_purchase=False)),
        ("ann", Visit(3, 1920.0, "/", "/thanks", is_purchase=True)),
        ("bob", Visit(3, 1830.0, "/sale", "/cart", is_purchase=False)),
        ("cem", Visit(2, 360.0, "/", "/hats", is_purchase=False)),
    ]
    assert driver.output("late-by-platform").table() == {"android": 1, "ios": 1}
