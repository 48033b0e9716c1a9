"""The measured topologies on Penstock, with lambdas.

Usage: penstock_app.py TOPOLOGY SOURCE,SOURCE SINK APPLICATION_ID BOOTSTRAP_SERVERS STATE_DIR LANES
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from penstock import App, StreamsBuilder, Topology, Windowed, hopping, session, until_window_closes
from penstock.serdes import Json

Value = dict[str, Any]
Pair = list[int]


def nothing() -> Pair:
    """No record yet."""
    return [0, 0]


def add_amount(key: str, value: Value, total: Pair) -> Pair:
    """Count and sum."""
    return [total[0] + 1, total[1] + value["amount"]]


def add_number(key: str, number: int, total: Pair) -> Pair:
    """Count and sum."""
    return [total[0] + 1, total[1] + number]


def merged(key: str, one: Pair, two: Pair) -> Pair:
    """The sum of two sessions."""
    return [one[0] + two[0], one[1] + two[1]]


def at_start(windowed: Windowed[str], value: Any) -> str:
    """The key of a result: the key, and when its window began."""
    return f"{windowed.key}@{windowed.start}"


def stateless(builder: StreamsBuilder, sink: str, source: str) -> None:
    """(A) Filter and map."""
    records = builder.stream(source, value=dict).filter(lambda _, value: value["amount"] % 2 == 0)
    records.map_values(lambda value: {**value, "amount": 2 * value["amount"]}).to(sink)


def passed_on(builder: StreamsBuilder, sink: str, source: str) -> None:
    """(I) Every record as it is."""
    builder.stream(source).to(sink)


def totals(builder: StreamsBuilder, sink: str, source: str) -> None:
    """(B, H) Count and sum by key."""
    builder.stream(source, value=dict).group_by_key().aggregate(nothing, add_amount, store="totals").to_stream().to(sink)


def words(builder: StreamsBuilder, sink: str, source: str) -> None:
    """(C) Word count."""
    separate = builder.stream(source, value=str).flat_map_values(str.split)
    separate.group_by(lambda _, word: word).count(store="words").to_stream().to(sink, value=Json())


def enriched(builder: StreamsBuilder, sink: str, orders: str, users: str) -> None:
    """(D) Stream–table join, then count and sum by region."""
    joined = builder.stream(orders, value=dict).join(
        builder.table(users, value=dict, store="users"), lambda order, user: [user["region"], order["amount"] * user["rate"]]
    )
    by_region = joined.group_by(lambda _, sale: sale[0])
    by_region.aggregate(nothing, lambda _, sale, total: [total[0] + 1, total[1] + sale[1]], store="regions").to_stream().to(sink)


def foreign_keys(builder: StreamsBuilder, sink: str, orders: str, customers: str) -> None:
    """(E) Foreign-key join."""
    joined = builder.table(orders, value=dict, store="orders").join(
        builder.table(customers, value=dict, store="customers"),
        lambda order, customer: {"amount": order["amount"], "name": customer["name"]},
        on=lambda order: order["customer"],
    )
    joined.to_stream().to(sink)


def hopping_windows(builder: StreamsBuilder, sink: str, source: str) -> None:
    """(F) Count and sum by key in hopping windows."""
    windows = builder.stream(source, value=dict).group_by_key().windowed_by(hopping("10s", "5s", grace="30s"))
    windows.aggregate(nothing, add_amount, store="windows").to_stream(at_start, key=str).to(sink)


def sessions(builder: StreamsBuilder, sink: str, source: str) -> None:
    """(G) Count and sum of closed sessions."""
    windows = builder.stream(source, value=dict).group_by_key().windowed_by(session("5s", grace="1s"))
    closed = windows.aggregate(nothing, add_amount, merged, store="sessions").suppress(until_window_closes())
    closed.to_stream(at_start, key=str).to(sink)


def rekeyed(builder: StreamsBuilder, sink: str, source: str) -> None:
    """(I) Count and sum by key, twice, each time under a new key."""
    first = builder.stream(source, value=dict).select_key(lambda key, _: "a" + key).group_by_key()
    second = first.aggregate(nothing, add_amount, store="first").to_stream().select_key(lambda key, _: "b" + key).group_by_key()
    second.aggregate(nothing, lambda _, value, total: [total[0] + 1, total[1] + value[1]], store="second").to_stream().to(sink)


def rekeyed_times(depth: int) -> Callable[[StreamsBuilder, str, str], None]:
    """(M) Count and sum by key behind as many exchanges."""

    def build(builder: StreamsBuilder, sink: str, source: str) -> None:
        stream = builder.stream(source, value=dict).map_values(lambda value: value["amount"])
        for _ in range(depth):
            stream = stream.select_key(lambda key, _: "a" + key).repartition(value=int)
        stream.group_by_key().aggregate(nothing, add_number, store="totals", value=Json()).to_stream().to(sink)

    return build


Topologies = Mapping[str, Callable[..., None]]
TOPOLOGIES: Topologies = {
    "stateless": stateless,
    "passed-on": passed_on,
    "totals": totals,
    "words": words,
    "enriched": enriched,
    "foreign-keys": foreign_keys,
    "hopping": hopping_windows,
    "sessions": sessions,
    "rekeyed": rekeyed,
    **{f"depth-{depth}": rekeyed_times(depth) for depth in range(1, 7)},
}


def topology(name: str, sources: list[str], sink: str, topologies: Topologies = TOPOLOGIES) -> Topology:
    """A topology by its name."""
    builder = StreamsBuilder()
    topologies[name](builder, sink, *sources)
    return builder.build()


def main(topologies: Topologies) -> None:
    """Run one of the topologies until SIGTERM."""
    name, sources, sink, application_id, bootstrap_servers, state_dir, lanes = sys.argv[1:]
    built = topology(name, sources.split(","), sink, topologies)
    App(application_id, built).run(
        bootstrap_servers=bootstrap_servers, lanes=int(lanes), shards=max(8, 4 * int(lanes)), state_dir=state_dir
    )


if __name__ == "__main__":
    main(TOPOLOGIES)
