"""What happens to records at their source, partition by partition in the order of offsets: event times and watermarks.

Needed only where a source has an extractor or tells watermarks, where a key has to be read to know its shard, or where writes to
shared stores have an order over all shards; otherwise records go straight to their lanes, but for those that have no time at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.epochs.assignment import Assignment
from penstock.epochs.hops import INPUT, from_topics
from penstock.epochs.output import letters_sent
from penstock.epochs.program import Program
from penstock.epochs.wire import Control, control_row
from penstock.lanes.blueprint import Blueprint
from penstock.lanes.epoch import highest_by_origin, runs
from penstock.lanes.failures import FailurePolicy
from penstock.lanes.lane import Lane, Surroundings
from penstock.lanes.outbox import Outbox
from penstock.lanes.position import RawRecord, headers_of
from penstock.lanes.sources import Intake, without_time
from penstock.lanes.stores import OwnShard
from penstock.records import LAST_TIMESTAMP, NO_TIMESTAMP, RecordMetadata
from penstock.state import LaneState, memory_engine
from penstock.topology import SourceNode


def needs_entry(program: Program) -> bool:
    """Whether records have to be looked at before they go to their lanes."""
    return program.has_watermarks or program.extracts_timestamps or program.routes_by_value or program.orders_writes


def prepare_input(assigned: Assignment, batches: Sequence[pa.RecordBatch], schema: pa.Schema = INPUT) -> pa.Table:
    """Records as read from topics, ready to go to their lanes, and rows about those that do not."""
    table, others = _with_times(assigned, from_topics(batches, schema))
    if needs_entry(assigned.program):
        return pa.concat_tables([*enter(assigned, table), *others])
    return pa.concat_tables([table, *others])


def _with_times(assigned: Assignment, table: pa.Table) -> tuple[pa.Table, list[pa.Table]]:
    """The records that have a time, or whose source has an extractor to find one; the others' handler has had its say."""
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


def rows_about_dropped(program: Program, outbox: Outbox) -> list[pa.Table]:
    """What a lane that only reads says about records that it has not sent on: dead letters, and how many were dropped."""
    letters = letters_sent(program, outbox.drain())
    dropped = [(node, reason, count) for (node, reason), count in outbox.dropped.items()]
    outbox.dropped.clear()
    return [*([] if letters is None else [letters]), *([control_row(Control(dropped=dropped), 0)] if dropped else [])]


def enter(assigned: Assignment, table: pa.Table) -> list[pa.Table]:
    """The records with event times and watermarks, and what else is to be said about them."""
    program = assigned.program
    if not table.num_rows:
        return [table]
    order = np.lexsort((table.column("offset").to_numpy(), table.column("origin").to_numpy()))
    if (np.diff(order) != 1).any():
        table = table.take(pa.array(order))
    told, others = None, list[pa.Table]()
    if program.extracts_timestamps:
        table, told, others = _extracted(assigned, table)
    if table.num_rows:
        if program.has_watermarks or program.extracts_timestamps:
            table, control = _attached(assigned, table, told)
            others.append(control_row(control, 0))
        if program.orders_writes:
            table = _placed(table)
    return [table, *others]


def _placed(table: pa.Table) -> pa.Table:
    """The records with their places in the merged order, found where all of a partition's are together.

    A shard that finds them itself does so from its own part of each partition. That is good enough where only its own keys are
    changed; but who writes to shared stores must come in one order over all shards.
    """
    places = highest_by_origin(table.column("origin").to_numpy(), table.column("timestamp").to_numpy())
    for name, values in (("place", places), ("path", np.zeros(len(places), np.int64))):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    return table


def _attached(assigned: Assignment, table: pa.Table, told: Any) -> tuple[pa.Table, Control]:
    """How far each partition's time had come before each of its records, going on from what earlier epochs have shown.

    That is its watermark where the source has a strategy, else the highest event time.
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
            shown = told[start:end] if strategy.function is not None else shown - strategy.disorder_ms
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
    """Event times by the sources' extractors and watermarks by their functions; without records that are dropped here."""
    program, epoch = assigned.program, assigned.epoch
    lane = _without_nodes(assigned)
    intakes = {code: Intake(node, _nowhere) for code, node in _sources(program).items()}
    partition_times: dict[int, int] = {}
    timestamps, told, kept = list[int](), list[int](), list[bool]()
    for row in table.select(["name", "origin", "offset", "timestamp", "key", "value", "headers"]).to_pylist():
        intake, origin = intakes[row["name"]], row["origin"]
        if intake.node.timestamp is None and not intake.tells_watermark:
            timestamps.append(row["timestamp"])
            told.append(NO_TIMESTAMP)
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
        told.append(NO_TIMESTAMP if arrival is None else intake.told_watermark(arrival, metadata, known))
        kept.append(timestamp != NO_TIMESTAMP)
    table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", pa.array(timestamps, pa.int64()))
    others = rows_about_dropped(program, lane.outbox)
    if all(kept):
        return table, np.array(told, np.int64), others
    return table.filter(pa.array(kept)), np.array(told, np.int64)[np.array(kept)], others


def _sources(program: Program) -> dict[int, SourceNode]:
    nodes = ((code, program.nodes[name]) for code, name in enumerate(program.sources))
    return {code: node for code, node in nodes if isinstance(node, SourceNode)}


def _without_nodes(assigned: Assignment) -> Lane:
    """A lane only for what goes wrong at the source: it counts drops and sends dead letters."""
    program, epoch = assigned.program, assigned.epoch
    policy = FailurePolicy(program.handlers, program.application_id, epoch.number)
    nothing, shard = Blueprint([], program.specs), OwnShard(LaneState(memory_engine()))
    return Lane(nothing, shard, Surroundings(lambda: epoch.wall_clock), policy)


def _nowhere(key: Any, value: Any, timestamp: int, headers: Any) -> None:
    """Where an intake that only reads would send records."""
