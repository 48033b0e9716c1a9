"""Orders, payments and shipments, joined with time-outs.

An order must be paid within 30 minutes, and shipped within two days of its payment; a payment without such an order is refunded.
A time-out is a record of the left side of a join whose window has closed without a match.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock import App, StreamsBuilder, bounded_disorder, otherwise

PAY_WITHIN = "30m"
SHIP_WITHIN = "2d"
IN_TIME = bounded_disorder("1m", idle="1m", follow_wall_clock=True)
"""Records may be a minute out of order. When all topics are silent, time-outs follow the wall clock."""


@dataclass(frozen=True)
class Order:
    customer: str
    cents: int


@dataclass(frozen=True)
class Payment:
    method: str
    cents: int


@dataclass(frozen=True)
class Shipment:
    carrier: str


@dataclass(frozen=True)
class Checkout:
    """An order with its payment, or without one if none came in time."""

    order: Order
    payment: Payment | None


@dataclass(frozen=True)
class Dispatch:
    """A paid order with its shipment, or without one if it is overdue."""

    order: Order
    shipment: Shipment | None


@dataclass(frozen=True)
class Receipt:
    """A payment with the order that it is for, or without one if there is none."""

    payment: Payment
    order: Order | None


builder = StreamsBuilder()
orders = builder.stream("orders", key=str, value=Order, watermark=IN_TIME)
payments = builder.stream("payments", key=str, value=Payment, watermark=IN_TIME)
shipments = builder.stream("shipments", key=str, value=Shipment, watermark=IN_TIME)

checkouts = orders.left_join(payments, Checkout, within=("0s", PAY_WITHIN), name="checkout")
unpaid, paid = checkouts.split(lambda _, checkout: checkout.payment is None, otherwise)
unpaid.map_values(lambda checkout: checkout.order).to("orders-cancelled", value=Order)
paid_orders = paid.map_values(lambda checkout: checkout.order, value=Order)

dispatches = paid_orders.left_join(shipments, Dispatch, within=("0s", SHIP_WITHIN), name="dispatch")
overdue, shipped = dispatches.split(lambda _, dispatch: dispatch.shipment is None, otherwise)
overdue.map_values(lambda dispatch: dispatch.order).to("shipments-overdue", value=Order)
shipped.to("orders-shipped", value=Dispatch)

receipts = payments.left_join(orders, Receipt, within=(PAY_WITHIN, "0s"), name="receipt")
receipts.filter(lambda _, receipt: receipt.order is None).map_values(lambda receipt: receipt.payment).to("refunds", value=Payment)
app = App("order-fulfilment", builder.build())

if __name__ == "__main__":
    app.run()
