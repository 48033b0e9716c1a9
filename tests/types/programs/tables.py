"""Tables and aggregations: grouped, windowed, cogrouped, suppressed."""

from __future__ import annotations

from orders import Order, Payment
from typing_extensions import assert_type

from penstock import (
    CogroupedKStream,
    EmitStrategy,
    KGroupedTable,
    KStream,
    KTable,
    Store,
    StreamsBuilder,
    ValueTransformer,
    Windowed,
    WindowedCogroupedKStream,
    WindowedKStream,
    hopping,
    session,
    tumbling,
    until_window_closes,
)

builder = StreamsBuilder()
table = builder.table("orders", key=str, value=Order)
orders = builder.stream("placed", key=str, value=Order).group_by_key()
payments = builder.stream("payments", key=str, value=Payment).group_by_key()
numbered = builder.stream("numbered", key=int, value=Payment).group_by_key()


class Rounded(ValueTransformer[str, Order, int]):
    """Rounds totals."""

    def transform(self, key: str, value: Order) -> int:
        """Round the total."""
        return round(value.total)


def add_order(key: str, order: Order, total: float) -> float:
    """Add an order."""
    return total + order.total


def add_payment(key: str, payment: Payment, total: float) -> float:
    """Add a payment."""
    return total - payment.amount


def add_totals(key: str, one: float, two: float) -> float:
    """Merge the totals of two sessions."""
    return one + two


assert_type(table.filter(lambda key, order: order.total > 5, store="large"), KTable[str, Order])
assert_type(table.filter_not(lambda key, order: key == "x"), KTable[str, Order])
assert_type(table.map_values(lambda order: order.total, store=Store("totals")), KTable[str, float])
assert_type(table.map_values(lambda key, order: key, with_key=True), KTable[str, str])
assert_type(table.transform_values(Rounded), KTable[str, int])
assert_type(table.to_stream(), KStream[str, Order])
assert_type(table.to_stream(lambda key, order: order.at, key=int), KStream[int, Order])
assert_type(table.group_by(lambda key, order: (order.at, order.total)), KGroupedTable[int, float])

regrouped = table.group_by(lambda key, order: (order.customer, order.total), value=float)
assert_type(regrouped.count(store="orders-of"), KTable[str, int])
assert_type(regrouped.reduce(lambda total, new: total + new, lambda total, old: total - old), KTable[str, float])
assert_type(regrouped.aggregate(int, lambda key, new, count: count + 1, lambda key, old, count: count - 1), KTable[str, int])

assert_type(orders.count(), KTable[str, int])
assert_type(orders.reduce(lambda one, two: two), KTable[str, Order])
assert_type(orders.aggregate(float, add_order, value=float), KTable[str, float])
assert_type(orders.aggregate(float, lambda key, order, total: total + order.total), KTable[str, float])

windowed = orders.windowed_by(tumbling("1m", grace="5s"))
assert_type(windowed, WindowedKStream[str, Order])
assert_type(windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE), WindowedKStream[str, Order])
assert_type(windowed.count(), KTable[Windowed[str], int])
assert_type(windowed.count().suppress(until_window_closes()), KTable[Windowed[str], int])
assert_type(windowed.count().to_stream(lambda window, count: window.key), KStream[str, int])
assert_type(windowed.count().to_stream().map(lambda window, count: (window.start, window.key)), KStream[int, str])
assert_type(windowed.reduce(lambda one, two: one), KTable[Windowed[str], Order])
assert_type(windowed.aggregate(float, add_order), KTable[Windowed[str], float])
assert_type(orders.windowed_by(session("1m")).aggregate(float, add_order, add_totals), KTable[Windowed[str], float])

cogrouped = orders.cogroup(add_order)
assert_type(cogrouped, CogroupedKStream[str, float])
assert_type(cogrouped.cogroup(payments, add_payment), CogroupedKStream[str, float])
assert_type(cogrouped.cogroup(payments, lambda key, payment, total: total - payment.amount), CogroupedKStream[str, float])
assert_type(cogrouped.aggregate(float, value=float), KTable[str, float])
assert_type(cogrouped.windowed_by(hopping("1m", advance="10s")), WindowedCogroupedKStream[str, float])
assert_type(cogrouped.windowed_by(tumbling("1m")).cogroup(payments, add_payment).aggregate(float), KTable[Windowed[str], float])
assert_type(cogrouped.windowed_by(session("1m")).aggregate(float, add_totals), KTable[Windowed[str], float])

table.filter(lambda order: order.total)  # error: arg-type | reportArgumentType
table.filter_not(lambda key, order: order.nothing)  # error: attr-defined | reportAttributeAccessIssue
table.map_values(lambda key, order: order)  # error: arg-type | reportArgumentType
table.transform_values(Order)  # error: arg-type | reportArgumentType
numbered.count().transform_values(Rounded)  # error: arg-type | reportArgumentType
table.to_stream(key=int)  # error: call-overload | reportCallIssue
table.to_stream(lambda order: order.at)  # error: arg-type | reportArgumentType
table.suppress("1m")  # error: arg-type | reportArgumentType
table.group_by(lambda key, order: order.total)  # error: arg-type | reportArgumentType
regrouped.reduce(lambda total, new: total + new)  # error: call-arg | reportCallIssue
regrouped.aggregate(int, lambda key, new, count: count, lambda key, old: old)  # error: arg-type | reportArgumentType
orders.count("name")  # error: call-arg | reportCallIssue
orders.reduce(lambda one, two: one.total)  # error: arg-type | reportArgumentType
orders.aggregate(str, add_order)  # error: misc | reportArgumentType
orders.aggregate(float, lambda order, total: total)  # error: arg-type | reportArgumentType
orders.windowed_by("1m")  # error: arg-type | reportArgumentType
windowed.emit_strategy("on_window_close")  # error: arg-type | reportArgumentType
windowed.reduce(lambda one: one)  # error: arg-type | reportArgumentType
windowed.aggregate(float, add_payment)  # error: arg-type | reportArgumentType
windowed.count().to_stream().to("out", key=str)  # error: arg-type | reportArgumentType
cogrouped.cogroup(payments, add_order)  # error: arg-type | reportArgumentType
cogrouped.cogroup(numbered, add_payment)  # error: arg-type | reportArgumentType
cogrouped.aggregate(float, add_totals)  # error: call-arg | reportCallIssue
cogrouped.aggregate(str)  # error: arg-type | reportArgumentType
cogrouped.windowed_by(session("1m")).aggregate(float, add_order)  # error: arg-type | reportArgumentType
