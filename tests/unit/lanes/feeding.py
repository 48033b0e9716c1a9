"""Builds a lane for a topology, and Arrow batches to run through it; shared by the tests of lanes."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa

from penstock import Topology
from penstock.lanes import epoch
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.bound_shard import BoundShard, Surroundings
from penstock.lanes.epoch import RECORDS, Catalogue
from penstock.lanes.failures import FailurePolicy
from penstock.lanes.outbox import Row
from penstock.lanes.samples import Samples
from penstock.lanes.stores import OwnShard
from penstock.records import Headers
from penstock.state import LaneState, StateOfStores, memory_engine


class Raw(NamedTuple):
    """A record as it is in a partition."""

    topic: str
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None = None
    partition: int = 0
    source: str | None = None


def lane_of(
    topology: Topology,
    state: StateOfStores | None = None,
    policy: FailurePolicy | None = None,
    samples: Samples | None = None,
    surroundings: Surroundings | None = None,
    sub_topologies: Mapping[str, str] = MappingProxyType({}),
) -> BoundShard:
    """Return a lane with all nodes of a topology, by default with stores in memory."""
    nodes = list(topology.nodes.values())
    blueprint = Blueprint(nodes, topology.stores, global_stores=topology.global_stores, sub_topologies=sub_topologies)
    shard = OwnShard(state or LaneState(memory_engine()))
    return BoundShard(blueprint, shard, surroundings or Surroundings(lambda: 0), policy, samples=samples)


NAMED = pa.schema(
    [
        ("source", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        *((name, RECORDS.field(name).type) for name in ("timestamp", "key", "value", "headers")),
    ]
)
"""Records with names where an epoch has codes."""


def batch(records: Iterable[Raw]) -> pa.RecordBatch:
    """Return records as an epoch receives them; by default the source is named after the topic."""
    rows: list[dict[str, Any]] = [
        {
            "source": record.source or record.topic,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": record.key,
            "value": record.value,
            "headers": None if record.headers is None else [{"name": name, "value": data} for name, data in record.headers],
        }
        for record in records
    ]
    return pa.RecordBatch.from_pylist(rows, schema=NAMED)


def walk(lane: BoundShard, batches: Iterable[pa.RecordBatch]) -> None:
    """Walk an epoch of named records."""
    epoch.walk(lane, *_coded(batches))


def feed(lane: BoundShard, batches: Iterable[pa.RecordBatch]) -> None:
    """Walk an epoch of named records, without flushing caches."""
    records, catalogue = _coded(batches)
    epoch.feed(lane, epoch.in_order(records), catalogue)


def _coded(batches: Iterable[pa.RecordBatch]) -> tuple[pa.Table, Catalogue]:
    rows = pa.Table.from_batches(batches, NAMED).to_pylist()
    sources = tuple(dict.fromkeys(row["source"] for row in rows))
    origins = tuple(sorted({(row["topic"], row["partition"]) for row in rows}))
    coded = [
        {**row, "source": sources.index(row["source"]), "origin": origins.index((row["topic"], row["partition"]))} for row in rows
    ]
    return pa.Table.from_pylist(coded, schema=RECORDS), Catalogue(sources, origins)


def shuffled(records: Sequence[Raw], seed: int) -> list[pa.RecordBatch]:
    """Return the same records in random order, in blocks of random size."""
    random_order = random.Random(seed)
    mixed = random_order.sample(records, len(records))
    batches = []
    while mixed:
        size = random_order.randint(1, len(mixed))
        batches.append(batch(mixed[:size]))
        mixed = mixed[size:]
    return batches


def values(rows: Iterable[Row]) -> list[bytes | None]:
    return [row.value for row in rows]
