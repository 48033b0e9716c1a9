"""A lane that decodes Avro beside one that decodes JSON: the same records, topology and store as in `make bench-lane`."""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from benchmarks.lane import add, rate, records, run_lane, start
from penstock import Avro, Serde, StreamsBuilder
from penstock.lanes.blueprint import Blueprint
from penstock.serdes import Json
from penstock.serdes.registry.registry import Registry
from penstock.serdes.registry.serde import connected
from penstock.topology.bindings import bound_nodes

_SCHEMA = {
    "type": "record",
    "name": "Record",
    "fields": [{"name": "amount", "type": "long"}, {"name": "id", "type": "long"}],
}


def compared(registry: Registry, count: int, rounds: int) -> dict[str, float]:
    """Return records per second of CPU time, the best of each, and their ratio."""
    json_batches = records(count, keys=100_000)
    avro_batches = [_in_avro(batch, registry) for batch in json_batches]
    by_json, by_avro = [], []
    for _ in range(rounds):
        by_json.append(_rate(Json(), registry, json_batches))
        by_avro.append(_rate(Avro(schema=_SCHEMA), registry, avro_batches))
    best_json, best_avro = max(by_json), max(by_avro)
    return {
        "json_per_s": round(best_json),
        "avro_per_s": round(best_avro),
        "ratio_to_json": round(best_avro / best_json, 3),
    }


def _in_avro(batch: pa.RecordBatch, registry: Registry) -> pa.RecordBatch:
    write = connected(Avro(schema=_SCHEMA), registry).for_topic("records", is_key=False).serialize
    place = batch.schema.get_field_index("value")
    values = [write(orjson.loads(value)) for value in batch.column(place).to_pylist()]
    return batch.set_column(place, batch.schema.field(place), pa.array(values, pa.binary()))


def _rate(serde: Serde[Any], registry: Registry, batches: list[pa.RecordBatch]) -> float:
    builder = StreamsBuilder()
    stream = builder.stream("records", value=serde, name="in")
    stream.group_by_key().aggregate(start, add, store="totals", value=Json()).to_stream().to("totals")
    built = builder.build()
    blueprint = Blueprint(list(bound_nodes(built.nodes, registry).values()), built.stores)
    return rate(partial(run_lane, blueprint=blueprint), batches)
