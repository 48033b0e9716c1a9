"""The rules, their limits, and what ends ten minutes: without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.fraud_detection.app import MOST_CENTS, SPAN_MS, Alert, Case, Payment, app
from examples.samples import pipe, samples
from penstock.testing import TopologyTestDriver

DATA = Path(__file__).parent / "data"


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(app.topology, wall_clock=0) as driver:
        yield driver


def pay(driver: TopologyTestDriver, card: str, *payments: tuple[int, int]) -> None:
    """Payments as their time in milliseconds and their cents."""
    for timestamp, cents in payments:
        driver.input("payments").pipe(Payment("shop", cents), key=card, timestamp=timestamp)


def alerts(driver: TopologyTestDriver) -> list[tuple[str, Alert]]:
    return driver.output("fraud-alerts", key=str, value=Alert).pairs()


def test_the_fourth_payment_within_ten_minutes_raises_an_alert(driver: TopologyTestDriver) -> None:
    pay(driver, "a", (0, 100), (1_000, 100), (2_000, 100))
    assert alerts(driver) == []
    pay(driver, "a", (SPAN_MS - 1, 100))
    assert alerts(driver) == [("a", Alert("payments", 4, 400))]


def test_ten_minutes_later_a_card_starts_anew(driver: TopologyTestDriver) -> None:
    pay(driver, "a", (0, 100), (1_000, 100), (2_000, 100), (SPAN_MS, 100))
    assert alerts(driver) == []
    assert driver.store("spans")["a"].payments == 1


def test_the_amount_may_reach_the_limit_but_not_exceed_it(driver: TopologyTestDriver) -> None:
    pay(driver, "a", (0, MOST_CENTS))
    assert alerts(driver) == []
    pay(driver, "a", (1_000, 1))
    assert alerts(driver) == [("a", Alert("amount", 2, MOST_CENTS + 1))]


def test_a_rule_raises_one_alert_and_cards_do_not_add_up(driver: TopologyTestDriver) -> None:
    pay(driver, "a", *((number, 100) for number in range(9)))
    pay(driver, "b", (9, 100))
    assert alerts(driver) == [("a", Alert("payments", 4, 400))]


def test_the_timer_closes_the_case_with_everything_that_was_paid(driver: TopologyTestDriver) -> None:
    pay(driver, "a", *((number, 100) for number in range(5)))
    pay(driver, "b", (10, 100))
    driver.advance_watermark(SPAN_MS - 1)
    assert driver.output("fraud-cases").is_empty
    driver.advance_watermark(SPAN_MS + 10)
    [record] = driver.output("fraud-cases").records()  # nothing about card b, which broke no rule
    assert (record.key, record.value, record.timestamp) == ("a", Case(["payments"], 5, 500), SPAN_MS)
    assert dict(driver.store("spans").items()) == {}


def test_cases_close_when_payments_stop(driver: TopologyTestDriver) -> None:
    pay(driver, "a", *((number, 100) for number in range(4)))
    driver.advance_wall_clock("11m")
    assert driver.output("fraud-cases").values() == [Case(["payments"], 4, 400)]


def test_the_sample_data(driver: TopologyTestDriver) -> None:
    pipe(driver, samples(DATA))
    assert alerts(driver) == [
        ("card-a", Alert("payments", 4, 7_000)),
        ("card-b", Alert("amount", 2, 110_000)),
        ("card-a", Alert("amount", 5, 100_001)),
    ]
    assert driver.output("fraud-cases").table() == {
        "card-a": Case(["payments", "amount"], 5, 100_001),
        "card-b": Case(["amount"], 2, 110_000),
    }
    assert [letter.key for letter in driver.output("payments-late").records()] == [b"card-c"]
