"""The stateless verbs of streams, and sinks."""

from __future__ import annotations

from orders import Order
from typing_extensions import assert_type

from penstock import KGroupedStream, KStream, KTable, Record, RecordContext, StreamsBuilder, on_record, otherwise
from penstock.serdes import Float64, Json, String

builder = StreamsBuilder()
orders = builder.stream("orders", key=str, value=Order)
lines = builder.stream("lines", key=str, value=str)


def rich(key: str, order: Order) -> bool:
    """Whether the customer has spent much."""
    return order.total > 1000


def kept(order: Order) -> Order | None:
    """Return None, which deletes, for a void order."""
    return order if order.total else None


def tenant(record: Record[str, Order]) -> bytes | None:
    """Return the tenant that the headers name."""
    return dict(record.headers).get("tenant")


def by_size(key: str, order: Order, context: RecordContext) -> str:
    """Return the topic for an order of this size."""
    return f"orders-{order.total:.0f}-{context.partition}"


assert_type(orders.filter(rich), KStream[str, Order])
assert_type(orders.filter(lambda key, order: key and order.total), KStream[str, Order])
assert_type(orders.filter_not(rich), KStream[str, Order])
assert_type(orders.select_key(lambda _, order: order.at, key=int), KStream[int, Order])
assert_type(orders.map(lambda key, order: (order.customer, order.total)), KStream[str, float])
assert_type(orders.map_values(lambda order: order.total), KStream[str, float])
assert_type(orders.map_values(lambda key, order: (key, order.at), with_key=True), KStream[str, tuple[str, int]])
assert_type(orders.map_values(kept), "KStream[str, Order | None]")
assert_type(orders.flat_map(lambda key, order: [(order.at, key)]), KStream[int, str])
assert_type(lines.flat_map_values(str.split), KStream[str, str])
assert_type(lines.flat_map_values(lambda key, line: [key, line], with_key=True), KStream[str, str])
assert_type(orders.peek(lambda key, order: print(key, order.total)), KStream[str, Order])
orders.foreach(lambda key, order: print(key, order.total))
orders.print(label="orders", mapper=lambda key, order: f"{key} {order.total}")

big, small = orders.split(rich, otherwise)
assert_type(big, KStream[str, Order])
assert_type(orders.split(lambda key, order: order.total > 5, otherwise), "tuple[KStream[str, Order], ...]")
assert_type(orders.split(big=rich, rest=otherwise), dict[str, KStream[str, Order]])
assert_type(orders.split(big=rich, rest=otherwise, name="by-size")["big"], KStream[str, Order])
assert_type(big.merge(small), KStream[str, Order])
assert_type(big.deduplicate(by=lambda key, order: order.total, within="1h"), KStream[str, Order])

assert_type(orders.filter(on_record(lambda record: record.value.total > 5)), KStream[str, Order])
assert_type(orders.filter_not(on_record(tenant)), KStream[str, Order])
assert_type(orders.select_key(on_record(lambda record: record.timestamp)), KStream[int, Order])
assert_type(orders.map(on_record(lambda record: (record.timestamp, record.value.total))), KStream[int, float])
assert_type(orders.map_values(on_record(tenant)), "KStream[str, bytes | None]")
assert_type(orders.map_values(on_record(lambda record: record.value.total)), KStream[str, float])
assert_type(orders.flat_map(on_record(lambda record: [(record.timestamp, record.key)])), KStream[int, str])
assert_type(orders.flat_map_values(on_record(lambda record: record.headers)), "KStream[str, tuple[str, bytes | None]]")
assert_type(orders.peek(on_record(lambda record: print(record.headers))), KStream[str, Order])
orders.foreach(on_record(lambda record: print(record.headers)))
assert_type(orders.split(on_record(lambda record: record.value.total > 5), rich), "tuple[KStream[str, Order], ...]")
assert_type(orders.split(big=on_record(tenant), rest=otherwise), dict[str, KStream[str, Order]])
assert_type(orders.group_by(on_record(lambda record: record.timestamp), key=int), KGroupedStream[int, Order])

