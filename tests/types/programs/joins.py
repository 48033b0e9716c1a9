"""Joins of streams and tables: the joiner receives the values of both sides, and None where a side may be missing."""

from __future__ import annotations

from orders import Customer, Order, Payment
from typing_extensions import assert_type

from penstock import GlobalKTable, KStream, KTable, StreamsBuilder

builder = StreamsBuilder()
orders = builder.stream("orders", key=str, value=Order)
payments = builder.stream("payments", key=str, value=Payment)
numbered = builder.stream("numbered", key=int, value=Payment)
customers = builder.table("customers", key=str, value=Customer)
order_table = builder.table("order-table", key=int, value=Order)
totals = builder.table("totals", key=int, value=float)
rates = builder.global_table("rates", key=str, value=float)
taxes = builder.global_table_from(
    lambda spark: spark.read.parquet("taxes"), lambda row: (row["country"], row["tax"]), store="taxes", key=str, value=float
)
assert_type(taxes, GlobalKTable[str, float])


def paid(order: Order, payment: Payment) -> float:
    """Return the unpaid amount."""
    return order.total - payment.amount


def maybe_paid(order: Order, payment: Payment | None) -> float:
    """Return the unpaid amount if there may be no payment."""
    return order.total - (payment.amount if payment else 0)


assert_type(orders.join(payments, paid, within="10m", grace="1m"), KStream[str, float])
assert_type(
    orders.join(payments, lambda order, payment: (order, payment.amount), within=("1m", "2m")), KStream[str, tuple[Order, float]]
)
assert_type(orders.join(payments, lambda key, order, payment: key + order.customer, within=5, with_key=True), KStream[str, str])
assert_type(orders.join(customers, lambda order, customer: customer.name), KStream[str, str])
assert_type(
    orders.join(customers, lambda key, order, customer: (key, order, customer), with_key=True),
    KStream[str, tuple[str, Order, Customer]],
)
assert_type(orders.join(rates, lambda order, rate: order.total * rate, on=lambda key, order: order.customer), KStream[str, float])
assert_type(orders.join(rates, lambda key, order, rate: key, on=lambda key, order: key or None, with_key=True), KStream[str, str])

assert_type(orders.left_join(payments, maybe_paid, within="10m"), KStream[str, float])
assert_type(orders.left_join(payments, lambda order, payment: payment, within="10m"), "KStream[str, Payment | None]")
assert_type(
    orders.left_join(payments, lambda key, order, payment: (key, payment), within=5, with_key=True),
    "KStream[str, tuple[str, Payment | None]]",
)
assert_type(orders.left_join(customers, lambda order, customer: customer, grace="1s"), "KStream[str, Customer | None]")
assert_type(orders.left_join(customers, lambda key, order, customer: key, with_key=True), KStream[str, str])
assert_type(orders.left_join(rates, lambda order, rate: rate, on=lambda key, order: key), "KStream[str, float | None]")
assert_type(orders.left_join(rates, lambda key, order, rate: key, on=lambda key, order: key, with_key=True), KStream[str, str])

assert_type(
    orders.outer_join(payments, lambda order, payment: (order, payment), within=5),
    "KStream[str, tuple[Order | None, Payment | None]]",
)
assert_type(orders.outer_join(payments, lambda key, order, payment: key, within=5, with_key=True), KStream[str, str])

assert_type(order_table.join(totals, lambda order, total: order.total - total), KTable[int, float])
assert_type(order_table.join(customers, lambda order, customer: customer.name, on=lambda order: order.customer), KTable[int, str])
assert_type(
    order_table.join(customers, lambda order, customer: customer, on=lambda key, order: str(key), with_key=True),
    KTable[int, Customer],
)
assert_type(order_table.left_join(totals, lambda order, total: total), "KTable[int, float | None]")
assert_type(
    order_table.left_join(customers, lambda order, customer: customer, on=lambda order: order.customer),
    "KTable[int, Customer | None]",
)
assert_type(
    order_table.left_join(customers, lambda order, customer: order, on=lambda key, order: None, with_key=True), KTable[int, Order]
)
assert_type(order_table.outer_join(totals, lambda order, total: (order, total)), "KTable[int, tuple[Order | None, float | None]]")

orders.join(payments, paid)  # error: call-overload | reportArgumentType
orders.join(payments, paid, within="10m", on=lambda key, order: key)  # error: call-overload | reportCallIssue
orders.join(payments, lambda order: order, within="10m")  # error: arg-type | reportArgumentType
orders.join(payments, lambda order, payment: payment.nothing, within="10m")  # error: attr-defined | reportAttributeAccessIssue
orders.join(payments, paid, within="10m", with_key=True)  # error: call-overload | reportCallIssue
orders.join(numbered, paid, within="10m")  # error: arg-type | reportArgumentType
orders.join(customers, paid)  # error: arg-type | reportArgumentType
orders.join(customers, lambda order, customer: customer, within="10m")  # error: call-overload | reportArgumentType
orders.join(rates, lambda order, rate: rate)  # error: call-overload | reportArgumentType
orders.join(rates, lambda order, rate: rate, on=lambda key, order: order.at)  # error: arg-type | reportArgumentType
orders.join(rates, lambda order, rate: rate, on=lambda key, order: key, within="10m")  # error: call-overload | reportCallIssue
orders.join("payments", paid, within="10m")  # error: call-overload | reportArgumentType
orders.left_join("payments", maybe_paid, within="10m")  # error: call-overload | reportArgumentType
orders.left_join(payments, paid, within="10m")  # error: arg-type | reportArgumentType
orders.left_join(payments, lambda order, payment: payment.amount, within="10m")  # error: union-attr | reportOptionalMemberAccess
orders.left_join(customers, lambda order, customer: customer.name)  # error: union-attr | reportOptionalMemberAccess
orders.left_join(rates, lambda order, rate: rate * 2, on=lambda key, order: key)  # error: operator | reportOptionalOperand
orders.left_join(rates, lambda order, rate: rate)  # error: call-overload | reportArgumentType
orders.outer_join(payments, maybe_paid, within="10m")  # error: arg-type | reportArgumentType
orders.outer_join(payments, lambda order, payment: order)  # error: call-overload | reportCallIssue
orders.outer_join(customers, lambda order, customer: order)  # error: call-overload | reportCallIssue
orders.outer_join(payments, lambda order, payment: order, within=5, on=str)  # error: call-overload | reportCallIssue
order_table.join(customers, lambda order, customer: customer)  # error: arg-type | reportArgumentType
order_table.join(orders, lambda order, other: other)  # error: call-overload | reportArgumentType
order_table.join(customers, lambda order, customer: customer, on=lambda order: order.at)  # error: arg-type | reportArgumentType
order_table.join(totals, lambda order, total: order, with_key=True)  # error: call-overload | reportCallIssue
order_table.join(customers, lambda order, customer: order, on=lambda key, order: key)  # error: arg-type | reportArgumentType
order_table.left_join(totals, lambda order, total: total + 1)  # error: operator | reportOptionalOperand
order_table.left_join(customers, lambda key, order, other: key, on=lambda order: "ann")  # error: arg-type | reportArgumentType
order_table.outer_join(totals, lambda order, total: order.total)  # error: union-attr | reportOptionalMemberAccess
order_table.outer_join(totals, lambda order, total: order, on=lambda order: order.at)  # error: call-arg | reportCallIssue
