"""Calls to other systems and side outputs: the result does not depend on the order of answers."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Sequence
from random import Random

from penstock import CallContext, FixedKeyProcessor, Record, SideOutput, StreamsBuilder, TimeWindowed, Topology, tumbling
from penstock.serdes import String
from verification.integration.inputs import any_key, closing, fed, moments, one_phase
from verification.integration.scenario import Output, Phase, Scenario, Setup


async def _delayed(text: str) -> None:
    """Some take longer than others, always the same ones."""
    await asyncio.sleep(zlib.crc32(text.encode()) % 4 / 1000)


async def _scored(key: str | None, value: str) -> str | SideOutput:
    await _delayed(value)
    score = zlib.crc32(value.encode()) % 100
    return SideOutput("rejected", f"{value}: {score}") if score < 20 else f"{value} scores {score}"


async def _moved(key: str | None, value: str) -> tuple[str, str]:
    await _delayed(value)
    return f"to-{len(value)}", value


async def _spread(record: Record[str, str], context: CallContext[str, str]) -> None:
    await _delayed(record.value)
    for number in range(len(record.value) % 3):
        context.forward(record.with_value(f"{record.value}/{number}"))
    if len(record.value) % 3 == 0:
        context.side_output("none", record.with_key(record.value[:2]))


async def _all_at_once(pairs: list[tuple[str | None, str]]) -> list[str]:
    await _delayed(str(len(pairs)))
    return [f"{value}!" for _, value in pairs]


def _blocking(value: str) -> str:
    return value.upper()


def _last_of_each(setup: Setup) -> Topology:
    """Order by key: the last write, a null key, a side output that is counted, and a branch without calls."""
    builder = StreamsBuilder()
    orders = builder.stream(setup.topic("orders"), value=str)
    scored = orders.map_values_async(_scored, with_key=True, value=str)
    scored.to(setup.topic("scored"), value=str)
    rejected = scored.side_output("rejected", value=str)
    rejected.to(setup.topic("rejected"), value=str)
    rejected.group_by_key().count(store=setup.store("rejections")).to_stream().to(setup.topic("rejections"), value=int)
    joined = orders.repartition(value=str).merge(scored)
    joined.group_by_key(value=str).aggregate(
        str, lambda _, value, seen: f"{seen}|{value}"[-60:], store=setup.store("seen", value=str)
    ).to_stream().to(setup.topic("seen"), value=str)
    return builder.build()


def _orders(rng: Random, count: int) -> Sequence[Phase]:
    keys = [None if rng.random() < 0.1 else any_key(rng) for _ in range(count)]
    times = moments(rng, count)
    return one_phase(
        [
            fed("orders", key, f"o{number}-{rng.randrange(50)}", time)
            for number, (key, time) in enumerate(zip(keys, times, strict=True))
        ]
    )


def _asked_again(setup: Setup) -> Topology:
    """Calls after calls, with new keys in between, into windows: time is that of the records, not of the answers."""
    builder = StreamsBuilder()
    clicks = builder.stream(setup.topic("clicks"), value=str)
    moved = clicks.map_values_async(_all_at_once, batch=7, ordered=False, value=str).map_async(_moved, key=str, value=str)
    spread = moved.select_key(lambda _, value: value[-2:]).process_async(_spread, key=str, value=str)
    spread.side_output("none", key=str, value=str).map_values_async(_blocking, concurrency=4, value=str).to(
        setup.topic("none"), value=str
    )
    spread.to(setup.topic("spread"), value=str)
    (
        spread.group_by_key(value=str)
        .windowed_by(tumbling("2s", grace="1s"))
        .count(store=setup.store("windows", retention="2h"))
        .to_stream()
        .to(setup.topic("windows"), key=TimeWindowed(String(), 2000), value=int)
    )
    return builder.build()


def _clicks(rng: Random, count: int) -> Sequence[Phase]:
    clicks = [fed("clicks", any_key(rng), f"c{rng.randrange(10 ** rng.randrange(1, 4))}", time) for time in moments(rng, count)]
    return one_phase(clicks + closing("clicks", str, clicks))


class _Sorted(FixedKeyProcessor[str, str, str]):
    """Sends every third value to a side output."""

    def process(self, record: Record[str, str]) -> None:
        if zlib.crc32(record.value.encode()) % 3:
            self.context.forward(record)
        else:
            self.context.side_output("third", record.with_value(f"third {record.value}"))


def _sent_aside(setup: Setup) -> Topology:
    """A side output that is counted like the main stream, and one behind a table, whose changes come when the epoch ends."""
    builder = StreamsBuilder()
    kept = builder.stream(setup.topic("orders"), value=str).process_values(_Sorted, value=str)
    third = kept.side_output("third", value=str)
    third.to(setup.topic("third"), value=str)
    kept.group_by_key(value=str).count(store=setup.store("kept")).to_stream().to(setup.topic("kept"), value=int)
    counts = third.group_by_key(value=str).count(store=setup.store("thirds"))
    counts.to_stream().map_values_async(_counted, value=str).to(setup.topic("thirds"), value=str)
    return builder.build()


async def _counted(count: int) -> str:
    await _delayed(str(count))
    return f"{count} times"


SCENARIOS = (
    Scenario(
        "asynchronous mapping",
        _last_of_each,
        _orders,
        (
            Output.of_stream("scored"),
            Output.of_stream("rejected"),
            Output("rejections"),
            Output("seen"),
        ),
        input_partitions=3,
    ),
    Scenario(
        "calls behind calls",
        _asked_again,
        _clicks,
        (Output.of_stream("none"), Output.of_stream("spread"), Output("windows")),
    ),
    Scenario(
        "side outputs",
        _sent_aside,
        _orders,
        (Output.of_stream("third"), Output("kept"), Output("thirds")),
        input_partitions=3,
    ),
)
