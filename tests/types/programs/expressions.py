"""Column expressions: their types, and those of what verbs make of them."""

from __future__ import annotations

from typing import Any

from orders import Customer, Order, Payment
from typing_extensions import assert_type

from penstock import (
    Expression,
    KGroupedStream,
    KStream,
    KTable,
    StreamsBuilder,
    Windowed,
    agg,
    col,
    left,
    right,
    struct,
    tumbling,
)
from penstock.expressions.agg import Aggregate

builder = StreamsBuilder()
orders = builder.stream("orders", key=str, value=Order)
customers = builder.table("customers", key=str, value=Customer)
everyone = builder.global_table("everyone", key=str, value=Customer)

assert_type(col("total"), Expression[Any])
assert_type(col("total", float), Expression[float])
assert_type(col("address", "country", str), Expression[str])
assert_type(col("total") > 5, Expression[bool])
assert_type((col("total") > 5) & ~col("customer").is_null(), Expression[bool])
assert_type(col("total", float).required(), Expression[float])
assert_type(struct(a=col("total"), b=1), Expression[dict[str, Any]])
assert_type(struct(into=Payment, amount=col("total")), Expression[Payment])
assert_type(agg.count(), Aggregate[int])
assert_type(agg.sum(col("total", float)), Aggregate[float])
assert_type(agg.max(col("total", float)), "Aggregate[float | None]")
assert_type(agg.mean(col("at", int)), "Aggregate[float | None]")
assert_type(agg.top(col("total", float), 3), Aggregate[list[float]])
assert_type(agg.count_distinct(col("customer")), Aggregate[int])

assert_type(orders.filter(col("total") > 5, col("at") > 0), KStream[str, Order])
assert_type(orders.filter_not(col("total") > 5), KStream[str, Order])
assert_type(orders.split(col("total") > 5, lambda key, order: order.at > 0), "tuple[KStream[str, Order], ...]")
assert_type(orders.map_values(struct(a=col("total"))), KStream[str, dict[str, Any]])
assert_type(orders.map_values(struct(into=Payment, amount=col("total"))), KStream[str, Payment])
assert_type(orders.map_values(col("total", float)), KStream[str, float])
assert_type(orders.select_key(col("at", int)), KStream[int, Order])
assert_type(orders.group_by(col("at", int)), KGroupedStream[int, Order])
assert_type(orders.join(customers, struct(a=left("total"), b=right("name"))), KStream[str, dict[str, Any]])
assert_type(orders.left_join(customers, struct(into=Payment, amount=left("total"))), KStream[str, Payment])
assert_type(orders.join(everyone, right("name", str), on=col("customer", str)), KStream[str, str])
assert_type(orders.outer_join(orders, left("at", int), within="1s"), KStream[str, int])

assert_type(customers.filter(col("name") == "ann"), KTable[str, Customer])
assert_type(customers.map_values(col("name", str)), KTable[str, str])
assert_type(customers.join(customers, struct(into=Payment, amount=left("name"))), KTable[str, Payment])
assert_type(customers.left_join(customers, right("name", str), on=col("name", str)), KTable[str, str])
assert_type(customers.to_stream(col("name", str)), KStream[str, Customer])

grouped = orders.group_by_key()
assert_type(grouped.agg(n=agg.count(), total=agg.sum(col("total"))), KTable[str, dict[str, Any]])
assert_type(grouped.agg(amount=agg.sum(col("total")), into=Payment, store="totals"), KTable[str, Payment])
assert_type(grouped.windowed_by(tumbling("1m")).agg(amount=agg.sum(col("total")), into=Payment), KTable[Windowed[str], Payment])
assert_type(customers.group_by(col("name", str)).agg(n=agg.count()), KTable[str, dict[str, Any]])

orders.filter(col("total") > 5, lambda key, order: order.at > 0)  # error: arg-type | reportArgumentType
orders.filter(col("total", float))  # error: arg-type | reportArgumentType
(col("total", float)) & (col("at") > 0)  # error: operator | reportOperatorIssue
grouped.agg(n=col("total"))  # error: call-overload | reportArgumentType
grouped.agg(amount=agg.sum("total"), into=Payment)  # error: arg-type | reportArgumentType
orders.map_values(struct(into=Payment, amount=col("total"))).to("out", value=Order)  # error: arg-type | reportArgumentType
agg.top(col("total"))  # error: call-arg | reportCallIssue