assert_type(orders.repartition(name="again", key=str, value=Json(Order)), KStream[str, Order])
assert_type(orders.to_table(store="orders", value=Order), KTable[str, Order])
assert_type(orders.group_by_key(key=str, value=Order), KGroupedStream[str, Order])
assert_type(orders.group_by(lambda _, order: order.at, key=int), KGroupedStream[int, Order])
orders.to("out")
orders.to("out", key=str, value=Order)
orders.to("out", key=String(), value=Json(Order), partitioner=lambda topic, key, order, count: order.at % count)
orders.to(by_size)
orders.to(lambda key, order, context: order.customer + str(context.topic))
orders.map_values(kept).to("out", value=Order)  # null needs no serde
orders.map_values(kept).to("out", key=String(), value=Json(Order))
anything: KStream[str, object] = orders  # records only come out of a stream

orders.filter(lambda key: key)  # error: arg-type | reportArgumentType
orders.filter(lambda key, order: order.nothing)  # error: attr-defined | reportAttributeAccessIssue
orders.filter_not(str.split)  # error: arg-type | reportArgumentType
orders.select_key(lambda order: order)  # error: arg-type | reportArgumentType
orders.map(lambda key, order: order.total)  # error: arg-type | reportArgumentType
orders.map_values(lambda key, order: order)  # error: arg-type | reportArgumentType
orders.map_values(str.upper)  # error: arg-type | reportArgumentType
orders.map_values(lambda order: order, with_key=True)  # error: call-overload | reportCallIssue
orders.map_values(rich, with_key=False)  # error: call-overload | reportCallIssue
orders.flat_map(lambda key, order: order.total)  # error: arg-type | reportArgumentType
orders.flat_map_values(lambda order: order.total)  # error: arg-type | reportArgumentType
orders.peek(print, "name")  # error: call-arg | reportCallIssue
orders.foreach(lambda order: None)  # error: arg-type | reportArgumentType
orders.print(mapper=lambda key, order: order.total)  # error: arg-type | reportArgumentType
orders.split(5, otherwise)  # error: call-overload | reportArgumentType
orders.split(big=lambda order: order)  # error: arg-type | reportArgumentType
orders.split(rich, rest=otherwise)  # error: call-overload | reportCallIssue
orders.split(rich, otherwise).values()  # error: attr-defined | reportAttributeAccessIssue
orders.merge(lines)  # error: arg-type | reportArgumentType
orders.merge(orders.to_table())  # error: arg-type | reportArgumentType
orders.repartition(value=str)  # error: arg-type | reportArgumentType
orders.to_table(key=int)  # error: arg-type | reportArgumentType
orders.group_by_key(value=float)  # error: arg-type | reportArgumentType
orders.group_by(lambda order: order.at)  # error: arg-type | reportArgumentType
orders.group_by(lambda _, order: order.at, value=str)  # error: arg-type | reportArgumentType
orders.to(5)  # error: arg-type | reportArgumentType
orders.to("out", value=str)  # error: arg-type | reportArgumentType
orders.to("out", key=Float64())  # error: arg-type | reportArgumentType
orders.map_values(kept).to("out", value=str)  # error: arg-type | reportArgumentType
orders.map_values(lambda order: order.total).to("out", value=Order)  # error: arg-type | reportArgumentType
orders.to(lambda key, order: order.customer)  # error: arg-type | reportArgumentType
orders.to("out", partitioner=lambda topic, key, order, count: order.customer)  # error: arg-type | reportArgumentType
text: KStream[str, str] = orders  # error: assignment | reportAssignmentType
orders.late_records().upper()  # error: attr-defined | reportAttributeAccessIssue
lines.filter(on_record(tenant))  # error: arg-type | reportArgumentType
orders.map_values(on_record(tenant), with_key=True)  # error: call-overload | reportCallIssue
orders.to_table().filter(on_record(tenant))  # error: arg-type | reportArgumentType
