"""A scenario as a value: a topology, an input made from a seed, and how to compare its results."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from penstock import Store, Topology
from penstock.kafka.partitioner import murmur2
from penstock.records import NO_HEADERS, Headers
from verification.integration.cut import USUAL, Cut

SINK_PARTITIONS = 4
"""The number of partitions of every output topic, on every host."""


class Fed(NamedTuple):
    """A record to feed, with the topic's name in the scenario."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = NO_HEADERS


class Sent(NamedTuple):
    """An output record; `partition` only if something else than its key chose it."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers
    partition: int | None


def chosen(key: bytes | None, partition: int | None) -> int | None:
    """The partition of a record of a sink: that of a partitioner, or of the key in a windowed key; None if its key decides."""
    if key is None or partition is None or partition >= 0:
        return partition
    [hashed] = murmur2(pa.array([key[:partition]], pa.binary()))
    return int(hashed & 0x7FFFFFFF) % SINK_PARTITIONS


class Entry(NamedTuple):
    """An entry of a store as comparable text; `timestamp` only if the store keeps one beside the value."""

    key: str
    value: str
    timestamp: int | None = None


@dataclass(frozen=True)
class Phase:
    """Records that are fed together, and how far the wall clock advances after they are processed.

    A phase ends before the next begins: results that depend on how topics interleave need different phases. Before it
    begins, the topics of `grows` get this many partitions, or are created with them. With `at_once`, all records are there
    before the application reads the first, so that one epoch can take them.
    """

    records: Sequence[Fed]
    advance_ms: int = 0
    grows: Mapping[str, int] = field(default_factory=dict)
    at_once: bool = False


class Reading(Enum):
    """How an output is compared.

    `VALUES` is for tables derived from cached tables: every change they receive updates their timestamp, even one without
    effect, and caches decide how many they receive.
    """

    SEQUENCES = "all records of each key, in order"
    TABLE = "the last record of each key"
    VALUES = "the last value of each key, whenever it is from"
    BAG = "all records, in any order"


def _all_alike(value: bytes | None) -> object:
    """The kind of a record if there is only one."""
    return None


@dataclass(frozen=True)
class Output:
    """An output topic, and how it is compared without caches and with them.

    `kind` splits the records of a key into separate sequences, if only these have an order.
    """

    topic: str
    plain: Reading = Reading.SEQUENCES
    cached: Reading = Reading.TABLE
    kind: Callable[[bytes | None], object] = _all_alike

    @classmethod
    def of_stream(cls, topic: str, kind: Callable[[bytes | None], object] = _all_alike) -> Output:
        """An output that no cache delays: all its records count, with caches or without."""
        return cls(topic, Reading.SEQUENCES, Reading.SEQUENCES, kind)

    def reading(self, caching: bool) -> Reading:
        """How it is compared."""
        return self.cached if caching else self.plain


@dataclass(frozen=True)
class Setup:
    """The options of a topology for one run: whether tables are cached, and the prefix of its topics."""

    caching: bool
    prefix: str = ""

    def topic(self, name: str) -> str:
        """The name of a topic in this run."""
        return self.prefix + name

    def store(self, name: str | None = None, **options: Any) -> Store:
        """The store of a table in this run."""
        return Store(name, caching=self.caching, **options)


class Judge(Enum):
    """The host whose result is the expected one."""

    DRIVER = "the test driver"
    EPOCHS_OF_ONE = "one record after the other, in one lane"
    """In this process; for several partitions with separate times, where the test driver has one per topic."""


@dataclass(frozen=True)
class Scenario:
    """A topology with its input and its outputs.

    `input_partitions` exceeds one only if nothing depends on time, or if the `judge` has partitions.
    `undated` are stores that are compared as `Reading.VALUES` if caches are on. `cuts` are its cuts on Spark.
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
        """The input: about `records` records, the same ones for the same seed."""
        return self.feed(Random(f"{seed} {self.name}"), records)

    def partitions(self, phases: Sequence[Phase]) -> list[Mapping[str, int]]:
        """The number of partitions of each input topic, phase by phase; a topic that a phase creates is missing before."""
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
        """The name in a form that Kafka allows in names."""
        return "-".join(re.findall("[a-z]+", self.name))


@dataclass(frozen=True)
class Result:
    """The result of a run of a scenario: records by output topic, and the content of stores by name.

    `stores` has several contents of a store if a host keeps it in several places.
    """

    outputs: Mapping[str, Sequence[Sent]]
    stores: Mapping[str, Mapping[str, Sequence[Entry]]]
    epochs: int = 0
