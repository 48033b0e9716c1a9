"""Changes on either side of each join reach the views: without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.customer_360.app import Customer, Manager, OpenTicket, Order, Profile, Ticket, app
from examples.samples import pipe, samples
from penstock.testing import TopologyTestDriver

DATA = Path(__file__).parent / "data"
MIA, NOA = Manager("Mia", "100"), Manager("Noa", "200")


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(app.topology) as driver:
        driver.input("managers").pipe(MIA, key="m-1")
        driver.input("managers").pipe(NOA, key="m-2")
        driver.input("customers").pipe(Customer("Acme", "m-1"), key="c-1")
        yield driver


def profile(driver: TopologyTestDriver) -> Profile:
    found: Profile = driver.store("profiles")["c-1"]
    return found


def test_a_customer_without_anything_has_a_profile(driver: TopologyTestDriver) -> None:
    assert profile(driver) == Profile("Acme", "Mia", orders=0, cents=0, open_tickets=0)


def test_a_customer_whose_manager_is_unknown_has_none(driver: TopologyTestDriver) -> None:
    driver.input("customers").pipe(Customer("Acme", "m-9"), key="c-1")
    assert profile(driver).manager is None


def test_an_order_counts_until_it_is_cancelled(driver: TopologyTestDriver) -> None:
    driver.input("orders").pipe(Order("c-1", 500, "new"), key="o-1")
    driver.input("orders").pipe(Order("c-1", 300, "new"), key="o-2")
    assert (profile(driver).orders, profile(driver).cents) == (2, 800)
    driver.input("orders").pipe(Order("c-1", 450, "paid"), key="o-1")
    assert (profile(driver).orders, profile(driver).cents) == (2, 750)
    driver.input("orders").pipe(Order("c-1", 300, "cancelled"), key="o-2")
    assert (profile(driver).orders, profile(driver).cents) == (1, 450)


def test_an_order_that_moves_to_another_customer_moves_its_sales(driver: TopologyTestDriver) -> None:
    driver.input("customers").pipe(Customer("Brio", "m-2"), key="c-2")
    driver.input("orders").pipe(Order("c-1", 500, "new"), key="o-1")
    driver.input("orders").pipe(Order("c-2", 500, "new"), key="o-1")
    assert profile(driver).cents == 0
    assert driver.store("profiles")["c-2"].cents == 500


def test_a_ticket_follows_its_customer_and_the_customers_manager(driver: TopologyTestDriver) -> None:
    views = driver.output("open-tickets")
    driver.input("tickets").pipe(Ticket("c-1", "invoice", "open"), key="t-1")
    assert views.pairs() == [("t-1", OpenTicket("invoice", "Acme", MIA))]
    driver.input("managers").pipe(Manager("Mia", "111"), key="m-1")
    assert views.pairs() == [("t-1", OpenTicket("invoice", "Acme", Manager("Mia", "111")))]
    driver.input("customers").pipe(Customer("Acme", "m-2"), key="c-1")
    assert views.pairs() == [("t-1", OpenTicket("invoice", "Acme", NOA))]


def test_a_closed_ticket_leaves_the_views(driver: TopologyTestDriver) -> None:
    driver.input("tickets").pipe(Ticket("c-1", "invoice", "open"), key="t-1")
    assert profile(driver).open_tickets == 1
    driver.input("tickets").pipe(Ticket("c-1", "invoice", "closed"), key="t-1")
    assert profile(driver).open_tickets == 0
    assert driver.output("open-tickets").table() == {}


def test_a_ticket_of_an_unknown_customer_waits_for_it(driver: TopologyTestDriver) -> None:
    driver.input("tickets").pipe(Ticket("c-2", "invoice", "open"), key="t-1")
    assert driver.output("open-tickets").is_empty
    driver.input("customers").pipe(Customer("Brio", "m-2"), key="c-2")
    assert driver.output("open-tickets").values() == [OpenTicket("invoice", "Brio", NOA)]


def test_the_sample_data() -> None:
    with TopologyTestDriver(app.topology) as driver:
        pipe(driver, samples(DATA))
        mia = Manager("Mia", "111")
        assert driver.output("customer-profiles").table() == {
            "c-1": Profile("Acme", "Mia", orders=1, cents=5000, open_tickets=1),
            "c-2": Profile("Brio", "Mia", orders=1, cents=8900, open_tickets=1),
        }
        assert driver.output("open-tickets").table() == {
            "t-1": OpenTicket("invoice", "Acme", mia),
            "t-2": OpenTicket("delivery", "Brio", mia),
        }
