"""Counts, reductions and aggregates of streams, before and after exchanges."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from penstock import FixedKeyProcessor, KStream, Record, StreamsBuilder, Topology, agg, col, key_value_store
from verification.integration.inputs import START_MS, any_key, fed, forward_moments, moments, one_phase
from verification.integration.scenario import Output, Phase, Reading, Scenario, Setup


def _word_count(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream(setup.topic("lines"), value=str)
        .flat_map_values(str.split)
        .group_by(lambda _, word: word)
        .count(store=setup.store("words"))
        .to_stream()
        .to(setup.topic("counts"), value=int)
    )
    return builder.build()


def _lines(rng: Random, count: int) -> Sequence[Phase]:
    return one_phase([fed("lines", any_key(rng), _words(rng), time) for time in moments(rng, count)])


def _words(rng: Random) -> str:
    return " ".join(f"w{min(rng.randrange(40), rng.randrange(40))}" for _ in range(rng.randrange(5)))


def _totals(setup: Setup) -> Topology:
    """Reduce and aggregate one stream; an aggregate of None deletes."""
    builder = StreamsBuilder()
    grouped = builder.stream(setup.topic("amounts"), value=int).group_by_key()
    grouped.reduce(max, store=setup.store("highest")).to_stream().to(setup.topic("highest"))
    (
        grouped.aggregate(dict, _sum_up_to_a_limit, store=setup.store("sums", value=dict))
        .to_stream()
        .to(setup.topic("sums"), value=dict)
    )
    return builder.build()


def _sum_up_to_a_limit(_: str, amount: int, sums: Any) -> Any:
    total = sums.get("sum", 0) + amount
    return None if total > 3000 else {"sum": total, "count": sums.get("count", 0) + 1}


def _amounts(rng: Random, count: int) -> Sequence[Phase]:
    return one_phase(
        [
            fed("amounts", any_key(rng), None, time)._replace(value=rng.randrange(1000).to_bytes(8, "big"))
            for time in moments(rng, count)
        ]
    )


def _cogrouped(setup: Setup) -> Topology:
    """Two streams, one of them under new keys, into one aggregate."""
    builder = StreamsBuilder()
    clicks = builder.stream(setup.topic("clicks"), value=str)
    moved = builder.stream(setup.topic("views"), value=str).select_key(lambda _, value: value.split()[1])
    (
        clicks.group_by_key()
        .cogroup(lambda _, value, seen: [*seen, value][-3:])
        .cogroup(moved.group_by_key(), lambda _, value, seen: [*seen, f"view of {value}"][-3:])
        .aggregate(list, store=setup.store("seen", value=list))
        .to_stream()
        .to(setup.topic("seen"), value=list)
    )
    return builder.build()


def _clicks_and_views(rng: Random, count: int) -> Sequence[Phase]:
    phases = []
    for turn in range(6):
        topic = ("clicks", "views")[turn % 2]
        times = moments(rng, max(1, count // 6))
        phases.append(Phase([fed(topic, any_key(rng), f"{topic} {any_key(rng)} {time}", time) for time in times]))
    return phases


def _counts_of_counts(setup: Setup) -> Topology:
    """Two exchanges: how many words have been seen how often; a table that is grouped again adds and subtracts."""
    builder = StreamsBuilder()
    (
        builder.stream(setup.topic("lines"), value=str)
        .flat_map_values(str.split)
        .group_by(lambda _, word: word)
        .count(store=setup.store("words"))
        .group_by(lambda word, count: (f"seen {count} times", word), value=str)
        .aggregate(list, _with, _without, store=setup.store("seen", value=list))
        .to_stream()
        .to(setup.topic("seen"), value=list)
    )
    return builder.build()


def _with(_: str, word: str, words: list[str]) -> list[str]:
    return sorted([*words, word])


def _without(_: str, word: str, words: list[str]) -> Any:
    """None for an empty group: with caches, a group that words only pass through is never emitted."""
    return [other for other in words if other != word] or None


def _five_exchanges(setup: Setup) -> Topology:
    """A chain that changes keys five times and fans out, so that siblings part and meet again."""
    builder = StreamsBuilder()
    stream: KStream[str, str] = builder.stream(setup.topic("lines"), value=str)
    for turn in range(4):
        builder.add_state_store(key_value_store(f"numbers-{turn}", value=int))
        stream = (
            stream.flat_map(_fan(turn), key=str, value=str)
            .repartition(name=f"turn-{turn}")
            .process_values(_numbering(turn), stores=[f"numbers-{turn}"], value=str)
        )
    (
        stream.group_by(lambda key, value: key[:2])
        .aggregate(str, lambda _, value, last: f"{last}/{value}"[-80:], store=setup.store("trails", value=str))
        .to_stream()
        .to(setup.topic("trails"), value=str)
    )
    return builder.build()


def _fan(turn: int) -> Any:
    def fan(key: str, value: str) -> list[tuple[str, str]]:
        text = f"{key}{value}"
        spread = sum(text.encode()) * 31 + turn
        return [(f"{chr(97 + (spread + way) % 7)}{(spread * (way + 3)) % 11}", f"{value[-8:]}{way}") for way in range(2)]

    return fan


def _numbering(turn: int) -> Any:
    class Numbering(FixedKeyProcessor[str, str, str]):
        """Number the records of a key: any loss of order shows."""

        def process(self, record: Record[str, str]) -> None:
            numbers = self.context.store(f"numbers-{turn}")
            numbers[record.key] = number = (numbers.get(record.key) or 0) + 1
            self.context.forward(record.with_value(f"{record.value}.{number}"))

    return Numbering


def _few_lines(rng: Random, count: int) -> Sequence[Phase]:
    times = forward_moments(rng, max(1, count // 4))  # each becomes sixteen
    return one_phase([fed("lines", any_key(rng), f"v{rng.randrange(50)}", time) for time in times])


def _of_expressions(setup: Setup) -> Topology:
    """Ready aggregates by key and, of another topic, behind an exchange: in columns where a shard has enough records."""
    builder = StreamsBuilder()
    totals = (
        builder.stream(setup.topic("orders"), value=dict)
        .filter((col("amount") > 20) | col("rate", float).is_null())
        .group_by_key()
        .agg(
            n=agg.count(),
            total=agg.sum(col("amount")),
            rates=agg.sum(col("rate", float) * col("amount")),
            highest=agg.max(col("amount")),
            first=agg.first(col("city")),
            last=agg.last(col("city")),
            store=setup.store("totals"),
        )
    )
    totals.to_stream().to(setup.topic("totals"))
    visits = builder.stream(setup.topic("visits"), value=dict).group_by(col("city"))
    cities = visits.agg(n=agg.count(), rates=agg.sum(col("rate", float)), store=setup.store("cities"))
    cities.to_stream().to(setup.topic("cities"))
    return builder.build()


def _orders(rng: Random, count: int) -> Sequence[Phase]:
    """One topic after the other, because columns take a shard's epoch of one source; few keys, so that it has enough records."""
    phases, start = [], START_MS
    for topic in ("orders", "visits"):
        times = list(forward_moments(rng, count, start=start))
        phases.append(Phase([fed(topic, any_key(rng, keys=4), json.dumps(_order(rng)), time) for time in times]))
        start = times[-1]
    return phases


def _order(rng: Random) -> dict[str, Any]:
    rate = rng.choice([None, 1, rng.random() * 10 ** rng.randrange(-3, 12)])
    amount = rng.choice([None, rng.randrange(1000)]) if rng.random() < 0.001 else rng.randrange(1000)
    return {"amount": amount, "rate": rate, "city": rng.choice("abc") * 2, "note": "x" * rng.randrange(40)}


SCENARIOS = (
    Scenario("word count", _word_count, _lines, (Output("counts"),)),
    Scenario("reduce and aggregate", _totals, _amounts, (Output("highest"), Output("sums")), input_partitions=3),
    Scenario("cogroup", _cogrouped, _clicks_and_views, (Output("seen"),)),
    Scenario("counts of counts", _counts_of_counts, _lines, (Output("seen", cached=Reading.VALUES),), undated=("seen",)),
    Scenario("five exchanges", _five_exchanges, _few_lines, (Output("trails"),)),
    Scenario("aggregates of expressions", _of_expressions, _orders, (Output("totals"), Output("cities"))),
)
