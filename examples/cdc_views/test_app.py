"""Every operation of Debezium, and what it does to the views: without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.cdc_views.app import Customer, Order, Revenue, app
from examples.samples import pipe, samples
from penstock.testing import TopologyTestDriver

DATA = Path(__file__).parent / "data"


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(app.topology) as driver:
        change(driver, "shop.customers", "1", "r", {"id": 1, "name": "Ann", "country": "CH"})
        yield driver


def change(driver: TopologyTestDriver, topic: str, key: str, op: str, after: dict[str, Any] | None) -> None:
    driver.input(topic).pipe({"op": op, "before": None, "after": after}, key=key)


def order(driver: TopologyTestDriver, op: str, cents: int, status: str, customer: int = 1) -> None:
    change(driver, "shop.orders", "10", op, {"id": 10, "customer_id": customer, "cents": cents, "status": status})


def revenue(driver: TopologyTestDriver) -> dict[str, Revenue]:
    return dict(driver.store("revenue_by_country").items())


@pytest.mark.parametrize("op", ["r", "c", "u"])
def test_a_row_is_what_it_is_after_its_last_change(driver: TopologyTestDriver, op: str) -> None:
    change(driver, "shop.customers", "1", op, {"id": 1, "name": "Anna", "country": "NO"})
    assert dict(driver.store("customers").items()) == {"1": Customer("Anna", "NO")}


def test_an_order_counts_under_its_current_status(driver: TopologyTestDriver) -> None:
    order(driver, "c", 500, "new")
    order(driver, "u", 500, "paid")
    assert driver.output("orders-by-status").table() == {"new": 0, "paid": 1}


def test_only_paid_orders_are_revenue(driver: TopologyTestDriver) -> None:
    order(driver, "c", 500, "new")
    assert revenue(driver) == {}
    order(driver, "u", 450, "paid")
    assert revenue(driver) == {"CH": Revenue(1, 450)}


def test_revenue_moves_with_the_customer(driver: TopologyTestDriver) -> None:
    order(driver, "c", 500, "paid")
    change(driver, "shop.customers", "1", "u", {"id": 1, "name": "Ann", "country": "NO"})
    assert revenue(driver) == {"CH": Revenue(0, 0), "NO": Revenue(1, 500)}


def test_a_deleted_order_is_no_revenue_and_its_tombstone_changes_nothing(driver: TopologyTestDriver) -> None:
    order(driver, "c", 500, "paid")
    change(driver, "shop.orders", "10", "d", None)
    assert revenue(driver) == {"CH": Revenue(0, 0)}
    assert driver.store("orders").get("10") is None
    driver.input("shop.orders").pipe(None, key="10")
    assert revenue(driver) == {"CH": Revenue(0, 0)}


def test_the_sample_data() -> None:
    with TopologyTestDriver(app.topology) as driver:
        pipe(driver, samples(DATA))
        assert driver.output("revenue-by-country").table() == {"CH": Revenue(1, 900), "NO": Revenue(2, 5650)}
        assert driver.output("orders-by-status").table() == {"new": 0, "paid": 3}
        assert driver.store("orders")["11"] == Order("2", 650, "paid")
