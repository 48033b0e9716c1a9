"""Test drivers, and queries of stores."""

from __future__ import annotations

from typing import Any

from orders import Order
from typing_extensions import assert_type

from penstock import App, KStream, Plugin, Record, StreamsBuilder, Windowed
from penstock.queries import KeyValueView, SessionView, TimestampedKeyValueView, VersionedView, WindowView
from penstock.records import ValueAndTimestamp, VersionedRecord
from penstock.testing import TopologyTestDriver

builder = StreamsBuilder()


def build(orders: KStream[str, Order]) -> None:
    """Build a part of a topology."""
    orders.map_values(lambda order: order.total).to("out", value=float)


class Loud(Plugin):
    """A plug-in."""

    @property
    def name(self) -> str:
        """Its name."""
        return "loud"


build(builder.stream("orders", key=str, value=Order))
app = App("orders", builder.build(), plugins=[Loud()])
order = Order("ann", 5, 0)

with TopologyTestDriver(app.topology) as driver:
    assert_type(driver, TopologyTestDriver)
    driver.input("orders").pipe(order, key="a")
    driver.input("orders", key=str, value=Order, advance="1s").pipe(order, key="a")
    driver.input("orders", value=Order).pipe(None)
    driver.input("orders", key=str).pipe_pairs([("a", order), ("b", None)])
    driver.input("orders", value=Order).pipe_values([order])
    driver.input("orders", key=str, value=Order).pipe_records([Record("a", order, 0)])
    assert_type(driver.output("out").read(), Record[Any, Any])
    assert_type(driver.output("out", value=float).read_value(), float)
    assert_type(driver.output("out", key=str).read_pair(), tuple[str, Any])
    assert_type(driver.output("out", key=str, value=float).table(), dict[str, float])
    assert_type(driver.output("out", key=str, value=float).records(), list[Record[str, float]])
    assert_type(driver.output("out", value=float).values(), list[float])
    assert_type(driver.output("out", key=str, value=float).pairs(), list[tuple[str, float]])
    driver.input("orders", value=Order).pipe("text")  # error: arg-type | reportArgumentType
    driver.input("orders", key=str).pipe(order, key=5)  # error: arg-type | reportArgumentType
    driver.input("orders", key=str, value=Order).pipe_pairs([(5, order)])  # error: list-item | reportArgumentType
    driver.output("out", value=float).read_value().upper()  # error: attr-defined | reportAttributeAccessIssue
    driver.output("out", value="float")  # error: call-overload | reportArgumentType
    driver.advance_wall_clock(None)  # error: arg-type | reportArgumentType


def ask(
    totals: TimestampedKeyValueView[str, float],
    counts: KeyValueView[str, int],
    windows: WindowView[str, int],
    sessions: SessionView[str, int],
    versions: VersionedView[str, Order],
) -> None:
    """The results of queries."""
    assert_type(totals["a"], float)
    assert_type(totals.entry("a"), "ValueAndTimestamp[float] | None")
    assert_type(totals.entries["a"], ValueAndTimestamp[float])
    assert_type(counts.get("a"), "int | None")
    assert_type(list(counts.items()), list[tuple[str, int]])
    assert_type(windows.fetch("a", 0), "int | None")
    assert_type(list(windows.all()), list[tuple[Windowed[str], int]])
    assert_type(list(sessions.fetch("a")), list[tuple[Windowed[str], int]])
    assert_type(versions.get("a"), "VersionedRecord[Order] | None")
    assert_type(list(versions.history("a", 0, 1)), list[VersionedRecord[Order]])
    counts.get(5)  # error: arg-type | reportArgumentType
    windows.fetch(5, 0)  # error: arg-type | reportArgumentType
    counts["a"] = 5  # error: index | reportIndexIssue


with app.start(on_state=lambda new, old: print(new.value, old.value), lanes=4) as running:
    assert_type(running.application_id, str)
    assert_type(running.epoch, int)
app.start(on_state=lambda new: None)  # error: arg-type | reportArgumentType
app.run(until=5)  # error: arg-type | reportArgumentType
