"""What happens to records at their source, partition by partition in the order of offsets: event time and stream time.

Needed only where a source has an extractor or somebody judges lateness; otherwise records go straight to their lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.epochs.program import Epoch, Program
from penstock.epochs.sending import rows_out
from penstock.epochs.wire import Control, control_row
from penstock.lanes.failures import Failures
from penstock.lanes.lane import Lane
from penstock.lanes.position import RawRecord, headers_of
from penstock.lanes.sources import Intake
from penstock.records import NO_TIMESTAMP, RecordMetadata
from penstock.state import LaneState, memory_engine
from penstock.topology import SourceNode


def needs_entering(program: Program) -> bool:
    """Whether records have to be looked at before they go to their lanes."""
    return program.attaches_stream_time or program.extracts_timestamps


def enter(program: Program, epoch: Epoch, table: pa.Table) -> list[pa.Table]:
    """The records with event and stream time, and what else is to be said about them."""
    if not table.num_rows:
        return [table]
    order = np.lexsort((table.column("offset").to_numpy(), table.column("origin").to_numpy()))
    if (np.diff(order) != 1).any():
        table = table.take(pa.array(order))
    others: list[pa.Table | None] = []
    if program.extracts_timestamps:
        table, *others = _extracted(program, epoch, table)
    if table.num_rows:
        table, high_times = _attached(epoch, table)
        others.append(control_row(Control(high_times), 0))
    return [table, *(other for other in others if other is not None)]


def _attached(epoch: Epoch, table: pa.Table) -> tuple[pa.Table, dict[int, int]]:
    """The highest event time of each partition before each of its records, going on from what earlier epochs have shown."""
    origins = table.column("origin").to_numpy()
    timestamps = table.column("timestamp").to_numpy()
    times = np.empty_like(timestamps)
    starts = np.flatnonzero(np.diff(origins, prepend=origins[0] - 1))
    high_times: dict[int, int] = {}
    for start, end in zip(starts, [*starts[1:], len(origins)], strict=True):
        origin = int(origins[start])
        times[start] = epoch.high_times[origin] if epoch.high_times else NO_TIMESTAMP
        times[start + 1 : end] = timestamps[start : end - 1]
        np.maximum.accumulate(times[start:end], out=times[start:end])
        high_times[origin] = int(max(times[end - 1], timestamps[end - 1]))
    return table.set_column(table.schema.get_field_index("stream_time"), "stream_time", pa.array(times)), high_times


def _extracted(program: Program, epoch: Epoch, table: pa.Table) -> list[pa.Table | None]:
    """Event times by the sources' extractors; without records that an extractor drops or that cannot be read."""
    lane = _without_nodes(program, epoch)
    intakes = {code: Intake(node, _nowhere) for code, node in _sources(program).items()}
    partition_times: dict[int, int] = {}
    timestamps: list[int] = []
    kept: list[bool] = []
    for row in table.select(["name", "origin", "offset", "timestamp", "key", "value", "headers"]).to_pylist():
        intake, origin = intakes[row["name"]], row["origin"]
        if intake.node.timestamp is None:
            timestamps.append(row["timestamp"])
            kept.append(True)
            continue
        known = partition_times.get(origin, epoch.high_times[origin] if epoch.high_times else NO_TIMESTAMP)
        topic, partition = epoch.origins[origin]
        timestamp = _event_time(lane, intake, RecordMetadata(topic, partition, row["offset"]), row, known)
        partition_times[origin] = max(known, timestamp)
        timestamps.append(timestamp)
        kept.append(timestamp != NO_TIMESTAMP)
    table = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", pa.array(timestamps, pa.int64()))
    dropped = [(node, reason, count) for (node, reason), count in lane.dropped.items()]
    return [
        table if all(kept) else table.filter(pa.array(kept)),
        rows_out(program, lane.drain(), 0),
        control_row(Control(dropped=dropped), 0) if dropped else None,
    ]


def _event_time(lane: Lane, intake: Intake, origin: RecordMetadata, row: dict[str, Any], partition_time: int) -> int:
    """What the extractor says, -1 for a record that is dropped."""
    raw = RawRecord(row["key"], row["value"], row["timestamp"], headers_of(row["headers"]))
    arrival = intake.decode(lane, origin, raw, partition_time)
    return NO_TIMESTAMP if arrival is None else arrival.timestamp


def _sources(program: Program) -> dict[int, SourceNode]:
    nodes = ((code, program.nodes[name]) for code, name in enumerate(program.sources))
    return {code: node for code, node in nodes if isinstance(node, SourceNode)}


def _without_nodes(program: Program, epoch: Epoch) -> Lane:
    """A lane only for what goes wrong at the source: it counts drops and sends dead letters."""
    failures = Failures(program.handlers, program.application_id, epoch.number)
    return Lane([], program.specs, LaneState(memory_engine()), lambda: epoch.wall_clock, failures=failures)


def _nowhere(key: Any, value: Any, timestamp: int, headers: Any) -> None:
    """Where an intake that only reads would send records."""
