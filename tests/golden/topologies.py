"""Topologies whose text forms are kept in files beside this one; each shows one kind of graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from penstock import (
    FixedKeyProcessor,
    Processor,
    Record,
    StreamsBuilder,
    Topology,
    key_value_store,
    otherwise,
    tumbling,
    until_window_closes,
)

T = TypeVar("T")


class Copy(Processor[str, str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


class CopyValue(FixedKeyProcessor[str, str, str]):
    def process(self, record: Record[str, str]) -> None:
        self.context.forward(record)


def _first(left: T, right: object) -> T:
    return left


def _key_of(key: str, value: str) -> str:
    return value


def word_count() -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("lines", value=str)
    words = lines.flat_map_values(str.split, value=str).group_by(_key_of)
    words.count(store="words").to_stream().to("counts")
    return builder.build()


def windowed_and_suppressed() -> Topology:
    builder = StreamsBuilder()
    clicks = builder.stream("clicks", value=str).group_by_key().windowed_by(tumbling("1m", grace="5s"))
    clicks.count().suppress(until_window_closes()).to_stream().to("clicks-per-minute")
    return builder.build()


def stream_stream_outer_join() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", value=str).select_key(_key_of)
    payments = builder.stream("payments", value=str)
    orders.outer_join(payments, _first, within="10m", grace="1m").to("paid")
    return builder.build()


def foreign_key_join() -> Topology:
    builder = StreamsBuilder()
    orders = builder.table("orders", value=str)
    customers = builder.table("customers", value=str)
    orders.join(customers, _first, on=lambda order: order).to_stream().to("enriched")
    return builder.build()


def cogroup() -> Topology:
    builder = StreamsBuilder()
    carts = builder.stream("carts", value=str).group_by_key()
    visits = builder.stream("visits", value=str).group_by(_key_of)
    both = carts.cogroup(lambda key, value, total: total + 1).cogroup(visits, lambda key, value, total: total + 1)
    both.aggregate(int, value=int, store="activity").to_stream().to("activity-changes")
    return builder.build()


def split_and_merge() -> Topology:
    builder = StreamsBuilder()
    orders = builder.stream("orders", value=str)
    big, rest = orders.split(lambda _, order: len(order) > 3, otherwise)
    named = rest.split(name="by-size-", small=lambda _, order: len(order) > 1, tiny=otherwise)
    big.merge(named["small"]).to("orders-kept")
    named["tiny"].foreach(lambda key, value: None)
    return builder.build()


def repartition() -> Topology:
    builder = StreamsBuilder()
    moved = builder.stream("events", value=str).select_key(_key_of).repartition(name="by-user", partitions=4)
    moved.group_by_key().reduce(_first, store="first").to_stream().to("first-events")
    moved.map(lambda key, value: (value, key)).repartition().to("swapped")
    return builder.build()


def global_table() -> Topology:
    builder = StreamsBuilder()
    rates = builder.global_table("rates", value=str, store="rates-by-currency")
    orders = builder.stream("orders", value=str)
    orders.join(rates, _first, on=_key_of).to("converted")
    return builder.build()


def processors() -> Topology:
    pending = key_value_store("pending", value=str)
    topology = Topology().add_source("orders", "orders", value=str).add_source("answers", "answers-eu", "answers-us", value=str)
    topology.add_processor("check", Copy, "orders", "answers").add_processor("audit", Copy, "orders")
    topology.add_state_store(pending, "check")
    topology.add_sink("accepted", "orders-accepted", "check", value=str).add_sink("audited", "audit-log", "audit", "check")
    return topology


def to_table_after_a_new_key() -> Topology:
    builder = StreamsBuilder()
    profiles = builder.stream("profiles", value=str).select_key(_key_of).to_table(store="by-name")
    visits = builder.stream("visits", value=str).process_values(CopyValue, name="stamp", value=str)
    visits.left_join(profiles, _first, value=str).to("visits-with-profile")
    return builder.build()


TOPOLOGIES: dict[str, Callable[[], Topology]] = {
    build.__name__: build
    for build in (
        word_count,
        windowed_and_suppressed,
        stream_stream_outer_join,
        foreign_key_join,
        cogroup,
        split_and_merge,
        repartition,
        global_table,
        processors,
        to_table_after_a_new_key,
    )
}
