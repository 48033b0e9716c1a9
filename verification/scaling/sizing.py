"""From a load to cores, lanes, shards, partitions, hosts and brokers. docs/scaling.md has the same formulas in words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verification.scaling.constants import Constants

MOST_SHARDS = 10_000
FEWEST_SHARDS, FEWEST_ON_HOSTS = 8, 256
"""On one machine, and on several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What an application has to do. Bytes are those before compression."""

    records: float = 200_000
    """Per second, at the peak."""
    record_bytes: float = 200
    """Key, value and headers."""
    keys: float = 50e6
    """Of each store."""
    key_bytes: float = 16
    value_bytes: float = 100
    stores: int = 1
    exchanges: int = 2
    exchanged: float = 1
    """Rows through each exchange for every record."""
    sinks: int = 1
    results: float = 1
    """Rows to each sink for every record."""
    changed: float = 1
    """Changelog rows of each store for every record; caches make it less."""
    hot: float = 1
    """The share of keys that is read often enough to stay in memory."""
    epoch_s: float = 2
    executors_write: bool = False
    """`writers = "executors"`: one more step, in which rows travel to the slot that writes their partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A machine for an executor, or for the driver."""

    cores: int = 8
    memory: float = 32e9
    disk: float = 500e9
    network: float = 10e9 / 8
    """Bytes/s in each direction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """What the load needs. Bytes of hosts are those of one host."""

    load: Load
    executor_cores: float
    lanes: int
    executors: int
    bound_by: str
    """Which resource decides the number of executors."""
    shards: int
    steps: int
    """Requests to each slot in an epoch."""
    source_partitions: int
    written_partitions: int
    """Partitions that a transaction writes to: changelogs, the lanes' topic, sinks."""
    rows: float
    """To sinks and changelogs, per second."""
    row_bytes_per_s: float
    state_bytes: float
    """Of all lanes, on disk."""
    host_memory: float
    host_disk: float
    host_network: float
    driver_memory: float
    driver_network: float
    brokers: int
    broker_network: float
    restore_s: float
    """All lanes from their changelogs."""


def size(load: Load, constants: Constants, host: Host) -> Sizing:
    """Return what a load needs."""
    exchanged = load.records * load.exchanges * load.exchanged
    busy = load.records * constants.lane_us + exchanged * constants.exchange_us
    results, changes = load.records * load.sinks * load.results, load.records * load.stores * load.changed
    if load.executors_write:
        busy += (results + changes) * constants.writer_us
    cores = constants.headroom * busy / 1e6
    row_bytes = load.key_bytes + load.value_bytes
    out = results * load.record_bytes + changes * row_bytes
    state_rows = load.keys * load.stores
    state = state_rows * (row_bytes + constants.row_bytes) / constants.store_fill
    executors, bound_by = _executors(load, constants, host, cores, state)
    lanes = max(1, math.ceil(cores / executors)) * executors
    fewest = FEWEST_SHARDS if executors == 1 else FEWEST_ON_HOSTS
    shards = min(MOST_SHARDS, max(fewest, math.ceil(constants.shards_per_lane * lanes)))
    sources = max(lanes, math.ceil(load.records * load.record_bytes / constants.partition_bytes))
    written = shards * (load.stores + 1) + sources * load.sinks
    passing = 0 if load.executors_write else out
    return Sizing(
        load=load,
        executor_cores=cores,
        lanes=lanes,
        executors=executors,
        bound_by=bound_by,
        shards=shards,
        steps=load.exchanges + 1 + load.executors_write,
        source_partitions=sources,
        written_partitions=written,
        rows=results + changes,
        row_bytes_per_s=out,
        state_bytes=state,
        host_memory=constants.jvm_bytes + lanes / executors * constants.lane_bytes + state * load.hot / executors,
        host_disk=constants.copies * state / executors,
        host_network=_traffic(load, exchanged, out, executors),
        driver_memory=constants.jvm_bytes + passing * load.epoch_s * (constants.epochs_in_flight + 1) * constants.held_rows,
        driver_network=passing,
        brokers=_brokers(load, constants, host, out, sources + written),
        broker_network=load.records * load.record_bytes + out,
        restore_s=state_rows / (constants.restore_rows * lanes),
    )


def _executors(load: Load, constants: Constants, host: Host, cores: float, state: float) -> tuple[int, str]:
    """Return how many hosts are needed, and for what. Lanes and a JVM are on each, whatever there is to keep."""
    own = constants.jvm_bytes + host.cores * constants.lane_bytes
    if own >= host.memory:
        cure = "Cure: more memory, or fewer cores per host."
        raise ValueError(f"{host.cores} lanes of a host need {own / 1e9:.1f} GB, beside any state. {cure}")
    needs = {
        "cores": cores / host.cores,
        "memory": state * load.hot / (host.memory - own),
        "disk": constants.copies * state / host.disk,
    }
    bound_by = max(needs, key=lambda name: needs[name])
    return max(1, math.ceil(needs[bound_by])), bound_by


def _traffic(load: Load, exchanged: float, out: float, executors: int) -> float:
    """Bytes/s that a host receives and sends, the larger of both: records, rows from and to other hosts, results."""
    moved = exchanged * load.record_bytes + (out if load.executors_write else 0)
    between = moved * (1 - 1 / executors)
    return max(load.records * load.record_bytes + between, between + out) / executors


def _brokers(load: Load, constants: Constants, host: Host, out: float, partitions: int) -> int:
    written = load.records * load.record_bytes + out
    needs = (
        constants.replicas,
        constants.replicas * written / constants.broker_bytes,
        constants.replicas * partitions / constants.broker_partitions,
        constants.headroom * constants.replicas * load.records * constants.broker_us / 1e6 / host.cores,
    )
    return math.ceil(max(needs))
