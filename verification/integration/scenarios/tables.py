"""Tables: joined with each other by key and by foreign key, grouped again, versioned, transformed, expiring."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from penstock import Store, StreamsBuilder, Topology, ValueTransformer, key_value_store
from verification.integration.inputs import START_MS, any_key, closing, fed, forward_moments, moments, one_phase
from verification.integration.scenario import Fed, Output, Phase, Reading, Scenario, Setup


def _both(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def _joined_from_one_topic(setup: Setup) -> Topology:
    """Three joins of two tables from one topic, so that their changes have one order."""
    builder = StreamsBuilder()
    streams = builder.stream(setup.topic("rows"), value=str).split(lambda _, value: value.startswith("L"), lambda _, value: True)
    left, right = (
        stream.map_values(_null_if_gone).to_table(store=setup.store(name, value=str), value=str)
        for name, stream in zip(("left", "right"), streams, strict=True)
    )
    left.join(right, _both, store=setup.store("inner", value=str)).to_stream().to(setup.topic("inner"), value=str)
    left.left_join(right, _both, store=setup.store("outer-left", value=str)).to_stream().to(setup.topic("left"), value=str)
    left.outer_join(right, _both).to_stream().to(setup.topic("outer"), value=str)
    return builder.build()


def _null_if_gone(value: str) -> str | None:
    return None if value.endswith("7") else value


def _rows(rng: Random, count: int) -> Sequence[Phase]:
    times = moments(rng, count)
    return one_phase([fed("rows", any_key(rng), f"{rng.choice('LR')}{rng.randrange(1000)}", time) for time in times])


def _joined_from_two_topics(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    left = builder.table(setup.topic("left"), value=str, store=setup.store("left"))
    right = builder.table(setup.topic("right"), value=str, store=setup.store("right"))
    joined = left.outer_join(right, _both, store=setup.store("joined", value=str))
    joined.to_stream().to(setup.topic("joined"), value=str)
    joined.filter(lambda _, value: "None" not in value).map_values(len, value=int).to_stream().to(
        setup.topic("lengths"), value=int
    )
    return builder.build()


def _two_topics(rng: Random, count: int) -> Sequence[Phase]:
    phases = []
    for turn in range(6):
        topic = ("left", "right")[turn % 2]
        times = moments(rng, max(1, count // 6))
        phases.append(Phase([fed(topic, any_key(rng), None if rng.random() < 0.1 else f"{topic}{time}", time) for time in times]))
    return phases


def _by_foreign_key(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    orders = builder.table(setup.topic("orders"), value=str, store=setup.store("orders"))
    customers = builder.table(setup.topic("customers"), value=str, store=setup.store("customers"))
    inner = orders.join(customers, _both, on=_customer, store=setup.store("inner", value=str))
    inner.to_stream().to(setup.topic("inner"), value=str)
    orders.left_join(customers, _both, on=_customer, value=str).to_stream().to(setup.topic("left"), value=str)
    return builder.build()


def _customer(order: str) -> str | None:
    customer = order.split(maxsplit=1)[0]
    return None if customer == "nobody" else customer


def _orders_once_a_turn(rng: Random, count: int) -> Sequence[Phase]:
    """An order changes at most once per turn: an answer that a later change in its epoch overtakes is dropped, by design."""
    phases = []
    for turn in range(6):
        size = max(1, count // 6)
        if turn % 2:
            phases.append(Phase([_customer_row(rng, time) for time in moments(rng, size)]))
        else:
            chosen = rng.sample(range(2 * size), size)
            phases.append(
                Phase([_order_row(rng, f"o{number}", time) for number, time in zip(chosen, moments(rng, size), strict=True)])
            )
    return phases


def _orders_at_any_time(rng: Random, count: int) -> Sequence[Phase]:
    phases = []
    for turn in range(6):
        times = moments(rng, max(1, count // 6))
        rows = [_customer_row(rng, time) if turn % 2 else _order_row(rng, f"o{rng.randrange(60)}", time) for time in times]
        phases.append(Phase(rows))
    return phases


def _order_row(rng: Random, order: str, time: int) -> Fed:
    chance = rng.random()
    customer = "nobody" if chance < 0.1 else f"c{min(rng.randrange(25), rng.randrange(25))}"
    return fed("orders", order, None if chance > 0.9 else f"{customer} {rng.randrange(1000)}", time)


def _customer_row(rng: Random, time: int) -> Fed:
    return fed("customers", f"c{rng.randrange(20)}", None if rng.random() < 0.2 else f"name{rng.randrange(1000)}", time)


def _grouped_again(setup: Setup) -> Topology:
    """A table's rows move between groups: subtracted from one, added to another, in the order of their changes."""
    builder = StreamsBuilder()
    members = builder.table(setup.topic("members"), value=str, store=setup.store("members"))
    by_team = members.group_by(lambda member, team: (team.split()[0], member), key=str, value=str)
    by_team.count(store=setup.store("sizes")).to_stream().to(setup.topic("sizes"), value=int)
    (
        by_team.aggregate(list, _joined_team, _left_team, store=setup.store("teams", value=list))
        .to_stream()
        .to(setup.topic("teams"), value=list)
    )
    (
        members.group_by(lambda member, team: (team.split()[0], int(team.split()[1])), key=str, value=int)
        .reduce(int.__add__, int.__sub__, store=setup.store("scores"))
        .to_stream()
        .to(setup.topic("scores"), value=int)
    )
    return builder.build()


