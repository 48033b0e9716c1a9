"""Customer 360: what sales and support know about a customer, in one table that is always up to date.

Tickets and customers refer to others by id. Foreign-key joins follow these references: if an account manager gets another phone
number, every ticket of every customer of theirs changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock import App, StreamsBuilder


@dataclass(frozen=True)
class Manager:
    name: str
    phone: str


@dataclass(frozen=True)
class Customer:
    name: str
    manager: str


@dataclass(frozen=True)
class Order:
    customer: str
    cents: int
    status: str


@dataclass(frozen=True)
class Ticket:
    customer: str
    subject: str
    status: str


@dataclass(frozen=True)
class Account:
    """A customer with the account manager, if there is one."""

    name: str
    manager: Manager | None


@dataclass(frozen=True)
class OpenTicket:
    """A ticket with all that support needs to know to answer it."""

    subject: str
    customer: str
    manager: Manager | None


@dataclass(frozen=True)
class Sales:
    orders: int = 0
    cents: int = 0


@dataclass(frozen=True)
class Profile:
    """The 360-degree view."""

    name: str
    manager: str | None
    orders: int
    cents: int
    open_tickets: int


def profile_of(account: Account, sales: Sales | None) -> Profile:
    sold = sales or Sales()
    return Profile(account.name, account.manager.name if account.manager else None, sold.orders, sold.cents, 0)


builder = StreamsBuilder()
managers = builder.table("managers", key=str, value=Manager)
customers = builder.table("customers", key=str, value=Customer)
orders = builder.table("orders", key=str, value=Order)
tickets = builder.table("tickets", key=str, value=Ticket)

accounts = customers.left_join(
    managers, lambda customer, manager: Account(customer.name, manager), on=lambda customer: customer.manager, value=Account
)
open_tickets = tickets.filter(lambda _, ticket: ticket.status == "open")
answerable = open_tickets.join(
    accounts,
    lambda ticket, account: OpenTicket(ticket.subject, account.name, account.manager),
    on=lambda ticket: ticket.customer,
    value=OpenTicket,
    store="open-tickets",
)
answerable.to_stream().to("open-tickets", value=OpenTicket)

sales = (
    orders.filter(lambda _, order: order.status != "cancelled")
    .group_by(lambda _, order: (order.customer, order.cents), key=str, value=int)
    .aggregate(
        Sales,
        lambda _, cents, sales: Sales(sales.orders + 1, sales.cents + cents),
        lambda _, cents, sales: Sales(sales.orders - 1, sales.cents - cents),
        value=Sales,
        store="sales",
    )
)
waiting = open_tickets.group_by(lambda _, ticket: (ticket.customer, ticket), key=str, value=Ticket).count(store="waiting")
profiles = accounts.left_join(sales, profile_of, value=Profile).left_join(
    waiting, lambda profile, tickets: replace(profile, open_tickets=tickets or 0), value=Profile, store="profiles"
)
profiles.to_stream().to("customer-profiles", value=Profile)
app = App("customer-360", builder.build())

if __name__ == "__main__":
    app.run()
