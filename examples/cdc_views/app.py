"""Views of a shop's database that are always current: Debezium's changes in, tables that SQL can query out.

The changes have Debezium's envelope (`op`, `before`, `after`), and the primary key as text as their key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock import App, KTable, StreamsBuilder


@dataclass(frozen=True)
class Customer:
    name: str
    country: str


@dataclass(frozen=True)
class Order:
    customer_id: str
    cents: int
    status: str


@dataclass(frozen=True)
class Sale:
    country: str
    cents: int


@dataclass(frozen=True)
class Revenue:
    orders: int = 0
    cents: int = 0


builder = StreamsBuilder()


def rows(topic: str) -> KTable[str, dict[str, Any]]:
    """The rows of a database table, from its changes. Of a deleted row, `after` is null; then comes a tombstone."""
    return builder.table(topic, key=str, value=dict).map_values(lambda change: change["after"])


customers = rows("shop.customers").map_values(
    lambda row: Customer(row["name"], row["country"]), value=Customer, store="customers"
)
orders = rows("shop.orders").map_values(
    lambda row: Order(str(row["customer_id"]), row["cents"], row["status"]), value=Order, store="orders"
)

by_status = orders.group_by(lambda _, order: (order.status, 1), key=str, value=int).count(store="orders_by_status")
by_status.to_stream().to("orders-by-status", value=int)

sales = orders.filter(lambda _, order: order.status == "paid").join(
    customers, lambda order, customer: Sale(customer.country, order.cents), on=lambda order: order.customer_id, value=Sale
)
revenue = sales.group_by(lambda _, sale: (sale.country, sale.cents), key=str, value=int).aggregate(
    Revenue,
    lambda _, cents, revenue: Revenue(revenue.orders + 1, revenue.cents + cents),
    lambda _, cents, revenue: Revenue(revenue.orders - 1, revenue.cents - cents),
    value=Revenue,
    store="revenue_by_country",
)
revenue.to_stream().to("revenue-by-country", value=Revenue)
app = App("cdc-views", builder.build())

if __name__ == "__main__":
    app.run()
