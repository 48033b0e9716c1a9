"""Streams that split, merge, change keys and choose their topics; event times and headers."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from penstock import (
    FixedKeyProcessor,
    KStream,
    Record,
    RecordContext,
    StreamsBuilder,
    TimeWindowed,
    Topology,
    otherwise,
    tumbling,
)
from penstock.records import SourceRecord
from penstock.serdes import String
from verification.integration.inputs import any_key, closing, fed, moments, one_phase
from verification.integration.scenario import Fed, Output, Phase, Scenario, Setup


def _split_and_merged(setup: Setup) -> Topology:
    """Stateless nodes, with null keys and null values; then a count after the branches are merged."""
    builder = StreamsBuilder()
    branches = builder.stream(setup.topic("orders"), value=str).split(
        nothing=lambda _, order: order is None, large=lambda _, order: len(order) > 2, small=otherwise
    )
    large = branches["large"].map_values(lambda order: f"{order}!").filter(lambda _, order: not order.startswith("9"))
    merged: KStream[Any, str] = large.merge(branches["small"].flat_map_values(lambda order: [order, order * 2]))
    merged.to(setup.topic("merged"), value=str)
    branches["nothing"].map_values(lambda _: "none", value=str).to(setup.topic("nothing"), value=str)
    (
        merged.filter(lambda key, _: key is not None)
        .group_by_key(value=str)
        .count(store=setup.store("counts"))
        .to_stream()
        .to(setup.topic("counts"), value=int)
    )
    return builder.build()


def _orders(rng: Random, count: int) -> Sequence[Phase]:
    records = []
    for time in moments(rng, count):
        value = None if rng.random() < 0.1 else f"{rng.randrange(1000)}"
        records.append(fed("orders", None if rng.random() < 0.1 else any_key(rng), value, time))
    return one_phase(records)


def _own_times(setup: Setup) -> Topology:
    """Event times from the value; records without one are dropped, unreadable ones take their partition's time."""
    builder = StreamsBuilder()
    clicks = builder.stream(setup.topic("clicks"), value=str, timestamp=_time_of)
    clicks.to(setup.topic("times"), value=str)
    (
        clicks.group_by(lambda _, value: value.split()[1])
        .windowed_by(tumbling("2s", grace="1s"))
        .count(store=setup.store("windows", retention="2h"))
        .to_stream()
        .to(setup.topic("windows"), key=TimeWindowed(String(), 2000), value=int)
    )
    return builder.build()


def _time_of(record: SourceRecord[str, str]) -> int:
    time = record.value.split()[0]
    if time == "never":
        return -1
    return record.partition_time if time == "now" and record.partition_time >= 0 else int(time) if time.isdigit() else 0


def _timed_clicks(rng: Random, count: int) -> Sequence[Phase]:
    records = []
    for number, time in enumerate(moments(rng, count)):
        chance = rng.random()
        said = "never" if chance < 0.05 else "now" if chance < 0.1 and number else str(time)
        records.append(fed("clicks", any_key(rng), f"{said} p{rng.randrange(30)}", rng.randrange(10_000)))
    last = max(int(text) for record in records if (text := (record.value or b"").split()[0]).isdigit()) + 3_600_000
    return one_phase(records + closing("clicks", lambda key: f"{last} {key}", records))


class _Stamped(FixedKeyProcessor[str, str, str]):
    """Adds a header with the record's origin."""

    def process(self, record: Record[str, str]) -> None:
        metadata = self.context.record_metadata
        place = b"" if metadata is None else str(metadata.offset).encode()
        self.context.forward(record.with_headers((*record.headers, ("offset", place))))


def _headers(setup: Setup) -> Topology:
    builder = StreamsBuilder()
    stamped = builder.stream(setup.topic("letters"), value=str).process_values(_Stamped, value=str)
    stamped.to(setup.topic("stamped"), value=str)
    moved = stamped.select_key(lambda _, value: value[:2]).repartition(name="moved", value=str)
    moved.process_values(_Stamped, value=str).to(setup.topic("moved"), value=str)
    moved.group_by_key().count(store=setup.store("counts")).to_stream().to(setup.topic("counts"), value=int)
    moved.to_table(store=setup.store("last", value=str)).to_stream().to(setup.topic("last"), value=str)
    return builder.build()


