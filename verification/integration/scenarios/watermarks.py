"""Windows, sessions and timers that wait for a watermark: which ones close, and their content, does not depend on the cut.

A record is late by its own partition's watermark before it, and windows close by the application's, which is never
ahead of that: so no window closes before a record that is not late, wherever an epoch ends. After which records a window
closes depends on the cut, and is not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

from penstock import (
    EmitStrategy,
    KStream,
    SessionWindowed,
    StreamsBuilder,
    TimeWindowed,
    Topology,
    Windowed,
    bounded_disorder,
    hopping,
    session,
    tumbling,
    until_window_closes,
)
from penstock.serdes import String
from verification.integration.cut import RECUT
from verification.integration.inputs import any_key, closing, fed, moments
from verification.integration.scenario import Judge, Output, Phase, Scenario, Setup
from verification.integration.scenarios.processors import Remind

DISORDER_MS = 1000


def _read(builder: StreamsBuilder, setup: Setup) -> KStream[Any, str]:
    return builder.stream(setup.topic("clicks"), value=str, watermark=bounded_disorder(DISORDER_MS))


def _windows(setup: Setup) -> Topology:
    """Every update, the last update of closed windows, and windows that are emitted only on close."""
    builder = StreamsBuilder()
    grouped = _read(builder, setup).group_by_key()
    counts = grouped.windowed_by(tumbling("2s", grace="500ms")).count(store=setup.store("tumbling"))
    counts.to_stream().to(setup.topic("tumbling"), key=TimeWindowed(String(), 2000), value=int)
    final = counts.suppress(until_window_closes()).to_stream()
    final.to(setup.topic("final"), key=TimeWindowed(String(), 2000), value=int)
    (
        grouped.windowed_by(hopping("3s", "1s", grace="0s"))
        .emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        .aggregate(list, _in_order, store=setup.store("hopping", value=list))
        .to_stream()
        .to(setup.topic("hopping"), key=TimeWindowed(String(), 3000), value=list)
    )
    return builder.build()


def _in_order(_: str, value: str, values: list[str]) -> list[str]:
    return [*values, value]


def _sessions(setup: Setup) -> Topology:
    """Sessions that emit each update, the last update on close, and only on close."""
    builder = StreamsBuilder()
    windowed = _read(builder, setup).group_by_key().windowed_by(session("400ms", grace="500ms"))
    lists = windowed.aggregate(
        list, _sorted, merger=lambda _, one, other: sorted(one + other), store=setup.store("lists", value=list)
    )
    lists.to_stream().to(setup.topic("lists"), key=SessionWindowed(String()), value=list)
    lists.suppress(until_window_closes()).to_stream().to(setup.topic("final"), key=SessionWindowed(String()), value=list)
    (
        windowed.emit_strategy(EmitStrategy.ON_WINDOW_CLOSE)
        .count(store=setup.store("counts"))
        .to_stream()
        .to(setup.topic("closed"), key=SessionWindowed(String()), value=int)
    )
    return builder.build()


def _sorted(_: str, value: str, values: list[str]) -> list[str]:
    return sorted([*values, value])


def _behind_an_exchange(setup: Setup) -> Topology:
    """Final results under a new key, whose records come from all partitions, counted again."""
    builder = StreamsBuilder()
    final = (
        _read(builder, setup)
        .group_by(lambda _, value: value.split()[0])
        .windowed_by(tumbling("1s", grace="500ms"))
        .count(store=setup.store("per-second"))
        .suppress(until_window_closes())
        .to_stream()
    )
    final.to(setup.topic("final"), key=TimeWindowed(String(), 1000), value=int)
    (
        final.map(lambda windowed, count: (windowed.key, count), key=str, value=int)
        .group_by_key()
        .reduce(int.__add__, store=setup.store("in-closed-windows"))
        .to_stream()
        .to(setup.topic("sums"), value=int)
    )
    return builder.build()


def _windows_of_windows(setup: Setup) -> Topology:
    """Final results in longer windows, which close at the same time: in the same stage, and behind an exchange."""
    builder = StreamsBuilder()
    seconds = _read(builder, setup).group_by_key().windowed_by(tumbling("1s", grace="500ms"))
    closed = seconds.count(store=setup.store("seconds")).suppress(until_window_closes()).to_stream(_key_of, key=str)
    together = closed.group_by(lambda key, _: key[-1], key=str, value=int)
    for name, grouped in (("beside", closed.group_by_key(key=str, value=int)), ("together", together)):
        kept = setup.store(name, value=int, retention="2h")  # a changelog alone does not show what a watermark expires
        longer = grouped.windowed_by(tumbling("4s", grace="500ms")).reduce(int.__add__, store=kept)
        final = longer.suppress(until_window_closes()).to_stream()
        final.to(setup.topic(name), key=TimeWindowed(String(), 4000), value=int)
    return builder.build()


def _key_of(windowed: Windowed[Any], _: int) -> str:
    return str(windowed.key)


def _reminded(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    _read(builder, setup).process(Remind, name="remind").to(setup.topic("reminders"), key=str, value=str)
    return builder.build()


def _clicks(rng: Random, count: int, late: float = 0.1) -> Sequence[Phase]:
    """Out-of-order and late records; then, in every lane, records long after all others, twice.

    Windows close when an epoch begins: the second records cause such an epoch, and do not move the time any more.
    """
    times = moments(rng, count, disorder=DISORDER_MS - 1, late=late)
    clicks = [fed("clicks", any_key(rng), f"p{rng.randrange(30)} {rng.randrange(1000)}", time) for time in times]
    last = closing("clicks", lambda key: f"{key} 0", clicks)
    return [Phase(clicks + last), Phase(last)]


OF_WINDOWS = (Output("tumbling"), Output.of_stream("final"), Output.of_stream("hopping"))
OF_SESSIONS = (Output("lists"), Output.of_stream("final"), Output.of_stream("closed"))
OF_BOTH = (Output.of_stream("beside"), Output.of_stream("together"))
OF_SUMS = (Output.of_stream("final"), Output("sums"))

SCENARIOS = (
    Scenario("windows by watermarks", _windows, _clicks, OF_WINDOWS, cuts=RECUT),
    Scenario("sessions by watermarks", _sessions, _clicks, OF_SESSIONS, cuts=RECUT),
    Scenario("windows of windows by watermarks", _windows_of_windows, _clicks, OF_BOTH, cuts=RECUT),
    Scenario("watermarks through exchanges", _behind_an_exchange, _clicks, OF_SUMS, cuts=RECUT),
    Scenario(
        "windows by watermarks of partitions",
        _windows,
        _clicks,
        OF_WINDOWS,
        input_partitions=3,
        judge=Judge.EPOCHS_OF_ONE,
        cuts=RECUT,
    ),
    Scenario("timers by watermarks", _reminded, partial(_clicks, late=0.0), (Output.of_stream("reminders"),), cuts=RECUT),
)
