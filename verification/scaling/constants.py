"""The constants of the sizing, each with its unit and its source."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from verification.harness.processes import ROOT

BENCH = ROOT / "docs" / "data" / "bench.json"
WORDS_OF_LINE = 10
SLOTS_AND_DRIVER = 3
PROTOTYPE = "prototype, one broker, two cores"
WRITERS = "`python -m verification.writers`"
MEASURE = "`python -m verification.scaling --measure`"


class Constant(NamedTuple):
    """A constant as the page shows it."""

    name: str
    value: float
    unit: str
    source: str


def _bench(unit: str, source: str) -> dict[str, str]:
    return {"unit": unit, "source": f"`make bench`: {source}"}


def _of(unit: str, source: str) -> dict[str, str]:
    return {"unit": unit, "source": source}


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What was measured, and what is assumed.

    Those without a default are from `docs/data/bench.json`, where Penstock ran with two lanes in two Spark tasks on two cores.
    What a prototype has measured, no command here repeats.
    """

    lane_us: float = field(metadata=_bench("µs per record", "B, CPU of the slots, which also read"))
    exchange_us: float = field(metadata=_bench("µs per row", "C, CPU of the slots per word, with its count"))
    driver_row_us: float = field(metadata=_bench("µs per row", "B, phase `produce` per result and changelog row"))
    broker_us: float = field(metadata=_bench("µs per record", "B, CPU of the broker, one replica"))
    lane_bytes: float = field(metadata=_bench("bytes", "B, a third of the peak PSS: two slots, the driver with its JVM"))
    writer_us: float = field(default=1.0, metadata=_of("µs per row", f"{PROTOTYPE}: encoding; {WRITERS}: 1.3 million rows/s"))
    jvm_bytes: float = field(default=4e9, metadata=_of("bytes per executor", "assumed: a heap of 2 GB, as much again for Arrow"))
    row_bytes: float = field(default=83, metadata=_of("bytes per row", f"{MEASURE}: beside key and value"))
    store_fill: float = field(default=0.59, metadata=_of("share", f"{MEASURE}: of a lane's file that is in use"))
    copies: float = field(default=2, metadata=_of("files per lane", "assumed: a copy or a rebuilt file beside the current one"))
    restore_rows: float = field(default=200_000, metadata=_of("rows/s per lane", f"{PROTOTYPE}: rebuilt from changelogs"))
    headroom: float = field(default=2, metadata=_of("times", "assumed: what an outage has left is made up in the same time"))
    shards_per_lane: float = field(default=4, metadata=_of("shards", "assumed: room for four times the lanes"))
    epochs_in_flight: float = field(default=1, metadata=_of("epochs", "default of `epochs_in_flight`"))
    held_rows: float = field(default=2, metadata=_of("times", "assumed: an epoch's rows as a table and in the producer's queue"))
    request_ms: float = field(default=0.52, metadata=_of("ms per slot and step", "`make bench-engine`: there and back"))
    commit_share: float = field(default=0.25, metadata=_of("share of an epoch", "assumed: for the commit, on brokers"))
    partition_add_ms: float = field(
        default=0.07, metadata=_of("ms per partition", f"prototype: 2,560 partitions; {WRITERS} times them")
    )
    marker_ms: float = field(default=0.06, metadata=_of("ms per partition", f"prototype: 2,560 partitions; {WRITERS} times them"))
    writers: float = field(default=100, metadata=_of("writers per transaction", f"assumed; {WRITERS} has up to 128"))
    group_ms: float = field(default=3.4, metadata=_of("ms per group", f"{PROTOTYPE}: 128 groups, decided and committed"))
    partition_bytes: float = field(default=10e6, metadata=_of("bytes/s per partition", "assumed"))
    broker_bytes: float = field(default=100e6, metadata=_of("bytes/s per broker", "assumed: written, with replicas"))
    broker_partitions: float = field(default=4_000, metadata=_of("replicas per broker", "recommendation that KIP-578 quotes"))
    replicas: float = field(default=3, metadata=_of("replicas", "assumed: `replication_factor`"))

    def each(self) -> Iterator[Constant]:
        """Yield all of them."""
        for one in fields(self):
            yield Constant(one.name, getattr(self, one.name), one.metadata["unit"], one.metadata["source"])

    @property
    def driver_rows(self) -> float:
        """Rows/s of one producer on the driver."""
        return 1e6 / self.driver_row_us


def measured(bench: Path = BENCH, side: str = "penstock") -> Constants:
    """Return the constants with what the benchmark has measured; side `penstock-columns` is with column expressions."""
    throughput = json.loads(bench.read_text(encoding="utf-8"))["throughput"]
    counted, words = _median(throughput, "B", side), _median(throughput, "C", side)
    rows = 2 * counted["results"]  # with its caches, B writes a changelog row for each result
    return Constants(
        lane_us=counted["cpu_s_per_million"]["workers"],
        exchange_us=words["cpu_s_per_million"]["workers"] / WORDS_OF_LINE,
        driver_row_us=1e6 * counted["epoch_phases"]["produce"] / rows,
        broker_us=counted["cpu_s_per_million"]["broker"],
        lane_bytes=1e6 * counted["peak_pss_mb"] / SLOTS_AND_DRIVER,
    )


def _median(throughput: dict[str, Any], workload: str, side: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = throughput[workload][side]["median"]
    except KeyError as error:
        raise ValueError(f"{BENCH.name} has no {error} of workload {workload!r}. Cure: run `make bench` with it.") from None
    return found
