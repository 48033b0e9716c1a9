"""Balances of bank accounts and all bookings, in PostgreSQL: each booking counts once there, whatever fails and whenever.

`schema.sql` has the tables. The delivery writes rows and offsets in one transaction of PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock import App, StreamsBuilder
from penstock.delivery import Postgres

DATABASE = "env:BANK_DATABASE"


@dataclass(frozen=True)
class Booking:
    cents: int
    """What comes in, or negative, goes out."""
    text: str
    is_last: bool = False
    """Whether the account is closed with it."""


@dataclass(frozen=True)
class Balance:
    cents: int = 0
    bookings: int = 0
    is_closed: bool = False


def with_booking(account: str, booking: Booking, balance: Balance) -> Balance:
    return Balance(balance.cents + booking.cents, balance.bookings + 1, booking.is_last)


def balance_row(account: str, balance: Balance | None) -> Mapping[str, object]:
    """The row of an account; of one that is closed only the key, by which it is deleted."""
    identity = {"account": account}
    return identity if balance is None else {**identity, "cents": balance.cents, "bookings": balance.bookings}


def booking_row(account: str, booking: Booking) -> Mapping[str, object]:
    return {"account": account, "cents": booking.cents, "text": booking.text}


builder = StreamsBuilder()
bookings = builder.stream("bookings", key=str, value=Booking)
bookings.to("bookings-delivered", deliver_to=Postgres(DATABASE, "bookings", row=booking_row))

balances = bookings.group_by_key().aggregate(Balance, with_booking, value=Balance, store="balances")
open_accounts = balances.filter(lambda _, balance: not balance.is_closed)
open_accounts.to_stream().to("balances", value=Balance, deliver_to=Postgres(DATABASE, "balances", key="account", row=balance_row))
app = App("exactly-once-postgres", builder.build())

if __name__ == "__main__":
    app.run()
