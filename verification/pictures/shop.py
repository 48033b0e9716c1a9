"""The application of the dashboard's pictures: orders, each with its customer, counted by region and minute.

It has what an operator looks for: three stages, a table, windows, a watermark, late records and records that fail.
"""

from __future__ import annotations

from typing import Any

from penstock import App, StreamsBuilder, Topology, bounded_disorder, dead_letter, tumbling

ORDERS, CUSTOMERS = "orders", "customers"
TOPICS = (ORDERS, CUSTOMERS, "orders-enriched", "orders-per-region", "orders-late", "orders-failed")


def is_paid(_: Any, order: dict[str, Any]) -> bool:
    """Whether an order has an amount; fails for one whose amount is a text."""
    return bool(order["amount"] > 0)


def topology() -> Topology:
    """Return the topology."""
    builder = StreamsBuilder()
    in_time = bounded_disorder("5s", idle="30s")
    orders = builder.stream(ORDERS, value=dict, name="orders-in", watermark=in_time, late=dead_letter("orders-late"))
    customers = builder.table(CUSTOMERS, value=dict, store="customers")
    known = (
        orders.filter(is_paid, name="paid-only")
        .select_key(lambda _, order: order["customer"], name="by-customer")
        .join(customers, lambda order, customer: {**order, **customer}, value=dict, name="with-customer")
    )
    known.to("orders-enriched")
    minutes = known.group_by(lambda _, order: order["region"], name="by-region").windowed_by(tumbling("1m", grace="10s"))
    counts = minutes.count(store="orders-per-region")
    counts.to_stream(lambda windowed, _: windowed.key).to("orders-per-region", value=int)
    return builder.build()


app = App("shop-orders", topology(), processing_errors=dead_letter("orders-failed"))
