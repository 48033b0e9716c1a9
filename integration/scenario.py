"""What a scenario is: a topology, an input made from a seed, and how its results are to be read; all of it values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, NamedTuple

from integration.cut import USUAL, Cut
from penstock import Store, Topology
from penstock.records import NO_HEADERS, Headers

SINK_PARTITIONS = 4
"""How many partitions every output topic has, wherever somebody asks."""


class Fed(NamedTuple):
    """A record to feed, with the topic as the scenario knows it."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = NO_HEADERS


class Sent(NamedTuple):
    """A record that came out; `partition` only where a partitioner chose it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    partition: int | None


class Entry(NamedTuple):
    """What a store holds, as text that can be compared; `timestamp` only where the store keeps one beside the value."""

    key: str
    value: str
    timestamp: int | None = None


@dataclass(frozen=True)
class Phase:
    """Records that are fed together, and how far the wall clock moves once all of them are done.

    A phase ends before the next begins: what depends on how different topics interleave is fed in different phases. Before it
    begins, the topics of `grows` come to have so many partitions, or are created with them.
    """

    records: Sequence[Fed]
    advance_ms: int = 0
    grows: Mapping[str, int] = field(default_factory=dict)


class Reading(Enum):
    """How an output is compared.

    `VALUES` is for tables made of cached tables: each change they are told of touches them, even one that comes to nothing, and
    how many they are told of is what caches decide.
    """

    SEQUENCES = "all records of each key, in order"
    TABLE = "the last record of each key"
    VALUES = "the last value of each key, whenever it is from"
    BAG = "all records, in any order"


def _all_alike(value: bytes | None) -> object:
    """What records of a key differ in, where they do not."""
    return None


@dataclass(frozen=True)
class Output:
    """An output topic, and how it is compared without caches and with them.

    `kind` parts the records of a key into sequences of their own, where only these have an order.
    """

    topic: str
    plain: Reading = Reading.SEQUENCES
    cached: Reading = Reading.TABLE
    kind: Callable[[bytes | None], object] = _all_alike

    @classmethod
    def of_stream(cls, topic: str, kind: Callable[[bytes | None], object] = _all_alike) -> Output:
        """An output that no cache holds back: all its records, with caches or without."""
        return cls(topic, Reading.SEQUENCES, Reading.SEQUENCES, kind)

    def reading(self, caching: bool) -> Reading:
        """How it is compared."""
        return self.cached if caching else self.plain


@dataclass(frozen=True)
class Setup:
    """What a topology is told when it is built for a run: whether tables are cached, and what its topics are called."""

    caching: bool
    prefix: str = ""

    def topic(self, name: str) -> str:
        """The name of a topic in this run."""
        return self.prefix + name

    def store(self, name: str | None = None, **options: Any) -> Store:
        """How a table is kept in this run."""
        return Store(name, caching=self.caching, **options)


class Judge(Enum):
    """Whose result is the expected one."""

    DRIVER = "the test driver"
    EPOCHS_OF_ONE = "one record after the other, in one lane"
    """In this process; for several partitions that each have a time of their own, where the test driver has one per topic."""


@dataclass(frozen=True)
class Scenario:
    """A topology with its input and its outputs.

    `input_partitions` is more than one only where nothing depends on time, or where the `judge` knows of partitions.
    `undated` are stores that are compared as `Reading.VALUES` where caches are on. `cuts` are those that it goes through on
    Spark.
    """

    name: str
    build: Callable[[Setup], Topology]
    feed: Callable[[Random, int], Sequence[Phase]]
    outputs: tuple[Output, ...]
    input_partitions: int = 1
    undated: tuple[str, ...] = ()
    judge: Judge = Judge.DRIVER
    cuts: Sequence[Cut] = USUAL

    def phases(self, seed: int, records: int) -> Sequence[Phase]:
        """The input: about so many records, the same ones for the same seed."""
        return self.feed(Random(f"{seed} {self.name}"), records)

    def partitions(self, phases: Sequence[Phase]) -> list[Mapping[str, int]]:
        """How many partitions each input topic has, phase by phase; one that a phase creates is not there before."""
        first, created = set[str](), set[str]()
        for phase in phases:
            created |= phase.grows.keys() - first
            first |= {record.topic for record in phase.records} - created
        counts = dict.fromkeys(first, self.input_partitions)
        found: list[Mapping[str, int]] = []
        for phase in phases:
            counts = {**counts, **phase.grows}
            found.append(counts)
        return found

    @property
    def slug(self) -> str:
        """The name as Kafka takes it in names of its own."""
        return "-".join(re.findall("[a-z]+", self.name))


@dataclass(frozen=True)
class Result:
    """What a run of a scenario gave: records by output topic, and the content of stores by name.

    `stores` has more than one reading of a store where a host keeps it in more than one place.
    """

    outputs: Mapping[str, Sequence[Sent]]
    stores: Mapping[str, Mapping[str, Sequence[Entry]]]
    epochs: int = 0
