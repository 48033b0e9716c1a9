"""Both migrated examples give what their originals give: without a broker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from examples.from_kafka_streams import page_views, word_count
from examples.from_kafka_streams.page_views import PageView, UserProfile
from examples.samples import pipe, samples
from penstock.testing import TopologyTestDriver

DATA = Path(__file__).parent / "data"
MINUTE = 60_000


def counts(driver: TopologyTestDriver) -> dict[str, int]:
    return driver.output("PageViewsByRegion", key=str, value=int).table()


def test_words_are_counted_whatever_their_case() -> None:
    with TopologyTestDriver(word_count.app.topology) as driver:
        driver.input("streams-plaintext-input").pipe("Kafka streams")
        driver.input("streams-plaintext-input").pipe("kafka")
        assert driver.output("streams-wordcount-output").pairs() == [("kafka", 1), ("streams", 1), ("kafka", 2)]


def test_counts_are_javas_longs() -> None:
    with TopologyTestDriver(word_count.app.topology) as driver:
        driver.input("streams-plaintext-input").pipe("Kafka")
        assert driver.output("streams-wordcount-output", value=bytes).values() == [bytes([0, 0, 0, 0, 0, 0, 0, 1])]


def test_the_sample_lines() -> None:
    with TopologyTestDriver(word_count.app.topology) as driver:
        lines = samples(DATA / "word_count")
        pipe(driver, lines)
        expected = Counter(word for line in lines for word in (line.value or b"").decode().lower().split())
        assert driver.output("streams-wordcount-output").table() == expected
        assert driver.store("counts-store")["kafka"] == 3


def test_a_view_counts_in_the_region_that_its_user_had_then() -> None:
    with TopologyTestDriver(page_views.app.topology) as driver:
        driver.input("UserProfiles").pipe(UserProfile("asia", "much"), key="bob", timestamp=0)
        driver.input("PageViews").pipe(PageView("bob", "index.html"), timestamp=1)
        driver.input("UserProfiles").pipe(UserProfile("europe", "much"), key="bob", timestamp=2)
        driver.input("PageViews").pipe(PageView("bob", "index.html"), timestamp=3)
        assert counts(driver) == {"[asia@0/300000]": 1, "[europe@0/300000]": 1}


def test_a_view_of_an_unknown_user_counts_too() -> None:
    with TopologyTestDriver(page_views.app.topology) as driver:
        driver.input("PageViews").pipe(PageView("eve", "index.html"), timestamp=0)
        assert counts(driver) == {"[unknown@0/300000]": 1}


def test_windows_of_five_minutes_begin_every_minute() -> None:
    with TopologyTestDriver(page_views.app.topology) as driver:
        for minute in (10, 12):
            driver.input("PageViews").pipe(PageView("eve", "index.html"), timestamp=minute * MINUTE)
        found = counts(driver)
    both, first, second = (8, 9, 10), (6, 7), (11, 12)
    expected = {start: 2 if start in both else 1 for start in (*first, *both, *second)}
    assert found == {f"[unknown@{start * MINUTE}/{(start + 5) * MINUTE}]": count for start, count in expected.items()}


def test_the_sample_views() -> None:
    with TopologyTestDriver(page_views.app.topology) as driver:
        pipe(driver, samples(DATA / "page_views"))
        by_region = Counter[str]()
        for window, count in counts(driver).items():
            by_region[window[1:].partition("@")[0]] += count
    assert by_region == {"europe": 10, "asia": 10, "africa": 5, "unknown": 5}  # each view is in five windows
