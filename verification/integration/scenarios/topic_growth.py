"""Topics that change while they are read: partitions are added, and new topics match a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from random import Random

from penstock import KStream, StreamsBuilder, Topology
from verification.integration.inputs import START_MS, any_key, fed, forward_moments
from verification.integration.scenario import Fed, Output, Phase, Reading, Scenario, Setup

OF_MANY = Reading.TABLE
"""Output of several partitions: only the last record is defined, since their records have no order between them."""


def _counted(setup: Setup, payments: KStream[str, str]) -> None:
    """Counts by key, and sums over groups of keys behind an exchange."""
    counts = payments.group_by_key().count(store=setup.store("counts"))
    counts.to_stream().to(setup.topic("counts"), value=int)
    groups = payments.group_by(lambda key, _: f"group {len(key)} {key[-1]}", value=str)
    sums = groups.aggregate(int, lambda _, amount, total: total + int(amount), store=setup.store("sums", value=int))
    sums.to_stream().to(setup.topic("sums"), value=int)


def _of_one_topic(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    _counted(setup, builder.stream(setup.topic("payments"), value=str))
    return builder.build()


def _of_a_pattern(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    pattern = re.compile(re.escape(setup.topic("payments-")) + "[a-z]+")
    _counted(setup, builder.stream(pattern, value=str))
    return builder.build()


def _joined(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    rates = builder.table(setup.topic("rates"), value=str, store=setup.store("rates"))
    orders = builder.stream(setup.topic("orders"), value=str)
    orders.left_join(rates, lambda order, rate: f"{order} at {rate}", value=str).to(setup.topic("priced"), value=str)
    return builder.build()


def _payments(rng: Random, topic: str, count: int, since: int) -> list[Fed]:
    """Payments of one topic, with keys that no other topic has."""
    times = forward_moments(rng, count, start=since)
    return [fed(topic, f"{any_key(rng)}{topic[-1]}", str(rng.randrange(100)), time) for time in times]


def _since(turn: int) -> int:
    return START_MS + turn * 1_000_000


def _more_partitions(rng: Random, count: int) -> Sequence[Phase]:
    size = max(1, count // 3)
    grows: Sequence[dict[str, int]] = ({}, {"payments": 3}, {"payments": 7})
    return [Phase(_payments(rng, "payments", size, _since(turn)), grows=grown) for turn, grown in enumerate(grows)]


def _more_topics(rng: Random, count: int) -> Sequence[Phase]:
    size = max(1, count // 6)
    turns: Sequence[tuple[Sequence[str], dict[str, int]]] = (
        (("payments-a",), {}),
        (("payments-a", "payments-b"), {"payments-b": 3}),
        (("payments-a", "payments-b", "payments-c"), {"payments-c": 2, "payments-a": 4}),
    )
    return [
        Phase([record for topic in topics for record in _payments(rng, topic, size, _since(turn))], grows=grown)
        for turn, (topics, grown) in enumerate(turns)
    ]


def _rates_and_orders(rng: Random, count: int) -> Sequence[Phase]:
    size = max(1, count // 6)

    def turns() -> Iterator[Phase]:
        grows: Sequence[dict[str, int]] = ({}, {"rates": 3}, {"rates": 5, "orders": 4})
        for turn, grown in enumerate(grows):
            rates, orders = (forward_moments(rng, size, start=_since(2 * turn + late)) for late in (0, 1))
            changed = [fed("rates", any_key(rng), None if rng.random() < 0.1 else f"r{turn}-{time}", time) for time in rates]
            yield Phase(changed, grows=grown)
            yield Phase([fed("orders", any_key(rng), f"o{time}", time) for time in orders])

    return list(turns())


_OUTPUTS = (Output("counts"), Output("sums", plain=OF_MANY))

SCENARIOS = (
    Scenario("partitions added", _of_one_topic, _more_partitions, _OUTPUTS),
    Scenario("topics that match a pattern", _of_a_pattern, _more_topics, _OUTPUTS),
    Scenario("joined topics that grow", _joined, _rates_and_orders, (Output.of_stream("priced"),)),
)
