"""Processors, asynchronous verbs and side outputs: results have the types of the user's code."""

from __future__ import annotations

from functools import partial
from typing import Any

from orders import Order
from typing_extensions import assert_type

from penstock import (
    CallContext,
    FixedKeyProcessor,
    KStream,
    Processor,
    PunctuationType,
    Record,
    SideOutput,
    StreamsBuilder,
    Timer,
)


class Client:
    """A client of another system."""

    async def score(self, order: Order) -> float:
        """Return the score of an order."""
        return order.total


class Total(Processor[str, Order, int, float]):
    """Totals by time."""

    def process(self, record: Record[str, Order]) -> None:
        """Under another key."""
        assert_type(record.with_value(5), Record[str, int])
        self.context.forward(record.with_key(record.value.at).with_value(record.value.total))
        self.context.schedule("1m", PunctuationType.WALL_CLOCK_TIME, lambda timestamp: None)
        self.context.forward(record)  # error: arg-type | reportArgumentType
        self.context.schedule(None, PunctuationType.STREAM_TIME, lambda timestamp: None)  # error: arg-type | reportArgumentType

    def on_timer(self, timer: Timer) -> None:
        """Forward the total of one key."""
        assert_type(timer.time, int)


class TotalValue(FixedKeyProcessor[str, Order, float]):
    """Totals."""

    def process(self, record: Record[str, Order]) -> None:
        """Under the same key."""
        self.context.forward(record.with_value(record.value.total))


async def score(order: Order) -> float:
    """One call for one order."""
    return order.total


async def score_or_reject(order: Order) -> float | SideOutput:
    """Send some orders to a side output."""
    return order.total or SideOutput("rejected", order)


async def score_by_client(order: Order, client: Client) -> float:
    """With the client from `setup=`."""
    return await client.score(order)


async def score_of_key(key: str, order: Order) -> float:
    """With the key."""
    return order.total + len(key)


async def score_many(requests: list[tuple[str, Order]]) -> list[float]:
    """One call for many orders."""
    return [order.total for _, order in requests]


def blocking(order: Order) -> float:
    """In a thread."""
    return order.total


async def moved(key: str, order: Order) -> tuple[int, float]:
    """Under another key."""
    return order.at, order.total


async def moved_many(requests: list[tuple[str, Order]]) -> list[tuple[int, float]]:
    """All under other keys."""
    return [(order.at, order.total) for _, order in requests]


def blocking_move(key: str, order: Order) -> tuple[int, float]:
    """In a thread."""
    return order.at, order.total


async def spread(record: Record[str, Order], context: CallContext[int, float]) -> None:
    """Any number of results."""
    context.forward(record.with_key(record.value.at).with_value(record.value.total))
    context.forward(record)  # error: arg-type | reportArgumentType


async def spread_by_client(record: Record[str, Order], context: CallContext[str, float], client: Client) -> None:
    """Any number of results, with the client from `setup=`."""
    context.forward(record.with_value(await client.score(record.value)))


builder = StreamsBuilder()
orders = builder.stream("orders", key=str, value=Order)
lines = builder.stream("lines", key=str, value=str)

totals = orders.process(Total, stores=["totals"], key=int, value=float)
assert_type(totals, KStream[int, float])
assert_type(orders.process(partial(Total)), KStream[int, float])
assert_type(orders.process_values(TotalValue, value=float), KStream[str, float])
assert_type(orders.process_atomically(Total, stores=["totals"]), KStream[int, float])

assert_type(totals.side_output("all"), KStream[int, Any])
assert_type(totals.side_output("all", value=Order), KStream[int, Order])
assert_type(totals.side_output("all", key=str), KStream[str, Any])
assert_type(totals.side_output("all", key=str, value=Order), KStream[str, Order])

assert_type(orders.map_values_async(score, concurrency=8, timeout="2s"), KStream[str, float])
assert_type(orders.map_values_async(score_or_reject), KStream[str, float])
assert_type(orders.map_values_async(score_by_client, setup=Client), KStream[str, float])
assert_type(orders.map_values_async(score_of_key, with_key=True), KStream[str, float])
assert_type(orders.map_values_async(score_many, batch=100), KStream[str, float])
assert_type(orders.map_values_async(blocking), KStream[str, float])
assert_type(orders.map_async(moved, key=int, value=float), KStream[int, float])
assert_type(orders.map_async(moved_many, batch=10), KStream[int, float])
assert_type(orders.map_async(blocking_move), KStream[int, float])
assert_type(orders.process_async(spread, key=int, value=float), KStream[int, float])
assert_type(orders.process_async(spread_by_client, setup=Client), KStream[str, float])

orders.process(Order)  # error: arg-type | reportArgumentType
orders.process(Total())  # error: arg-type | reportArgumentType
lines.process(Total)  # error: arg-type | reportArgumentType
totals.process(Total)  # error: arg-type | reportArgumentType
orders.process_values(Total)  # error: arg-type | reportArgumentType
lines.process_values(TotalValue)  # error: arg-type | reportArgumentType
orders.process_atomically(Total)  # error: call-arg | reportCallIssue
lines.process_atomically(Total, stores=["totals"])  # error: arg-type | reportArgumentType
totals.side_output(5)  # error: call-overload | reportArgumentType
totals.side_output("all", value="text")  # error: call-overload | reportArgumentType
totals.to("out", value=str)  # error: arg-type | reportArgumentType
lines.map_values_async(score)  # error: arg-type | reportCallIssue
orders.map_values_async(score_of_key)  # error: arg-type | reportCallIssue
orders.map_values_async(score, with_key=True)  # error: call-overload | reportCallIssue
orders.map_values_async(score, batch=100)  # error: arg-type | reportCallIssue
orders.map_values_async(score).to("out", value=str)  # error: arg-type | reportArgumentType
orders.map_async(score)  # error: arg-type | reportCallIssue
lines.map_async(moved)  # error: arg-type | reportCallIssue
orders.process_async(score)  # error: arg-type | reportArgumentType
lines.process_async(spread)  # error: arg-type | reportArgumentType
