"""Sources: the types of topics, and the serdes that determine them."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from orders import Customer, Order
from typing_extensions import assert_type

from penstock import (
    App,
    GlobalKTable,
    Int32,
    KStream,
    KTable,
    MsgPack,
    Processor,
    Record,
    Serde,
    SessionWindowed,
    StreamsBuilder,
    TimeWindowed,
    Topology,
    Windowed,
    bounded_disorder,
    key_value_store,
    log_and_continue,
)
from penstock.serdes import Float32, Json, List, String, UUIDs

builder = StreamsBuilder()

assert_type(builder.stream("orders"), KStream[Any, Any])
assert_type(builder.stream("orders", value=Order), KStream[Any, Order])
assert_type(builder.stream("orders", key=str), KStream[str, Any])
assert_type(builder.stream("orders", key=str, value=Order), KStream[str, Order])
assert_type(builder.stream(["a", "b"], key=UUIDs(), value=Json(Order)), KStream[UUID, Order])
assert_type(builder.stream(re.compile("orders-.*"), key=Int32(), value=MsgPack(Order)), KStream[int, Order])
assert_type(builder.stream("orders", key=str, value=list[int]), KStream[str, list[int]])
assert_type(builder.stream("late", value=Order, timestamp=lambda record: record.value.at), KStream[Any, Order])
late = builder.stream("late", key=str, value=Order, watermark=bounded_disorder("10s"), late=log_and_continue())
assert_type(late.late_records(), KStream[str, Order])

assert_type(builder.table("customers"), KTable[Any, Any])
assert_type(builder.table("customers", value=Customer), KTable[Any, Customer])
assert_type(builder.table("customers", key=str), KTable[str, Any])
assert_type(builder.table("customers", key=str, value=Customer, store="customers"), KTable[str, Customer])

assert_type(builder.global_table("rates"), GlobalKTable[Any, Any])
assert_type(builder.global_table("rates", value=float), GlobalKTable[Any, float])
assert_type(builder.global_table("rates", key=str), GlobalKTable[str, Any])
assert_type(builder.global_table("rates", key=str, value=Float32()), GlobalKTable[str, float])
assert_type(builder.table("customers", key=str, value=Customer).queryable_store_name, "str | None")

assert_type(builder.schedule("nightly", cron="0 2 * * *"), KStream[str, int])


class Keep(Processor[str, Customer, None, None]):
    """Keeps customers."""

    def process(self, record: Record[str, Customer]) -> None:
        """Put the record into the store."""
        self.context.store("kept")[record.key] = record.value


kept = key_value_store("kept", value=Customer)
assert_type(builder.add_state_store(key_value_store("seen", value=int)), StreamsBuilder)
assert_type(builder.add_global_store(kept, "customers", Keep, key=str, value=Customer), StreamsBuilder)
assert_type(builder.build(), Topology)
assert_type(App("orders", builder.build()).application_id, str)

assert_type(String().deserialize(b""), str)
assert_type(Json(Order), Json[Order])
assert_type(List(int), List[int])
assert_type(List(int).deserialize(b""), "list[int | None]")
assert_type(TimeWindowed(str, 10), TimeWindowed[str])
windowed: Serde[Windowed[str]] = SessionWindowed(str)

builder.stream(5)  # error: call-overload | reportArgumentType
builder.stream("orders", value="text")  # error: call-overload | reportArgumentType
builder.stream("orders", value=Order, timestamp=lambda record: record.value)  # error: return-value | reportArgumentType
builder.table(["a", "b"], value=Order)  # error: call-overload | reportArgumentType
builder.global_table("rates", values=float)  # error: call-overload | reportCallIssue
builder.add_global_store(kept, "customers", Keep, key=int)  # error: arg-type | reportArgumentType
builder.add_global_store(kept, "customers", Customer)  # error: arg-type | reportArgumentType
String().serialize(5)  # error: arg-type | reportArgumentType
Json(Order).serialize("text")  # error: arg-type | reportArgumentType
TimeWindowed(str, 10).serialize(Windowed(5, 0, 10))  # error: arg-type | reportArgumentType
