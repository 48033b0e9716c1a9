"""Windows of every kind, with out-of-order and late records, and results that wait until a window closes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from penstock import (
    EmitStrategy,
    SessionWindowed,
    StreamsBuilder,
    TimeWindowed,
    Topology,
    hopping,
    session,
    sliding,
    tumbling,
    until_time_limit,
    until_window_closes,
)
from penstock.serdes import String
from verification.integration.inputs import any_key, closing, fed, moments, one_phase
from verification.integration.scenario import Output, Phase, Scenario, Setup

KEPT = "2h"
"""Longer than the input, including closing records: no compared entry expires."""


def _tumbling_and_hopping(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(setup.topic("clicks"), value=str).group_by_key()
    (
        grouped.windowed_by(tumbling("2s", grace="1s"))
        .count(store=setup.store("tumbling", retention=KEPT))
        .to_stream()
        .to(setup.topic("tumbling"), key=TimeWindowed(String(), 2000), value=int)
    )
    (
        grouped.windowed_by(hopping("3s", "1s", grace="500ms"))
        .reduce(max, store=setup.store("hopping", retention=KEPT))
        .to_stream()
        .to(setup.topic("hopping"), key=TimeWindowed(String(), 3000), value=str)
    )
    return builder.build()


def _sliding(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream(setup.topic("clicks"), value=str)
        .group_by_key()
        .windowed_by(sliding("1s", grace="2s"))
        .aggregate(list, _sorted_values, store=setup.store("sliding", value=list, retention=KEPT))
        .to_stream()
        .to(setup.topic("sliding"), key=TimeWindowed(String(), 1000), value=list)
    )
    return builder.build()


def _sorted_values(_: str, value: str, values: list[str]) -> list[str]:
    return sorted([*values, value])


def _sessions(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream(setup.topic("clicks"), value=str)
        .group_by_key()
        .windowed_by(session("600ms", grace="1s"))
        .aggregate(
            list,
            _sorted_values,
            merger=lambda _, one, other: sorted(one + other),
            store=setup.store("sessions", value=list, retention=KEPT),
        )
        .to_stream()
        .to(setup.topic("sessions"), key=SessionWindowed(String()), value=list)
    )
    return builder.build()


def _sessions_after_an_exchange(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream(setup.topic("clicks"), value=str)
        .group_by(lambda _, value: value.split()[0])
        .windowed_by(session("400ms", grace="800ms"))
        .count(store=setup.store("sessions", retention=KEPT))
        .to_stream()
        .to(setup.topic("sessions"), key=SessionWindowed(String()), value=int)
    )
    return builder.build()


def _final_results(setup: Setup) -> Topology:
    """Suppressed until the window closes, then grouped again: three stages."""
    builder = StreamsBuilder()
    final = (
        builder.stream(setup.topic("clicks"), value=str)
        .group_by(lambda _, value: value.split()[0])
        .windowed_by(tumbling("1s", grace="1s"))
        .count(store=setup.store("per-second", retention=KEPT))
        .suppress(until_window_closes())
    )
    final.to_stream().to(setup.topic("final"), key=TimeWindowed(String(), 1000), value=int)
    (
        final.to_stream()
        .map(lambda windowed, count: (windowed.key, count), key=str, value=int)
        .group_by_key()
        .reduce(int.__add__, store=setup.store("in-closed-windows"))
        .to_stream()
        .to(setup.topic("sums"), value=int)
    )
    return builder.build()


def _on_window_close(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    grouped = builder.stream(setup.topic("clicks"), value=str).group_by_key()
    (
        grouped.windowed_by(hopping("2s", "1s", grace="1s"))
        .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        .count(store=setup.store("hopping", retention=KEPT))
        .to_stream()
        .to(setup.topic("hopping"), key=TimeWindowed(String(), 2000), value=int)
    )
    (
        grouped.windowed_by(session("500ms", grace="1s"))
        .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        .count(store=setup.store("sessions", retention=KEPT))
        .to_stream()
        .to(setup.topic("sessions"), key=SessionWindowed(String()), value=int)
    )
    (
        grouped.windowed_by(sliding("700ms", grace="1s"))
        .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        .count(store=setup.store("sliding", retention=KEPT))
        .to_stream()
        .to(setup.topic("sliding"), key=TimeWindowed(String(), 700), value=int)
    )
    return builder.build()


def _rate_limited(setup: Setup) -> Topology:
    """A count that is emitted at most once per second and key."""
    builder = StreamsBuilder()
    (
        builder.stream(setup.topic("clicks"), value=str)
        .group_by_key()
        .count(store=setup.store("counts"))
        .suppress(until_time_limit("1s"))
        .to_stream()
        .to(setup.topic("counts"), value=int)
    )
    return builder.build()


def _windowed_cogroup(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    ups, downs = (builder.stream(setup.topic(topic), value=str) for topic in ("ups", "downs"))
    (
        ups.group_by_key()
        .cogroup(lambda _, value, sum_: sum_ + 1)
        .cogroup(downs.group_by_key(), lambda _, value, sum_: sum_ - 1)
        .windowed_by(tumbling("2s", grace="1s"))
        .aggregate(int, store=setup.store("balance", value=int, retention=KEPT))
        .to_stream()
        .to(setup.topic("balance"), key=TimeWindowed(String(), 2000), value=int)
    )
    return builder.build()


def _forgetful(setup: Setup) -> Topology:
    """Stores with minimal retention, so that segments expire during the input."""
    builder = StreamsBuilder()
    grouped = builder.stream(setup.topic("clicks"), value=str).group_by_key()
    (
        grouped.windowed_by(tumbling("20s", grace="10s"))
        .count(store=setup.store("tumbling"))
        .to_stream()
        .to(setup.topic("tumbling"), key=TimeWindowed(String(), 20_000), value=int)
    )
    (
        grouped.windowed_by(session("5s", grace="5s"))
        .count(store=setup.store("sessions", retention="15s"))
        .to_stream()
        .to(setup.topic("sessions"), key=SessionWindowed(String()), value=int)
    )
    return builder.build()


def _clicks(rng: Random, count: int) -> Sequence[Phase]:
    clicks = [fed("clicks", any_key(rng), f"p{rng.randrange(30)} {rng.randrange(1000)}", time) for time in moments(rng, count)]
    return one_phase(clicks + closing("clicks", lambda key: f"{key} 0", clicks))


def _ups_and_downs(rng: Random, count: int) -> Sequence[Phase]:
    """First all of one topic, then all of the other: each has its own time."""
    phases = []
    for topic in ("ups", "downs"):
        records = [fed(topic, any_key(rng), f"{rng.randrange(1000)}", time) for time in moments(rng, count // 2)]
        phases.append(Phase(records + closing(topic, str, records)))
    return phases


def _slow_clicks(rng: Random, count: int) -> Sequence[Phase]:
    times: Any = moments(rng, count, step=400, disorder=8000)
    clicks = [fed("clicks", any_key(rng), f"p {rng.randrange(1000)}", time) for time in times]
    return one_phase(clicks + closing("clicks", lambda key: f"{key} 0", clicks))


SCENARIOS = (
    Scenario("tumbling and hopping windows", _tumbling_and_hopping, _clicks, (Output("tumbling"), Output("hopping"))),
    Scenario("sliding windows", _sliding, _clicks, (Output("sliding"),)),
    Scenario("sessions", _sessions, _clicks, (Output("sessions"),)),
    Scenario("sessions after an exchange", _sessions_after_an_exchange, _clicks, (Output("sessions"),)),
    Scenario("final results", _final_results, _clicks, (Output.of_stream("final"), Output("sums"))),
    Scenario(
        "emitted on window close",
        _on_window_close,
        _clicks,
        tuple(Output.of_stream(topic) for topic in ("hopping", "sessions", "sliding")),
    ),
    Scenario("suppressed for a time", _rate_limited, _clicks, (Output("counts"),)),
    Scenario("windowed cogroup", _windowed_cogroup, _ups_and_downs, (Output("balance"),)),
    Scenario("short retention", _forgetful, _slow_clicks, (Output("tumbling"), Output("sessions"))),
)
