"""The entry of records at their source, by partition in the order of offsets: event times and watermarks.

Needed only if a source has an extractor or a watermark, if a key has to be decoded to find its shard, or if writes to shared
stores have an order over all shards. Otherwise records go straight to their lanes, except those without a valid timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import INPUT, from_topics
from penstock.epochs.output import rows_about_dropped
from penstock.epochs.program import Program
from penstock.epochs.wire import Control, control_row
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.bound_shard import BoundShard, Surroundings
from penstock.lanes.epoch import highest_by_origin, runs
from penstock.lanes.failures import FailurePolicy
from penstock.lanes.position import RawRecord, headers_of
from penstock.lanes.sources import Intake, without_time
from penstock.lanes.stores import OwnShard
from penstock.records import LAST_TIMESTAMP, NO_TIMESTAMP, RecordMetadata
from penstock.state import LaneState, memory_engine
from penstock.topology import SourceNode


def needs_entry(program: Program) -> bool:
    """Whether records have to be processed before they go to their lanes."""
    return program.has_watermarks or program.extracts_timestamps or program.routes_by_value or program.orders_writes


def prepare_input(assigned: Assignment, batches: Sequence[pa.RecordBatch], schema: pa.Schema = INPUT) -> pa.Table:
    """Return records as read from topics, ready for their lanes, and rows about those that are dropped."""
    table, others = _with_times(assigned, from_topics(batches, schema))
    if needs_entry(assigned.program):
        return pa.concat_tables([*enter(assigned, table), *others])
    return pa.concat_tables([table, *others])


def _with_times(assigned: Assignment, table: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """Return the records with a valid timestamp, or with an extractor; for the others, call the error handler."""
    timestamps = table.column("timestamp").to_numpy()
    is_wrong = (timestamps < 0) | (timestamps > LAST_TIMESTAMP)
    if not is_wrong.any():
        return table, []
    nodes = _sources(assigned.program)
    is_wrong &= np.isin(table.column("name").to_numpy(), [code for code, node in nodes.items() if node.timestamp is None])
    lane = _without_nodes(assigned)
    for row in table.filter(pa.array(is_wrong)).to_pylist():
        topic, partition = assigned.epoch.origins[row["origin"]]
        node, origin = nodes[row["name"]], RecordMetadata(topic, partition, row["offset"])
        raw = RawRecord(row["key"], row["value"], row["timestamp"], headers_of(row["headers"]))
        lane.failures.deserialization(node, without_time(node, raw.timestamp, origin), raw, origin)
    return table.filter(pa.array(~is_wrong)), rows_about_dropped(assigned.program, lane.outbox)


def enter(assigned: Assignment, table: pa.Table) -> list[pa.Table]:
    """Return the records with event times and watermarks, and further rows about them."""
    program = assigned.program
    if not table.num_rows:
        return [table]
    order = np.lexsort((table.column("offset").to_numpy(), table.column("origin").to_numpy()))
    if (np.diff(order) != 1).any():
        table = table.take(pa.array(order))
    own_watermarks, others = None, list[pa.Table]()
    if program.extracts_timestamps:
        table, own_watermarks, others = _extracted(assigned, table)
    if table.num_rows:
        if program.has_watermarks or program.extracts_timestamps:
            table, control = _attached(assigned, table, own_watermarks)
            others.append(control_row(control, 0))
        if program.orders_writes:
            table = _placed(table)
    return [table, *others]


def _placed(table: pa.Table) -> pa.Table:
    """Return the records with their places in the merged order, found while the records of each partition are together.

    A shard could find places only from its own part of each partition. That is enough if it changes only its own keys, but writes
    to shared stores need one order over all shards.
    """
    places = highest_by_origin(table.column("origin").to_numpy(), table.column("timestamp").to_numpy())
    for name, values in (("place", places), ("path", np.zeros(len(places), np.int64))):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    return table


def _attached(assigned: Assignment, table: pa.Table, own_watermarks: Any) -> tuple[pa.Table, Control]:
    """Return the records with their partition's time before each of them, continuing from earlier epochs.

    That is the watermark if the source declares one, otherwise the highest event time.
    """
    program, epoch = assigned.program, assigned.epoch
    origins, sources = table.column("origin").to_numpy(), table.column("name").to_numpy()
    timestamps = table.column("timestamp").to_numpy()
    times = np.empty_like(timestamps)
    high_times: dict[int, int] = {}
    watermarks: dict[int, int] = {}
    for start, end in runs(origins):
        origin = int(origins[start])
        strategy = program.watermarks.get(program.sources[sources[start]])
        shown, before, after = timestamps[start:end], epoch.high_times, high_times
        if strategy is not None:
            shown = own_watermarks[start:end] if strategy.function is not None else shown - strategy.disorder_ms
            before, after = epoch.watermarks, watermarks
            high_times[origin] = int(timestamps[start:end].max())
        times[start] = before[origin] if before else NO_TIMESTAMP
        times[start + 1 : end] = shown[:-1]
        np.maximum.accumulate(times[start:end], out=times[start:end])
        after[origin] = int(max(times[end - 1], shown[-1]))
    control = Control(high_times, watermarks=watermarks)
    if not program.has_watermarks:
        return table, control
    return table.set_column(table.schema.get_field_index("stream_time"), "stream_time", pa.array(times)), control


def _extracted(assigned: Assignment, table: pa.Table) -> tuple[pa.Table, Any, list[pa.Table]]:
    """Return the records with event times from extractors, and watermarks from functions, without the dropped ones."""
    program, epoch = assigned.program, assigned.epoch
    lane = _without_nodes(assigned)
    intakes = {code: Intake(node, _nowhere) for code, node in _sources(program).items()}
    partition_times: dict[int, int] = {}
    timestamps, own_watermarks, kept = list[int](), list[int](), list[bool]()
    for row in table.select(["name", "origin", "offset", "timestamp", "key", "value", "headers"]).to_pylist():
        intake, origin = intakes[row["name"]], row["origin"]
        if intake.node.timestamp is None and not intake.tells_watermark:
            timestamps.append(row["timestamp"])
            own_watermarks.append(NO_TIMESTAMP)
            kept.append(True)
            continue
        known = partition_times.get(origin, epoch.high_times[origin] if epoch.high_times else NO_TIMESTAMP)
        topic, partition = epoch.origins[origin]
        metadata = RecordMetadata(topic, partition, row["offset"])
        raw = RawRecord(row["key"], row["value"], row["timestamp"], headers_of(row["headers"]))
        arrival = intake.decode(lane.failures, metadata, raw, known)
        timestamp = NO_TIMESTAMP if arrival is None else arrival.timestamp
        partition_times[origin] = max(known, timestamp)
        timestamps.append(timestamp)
        own_watermarks.append(NO_TIMESTAMP if arrival is None else intake.told_watermark(arrival, metadata, known))
        kept.append(timestamp != NO_TIMESTAMP)
    table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", pa.array(timestamps, pa.int64()))
    others = rows_about_dropped(program, lane.outbox)
    if all(kept):
        return table, np.array(own_watermarks, np.int64), others
    return table.filter(pa.array(kept)), np.array(own_watermarks, np.int64)[np.array(kept)], others


def _sources(program: Program) -> dict[int, SourceNode]:
    nodes = ((code, program.nodes[name]) for code, name in enumerate(program.sources))
    return {code: node for code, node in nodes if isinstance(node, SourceNode)}


def _without_nodes(assigned: Assignment) -> BoundShard:
    """Return a lane that only handles failures at the source: it counts drops and sends dead letters."""
    program, epoch = assigned.program, assigned.epoch
    policy = FailurePolicy(program.handlers, program.application_id, epoch.number)
    nothing, shard = Blueprint([], program.specs), OwnShard(LaneState(memory_engine()))
    return BoundShard(nothing, shard, Surroundings(lambda: epoch.wall_clock), policy)


def _nowhere(key: Any, value: Any, timestamp: int, headers: Any) -> None:
    """Do nothing: the target of an intake that only reads."""