def _joined_team(_: str, member: str, team: list[str]) -> list[str]:
    return sorted([*team, member])


def _left_team(_: str, member: str, team: list[str]) -> list[str]:
    return [other for other in team if other != member]


def _members(rng: Random, count: int) -> Sequence[Phase]:
    """Every team has a permanent member: with caches, a team that others only pass through might never be emitted."""
    records = [fed("members", f"founder {team}", f"t{team} 1", START_MS) for team in range(12)]
    for time in moments(rng, count):
        team = None if rng.random() < 0.1 else f"t{rng.randrange(12)} {rng.randrange(100)}"
        records.append(fed("members", any_key(rng), team, time))
    return one_phase(records)


def _versioned(setup: Setup) -> Topology:
    """Versioned tables: late changes are inserted in order, and only the newest reaches joins and groups."""
    builder = StreamsBuilder()
    prices = builder.table(setup.topic("prices"), value=str, store=setup.store("prices", history="2h"))
    stock = builder.table(setup.topic("stock"), value=str, store=setup.store("stock", history="2h"))
    prices.filter(lambda _, price: int(price) % 3 > 0).to_stream().to(setup.topic("filtered"), value=str)
    prices.join(stock, _both, value=str).to_stream().to(setup.topic("joined"), value=str)
    (
        prices.group_by(lambda _, price: (f"d{price[-1]}", price), key=str, value=str)
        .count(store=setup.store("by-digit"))
        .to_stream()
        .to(setup.topic("by-digit"), value=int)
    )
    (builder.stream(setup.topic("asked"), value=str).left_join(prices, _both).to(setup.topic("as-of"), value=str))
    return builder.build()


def _prices(rng: Random, count: int) -> Sequence[Phase]:
    phases = []
    for topic in ("prices", "stock", "asked", "prices", "asked"):
        times = moments(rng, max(1, count // 5))
        rows = [fed(topic, any_key(rng), None if rng.random() < 0.05 else f"{rng.randrange(1000)}", time) for time in times]
        phases.append(Phase(rows))
    return phases


def _transformed(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    builder.add_state_store(key_value_store("seen", value=int))
    # Never cached: a transformer's result depends on the number of values it receives.
    readings = builder.table(setup.topic("readings"), value=str, store=Store("readings", caching=False))
    (
        readings.transform_values(_Numbered, stores=["seen"], value=str, store=setup.store("numbered", value=str))
        .to_stream()
        .to(setup.topic("numbered"), value=str)
    )
    (
        readings.map_values(lambda value: value[-2:], value=str)
        .group_by(lambda _, value: (value, value), key=str, value=str)
        .count(store=setup.store("endings"))
        .to_stream()
        .to(setup.topic("endings"), value=int)
    )
    return builder.build()


class _Numbered(ValueTransformer[str, str | None, str | None]):
    """Number the values of a key."""

    def transform(self, key: str, value: str | None) -> str | None:
        if value is None:
            return None
        seen = self.context.store("seen")
        seen[key] = number = (seen.get(key) or 0) + 1
        return f"{value} #{number}"


def _readings(rng: Random, count: int) -> Sequence[Phase]:
    times = moments(rng, count)
    return one_phase(
        [fed("readings", any_key(rng), None if rng.random() < 0.1 else f"{rng.randrange(1000)}", time) for time in times]
    )


def _expiring(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(setup.topic("visits"), value=str).group_by_key()
    grouped.count(store=setup.store("visits", ttl="2s")).to_stream().to(setup.topic("visit-counts"), value=int)
    return builder.build()


def _visits(rng: Random, count: int) -> Sequence[Phase]:
    visits = [fed("visits", any_key(rng), "v", time) for time in forward_moments(rng, count)]
    return one_phase(visits + closing("visits", str, visits))


SCENARIOS = (
    Scenario(
        "table joins from one topic",
        _joined_from_one_topic,
        _rows,
        tuple(Output(topic, cached=Reading.VALUES) for topic in ("inner", "left", "outer")),
        undated=("inner", "outer-left"),
    ),
    Scenario(
        "table joins from two topics",
        _joined_from_two_topics,
        _two_topics,
        tuple(Output(topic, cached=Reading.VALUES) for topic in ("joined", "lengths")),
        undated=("joined",),
    ),
    Scenario(
        "foreign-key joins, a turn at a time",
        _by_foreign_key,
        _orders_once_a_turn,
        tuple(Output(topic, cached=Reading.VALUES) for topic in ("inner", "left")),
        undated=("inner",),
    ),
    Scenario(
        "foreign-key joins",
        _by_foreign_key,
        _orders_at_any_time,
        tuple(Output(topic, Reading.TABLE, Reading.VALUES) for topic in ("inner", "left")),
        undated=("inner",),
    ),
    Scenario(
        "table grouped again",
        _grouped_again,
        _members,
        tuple(Output(topic, cached=Reading.VALUES) for topic in ("sizes", "teams", "scores")),
        undated=("sizes", "teams", "scores"),
    ),
    Scenario("versioned tables", _versioned, _prices, tuple(map(Output, ("filtered", "joined", "by-digit", "as-of")))),
    Scenario(
        "transformed values",
        _transformed,
        _readings,
        (Output("numbered"), Output("endings")),
    ),
    Scenario("expiring table", _expiring, _visits, (Output("visit-counts"),)),
)
