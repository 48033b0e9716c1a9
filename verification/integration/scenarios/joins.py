"""Joins of streams with streams, tables and global tables; one topic feeds both sides where their order matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from penstock import KStream, StreamsBuilder, Topology
from verification.integration.inputs import START_MS, any_key, closing, fed, moments, one_phase
from verification.integration.scenario import Fed, Output, Phase, Scenario, Setup


def _alone(value: bytes | None) -> bytes | None:
    """Unmatched records are separate kinds: when they are emitted depends on what else waits, in Kafka Streams too."""
    return value if value is not None and b"None" in value else None


def _both(left: str | None, right: str | None) -> str:
    return f"{left}+{right}"


def _sides(builder: StreamsBuilder, setup: Setup) -> tuple[KStream[str, str], KStream[str, str]]:
    """The two sides of a join, from one topic: their order does not depend on how topics are read."""
    left, right = builder.stream(setup.topic("pairs"), value=str).split(
        lambda _, value: bool(value) and value.startswith("L"), lambda _, value: True
    )
    return left, right


def _stream_stream(how: str, **options: Any) -> Callable[[Setup], Topology]:
    def build(setup: Setup) -> Topology:
        builder = StreamsBuilder()
        left, right = _sides(builder, setup)
        joined = getattr(left, how)(right, _both, value=str, other_value=str, **options)
        joined.to(setup.topic("joined"), value=str)
        return builder.build()

    return build


def _rekeyed(setup: Setup) -> Topology:
    """Both sides under new keys, each through its own exchange."""
    builder = StreamsBuilder()
    left, right = _sides(builder, setup)

    def by_last_word(_: str, value: str) -> str:
        return value.split()[1]

    (
        left.select_key(by_last_word)
        .outer_join(right.select_key(by_last_word), _both, within="150ms", grace="500ms", value=str, other_value=str)
        .to(setup.topic("joined"), value=str)
    )
    return builder.build()


def _stream_table(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    left, right = _sides(builder, setup)
    table = right.map_values(lambda value: None if value.endswith("0") else value).to_table(
        store=setup.store("table", value=str), value=str
    )
    left.join(table, _both, value=str).to(setup.topic("inner"), value=str)
    left.left_join(table, _both, value=str).to(setup.topic("left"), value=str)
    moved = builder.stream(setup.topic("moved"), value=str).select_key(lambda key, value: f"k{value[-1]}")
    moved.left_join(table, _both, value=str).to(setup.topic("rekeyed"), value=str)
    return builder.build()


def _stream_table_with_grace(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    table = builder.table(setup.topic("rates"), value=str, store=setup.store("table", history="2h"))
    left = builder.stream(setup.topic("orders"), value=str)
    left.join(table, _both, grace="1s", value=str).to(setup.topic("inner"), value=str)
    left.left_join(table, _both, grace="500ms", value=str).to(setup.topic("left"), value=str)
    left.left_join(table, _both, value=str).to(setup.topic("at-once"), value=str)
    return builder.build()


def _global_tables(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    countries = builder.global_table(setup.topic("countries"), value=str, store=setup.store("countries"))
    orders = builder.stream(setup.topic("orders"), value=str)

    def by_country(_: str, order: str) -> str:
        return order.split(maxsplit=1)[0]

    orders.join(countries, _both, on=by_country).to(setup.topic("inner"), value=str)
    left = orders.left_join(countries, _both, on=by_country)
    left.to(setup.topic("left"), value=str)
    left.group_by(by_country).count(store=setup.store("orders-per-country")).to_stream().to(setup.topic("counts"), value=int)
    return builder.build()


def _pair(rng: Random) -> str:
    """A side, a number, and the key after an exchange."""
    number = rng.randrange(1000)
    return f"{rng.choice('LR')}{number} d{number % 10}"


def _pairs_and_moved(rng: Random, count: int) -> Sequence[Phase]:
    phases = []
    for turn in range(4):
        times = moments(rng, max(1, count // 4))
        records = [fed("pairs", any_key(rng, 15), _pair(rng), time) for time in times]
        phases.append(Phase([record._replace(topic="moved") for record in records] if turn % 2 else records))
    return phases


def _pairs(rng: Random, count: int) -> Sequence[Phase]:
    """Out of order, but at most by the joins' grace: beyond that, matches depend on what a task still holds."""
    times = moments(rng, count, disorder=500, late=0)
    records = [fed("pairs", any_key(rng, 15), _pair(rng), time) for time in times]
    return one_phase(records + _closing_pairs(records))


def _closing_pairs(records: Sequence[Fed]) -> list[Fed]:
    """Records on both sides, slightly apart in time, so that the second closes what the first leaves open."""
    first = closing("pairs", lambda key: f"L {key}", records)
    second = closing("pairs", lambda key: f"R {key}", records, by_ms=3_700_000)
    return first + second


def _orders_and_rates(rng: Random, count: int) -> Sequence[Phase]:
    """Rates and orders by turns; every turn ends with the same time in every lane, so that what still waits is defined."""
    phases, now = [], START_MS
    for turn in range(4):
        times = _turn(rng, count, now)
        rates = [fed("rates", any_key(rng), None if n % 9 == 0 else f"R{turn}{n}", time) for n, time in enumerate(times)]
        times = _turn(rng, count, now)
        orders = [fed("orders", any_key(rng), f"L{turn}{n}", time) for n, time in enumerate(times)]
        now = max(record.timestamp for record in orders)
        phases += [Phase(rates), Phase(orders + closing("orders", lambda key: f"L{key}", orders, by_ms=100))]
    rates_later = closing("rates", lambda key: f"R{key}", phases[-2].records)
    return [*phases, Phase(rates_later), Phase(closing("orders", lambda key: f"L{key}", rates_later, by_ms=10))]


def _turn(rng: Random, count: int, start: int) -> list[int]:
    return list(moments(rng, max(1, count // 8), start=start))


def _orders(rng: Random, count: int) -> Sequence[Phase]:
    # from 1 on: to librdkafka a timestamp of 0 means none
    countries = [fed("countries", f"c{n % 30}", None if n % 30 > 20 else f"country {n}", n) for n in range(1, 61)]
    orders = [fed("orders", any_key(rng), f"c{rng.randrange(30)} {n}", time) for n, time in enumerate(moments(rng, count))]
    return [Phase(countries), Phase(orders)]


SCENARIOS = (
    Scenario(
        "stream-stream inner join",
        _stream_stream("join", within=("1s", "500ms"), grace="2h", name="inner"),
        _pairs,
        (Output.of_stream("joined"),),
    ),
    Scenario(
        "stream-stream left join",
        _stream_stream("left_join", within="200ms", grace="1s"),
        _pairs,
        (Output.of_stream("joined", _alone),),
    ),
    Scenario(
        "stream-stream outer join",
        _stream_stream("outer_join", within=("100ms", "300ms"), grace="500ms"),
        _pairs,
        (Output.of_stream("joined", _alone),),
    ),
    Scenario("stream-stream outer join under new keys", _rekeyed, _pairs, (Output.of_stream("joined", _alone),)),
    Scenario(
        "stream-table join",
        _stream_table,
        _pairs_and_moved,
        tuple(Output.of_stream(topic) for topic in ("inner", "left", "rekeyed")),
    ),
    Scenario(
        "stream-table join with grace",
        _stream_table_with_grace,
        _orders_and_rates,
        tuple(Output.of_stream(topic) for topic in ("inner", "left", "at-once")),
    ),
    Scenario("global tables", _global_tables, _orders, (Output.of_stream("inner"), Output.of_stream("left"), Output("counts"))),
)
