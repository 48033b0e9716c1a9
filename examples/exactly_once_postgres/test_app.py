"""The balances, and the rows that are delivered: without a broker and without PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.exactly_once_postgres.app import Balance, Booking, app, balance_row, booking_row
from examples.samples import pipe, samples
from penstock.testing import TopologyTestDriver

DATA = Path(__file__).parent / "data"


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(app.topology) as driver:
        yield driver


def book(driver: TopologyTestDriver, *bookings: Booking) -> None:
    for booking in bookings:
        driver.input("bookings").pipe(booking, key="a")


def test_a_balance_is_the_sum_of_its_bookings(driver: TopologyTestDriver) -> None:
    book(driver, Booking(1000, "salary"), Booking(-1250, "rent"))
    assert driver.output("balances").values() == [Balance(1000, 1), Balance(-250, 2)]


def test_equal_bookings_are_two_bookings(driver: TopologyTestDriver) -> None:
    book(driver, Booking(-5, "coffee"), Booking(-5, "coffee"))
    assert driver.output("balances").table() == {"a": Balance(-10, 2)}
    assert len(driver.output("bookings-delivered").values()) == 2


def test_a_closed_account_has_no_balance_until_it_is_used_again(driver: TopologyTestDriver) -> None:
    book(driver, Booking(1000, "salary"), Booking(-1000, "closing", is_last=True))
    assert driver.output("balances").pairs() == [("a", Balance(1000, 1)), ("a", None)]
    book(driver, Booking(5, "interest"))
    assert driver.output("balances").values() == [Balance(5, 3)]


def test_rows_have_the_columns_of_the_schema() -> None:
    schema = (Path(__file__).parent / "schema.sql").read_text(encoding="utf-8")
    for table, row in (("balances", balance_row("a", Balance(5, 1))), ("bookings", booking_row("a", Booking(5, "interest")))):
        [declared] = [line for line in schema.splitlines() if line.startswith(f"CREATE TABLE {table} ")]
        columns = [column.split()[0] for column in declared[declared.index("(") + 1 : declared.rindex(")")].split(",")]
        assert list(row) == columns
    assert balance_row("a", None) == {"account": "a"}


def test_the_sample_data(driver: TopologyTestDriver) -> None:
    pipe(driver, samples(DATA))
    assert driver.output("balances").table() == {"a-1": Balance(67_500, 4), "a-2": Balance(-10_000, 2)}
    assert len(driver.output("bookings-delivered").values()) == 8
