"""Every way through the joins, and the last moment of each time-out: without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.order_fulfilment.app import Dispatch, Order, Payment, Shipment, app
from examples.samples import pipe, samples
from penstock.testing import TopologyTestDriver

DATA = Path(__file__).parent / "data"
MINUTE = 60_000
DAY = 24 * 60 * MINUTE
ORDER, PAYMENT, SHIPMENT = Order("ann", 500), Payment("card", 500), Shipment("post")


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(app.topology, wall_clock=0) as driver:
        yield driver


def test_an_order_that_is_paid_and_shipped_in_time(driver: TopologyTestDriver) -> None:
    driver.input("orders").pipe(ORDER, key="o", timestamp=0)
    driver.input("payments").pipe(PAYMENT, key="o", timestamp=30 * MINUTE)
    driver.input("shipments").pipe(SHIPMENT, key="o", timestamp=30 * MINUTE + 2 * DAY)
    driver.advance_watermark(10 * DAY)
    assert driver.output("orders-shipped").pairs() == [("o", Dispatch(ORDER, SHIPMENT))]
    assert driver.produced_topic_names() == {"orders-shipped"}


def test_an_order_that_is_not_paid_is_cancelled_when_its_time_is_over(driver: TopologyTestDriver) -> None:
    driver.input("orders").pipe(ORDER, key="o", timestamp=0)
    driver.advance_watermark(30 * MINUTE)
    assert driver.output("orders-cancelled").is_empty
    driver.advance_watermark(30 * MINUTE + 1)
    assert driver.output("orders-cancelled").pairs() == [("o", ORDER)]


def test_a_payment_that_comes_too_late_is_refunded(driver: TopologyTestDriver) -> None:
    driver.input("orders").pipe(ORDER, key="o", timestamp=0)
    driver.input("payments").pipe(PAYMENT, key="o", timestamp=30 * MINUTE + 1)
    driver.advance_watermark(1 * DAY)
    assert driver.output("orders-cancelled").pairs() == [("o", ORDER)]
    assert driver.output("refunds").pairs() == [("o", PAYMENT)]


def test_a_payment_without_an_order_is_refunded(driver: TopologyTestDriver) -> None:
    driver.input("orders").pipe(ORDER, key="o", timestamp=1)
    driver.input("payments").pipe(PAYMENT, key="other", timestamp=1)
    driver.input("payments").pipe(PAYMENT, key="o", timestamp=2)
    driver.advance_watermark(29 * MINUTE)
    assert driver.output("refunds").pairs() == [("other", PAYMENT)]


def test_a_shipment_is_overdue_two_days_after_the_payment(driver: TopologyTestDriver) -> None:
    driver.input("orders").pipe(ORDER, key="o", timestamp=0)
    driver.input("payments").pipe(PAYMENT, key="o", timestamp=20 * MINUTE)
    driver.advance_watermark(20 * MINUTE + 2 * DAY)
    assert driver.output("shipments-overdue").is_empty
    driver.advance_watermark(20 * MINUTE + 2 * DAY + 1)
    assert driver.output("shipments-overdue").pairs() == [("o", ORDER)]


def test_time_outs_follow_the_clock_when_all_topics_are_silent(driver: TopologyTestDriver) -> None:
    driver.input("orders").pipe(ORDER, key="o", timestamp=0)
    driver.advance_wall_clock("32m")
    assert driver.output("orders-cancelled").pairs() == [("o", ORDER)]


def test_the_sample_data(driver: TopologyTestDriver) -> None:
    pipe(driver, samples(DATA))
    assert set(driver.output("orders-shipped").table()) == {"o-1", "o-6", "o-7"}
    assert set(driver.output("shipments-overdue").table()) == {"o-3"}
    assert set(driver.output("orders-cancelled").table()) == {"o-2", "o-4", "o-5"}
    assert set(driver.output("refunds").table()) == {"o-4", "o-9"}