def _letters_with_headers(rng: Random, count: int) -> Sequence[Phase]:
    records = []
    for number, time in enumerate(moments(rng, count)):
        headers = (("n", str(number).encode()), ("n", None)) if rng.random() < 0.7 else ()
        records.append(Fed("letters", any_key(rng).encode(), f"l{rng.randrange(100)}".encode(), time, headers))
    return one_phase(records)


def _chosen_places(setup: Setup) -> Topology:
    """Partitions chosen by the value, one or several; topics chosen for each record, from value, headers and origin."""
    builder = StreamsBuilder()
    letters = builder.stream(setup.topic("letters"), value=str)
    letters.to(setup.topic("by-value"), value=str, partitioner=lambda topic, key, value, count: len(value) % count)
    letters.to(setup.topic("everywhere"), value=str, partitioner=lambda topic, key, value, count: range(len(value) % count))
    letters.to(_topic_of(setup), value=str)
    (
        letters.group_by(lambda _, value: value[:2])
        .count(store=setup.store("counts"))
        .to_stream()
        # by the key: if one key were in several partitions, the last count would be undefined
        .to(setup.topic("counts"), value=int, partitioner=lambda topic, key, value, count: ord(key[-1]) % count)
    )
    return builder.build()


def _topic_of(setup: Setup) -> Any:
    def topic(key: str, value: str, context: RecordContext) -> str:
        return setup.topic("even" if context.offset % 2 == 0 else "with-headers" if context.headers else "odd")

    return topic


def _turning(setup: Setup) -> Topology:
    """Two repartitions, and a table at the end that both paths reach."""
    builder = StreamsBuilder()
    lines = builder.stream(setup.topic("letters"), value=str)
    first = lines.select_key(lambda _, value: value[:2]).repartition(name="first", value=str)
    second = first.map(lambda key, value: (value[-1], f"{key}{value}"), key=str, value=str).repartition(name="second")
    first.merge(second).to(setup.topic("seen"), value=str)
    (
        second.group_by_key()
        .reduce(lambda one, other: f"{one[-6:]}{other}", store=setup.store("reduced"))
        .to_stream()
        .to(setup.topic("reduced"), value=str)
    )
    return builder.build()


def _round_trip(setup: Setup) -> Topology:
    """A topic that the topology writes and reads itself: what it writes comes back in a later epoch."""
    builder = StreamsBuilder()
    builder.stream(setup.topic("letters"), value=str).map_values(lambda value: value[:2]).to(setup.topic("halfway"), value=str)
    (
        builder.stream(setup.topic("halfway"), value=str)
        .group_by_key()
        .aggregate(list, lambda _, value, last: [*last, value][-4:], store=setup.store("lists", value=list))
        .to_stream()
        .to(setup.topic("lists"), value=list)
    )
    return builder.build()


def _without_duplicates(setup: Setup) -> Topology:
    """Records that are let through once per key, and per key and first letter behind an exchange; then counted."""
    builder = StreamsBuilder()
    letters = builder.stream(setup.topic("letters"), value=str)
    letters.deduplicate(within="2s", name="by-key").to(setup.topic("unique"), value=str)
    (
        letters.select_key(lambda _, value: value[:1])
        .deduplicate(by=lambda _, value: len(value), within="1s", name="by-length")
        .group_by_key(value=str)
        .count(store=setup.store("counts"))
        .to_stream()
        .to(setup.topic("counts"), value=int)
    )
    return builder.build()


SCENARIOS = (
    Scenario(
        "split and merge", _split_and_merged, _orders, (Output.of_stream("merged"), Output.of_stream("nothing"), Output("counts"))
    ),
    Scenario("own event times", _own_times, _timed_clicks, (Output.of_stream("times"), Output("windows"))),
    Scenario(
        "headers",
        _headers,
        _letters_with_headers,
        (Output.of_stream("stamped"), Output.of_stream("moved"), Output("counts"), Output("last")),
    ),
    Scenario(
        "chosen partitions and topics",
        _chosen_places,
        _letters_with_headers,
        (*(Output.of_stream(topic) for topic in ("by-value", "everywhere", "even", "with-headers", "odd")), Output("counts")),
    ),
    Scenario("repartitioned twice", _turning, _letters_with_headers, (Output.of_stream("seen"), Output("reduced"))),
    Scenario("without duplicates", _without_duplicates, _letters_with_headers, (Output.of_stream("unique"), Output("counts"))),
    Scenario("a topic written and read", _round_trip, _letters_with_headers, (Output.of_stream("halfway"), Output("lists"))),
)
