"""The cost of observability: throughput with everything on and polled every second, and with nothing.

Runs alternate (on, off, off, on, …), so that a machine that gets slower or faster does not bias the result.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measurements.throughput import measure
from benchmarks.sides.application import Application
from benchmarks.sides.penstock import Penstock
from benchmarks.workloads import Totals
from benchmarks.workloads.loading import load
from verification.harness.broker import Broker
from verification.harness.processes import free_port
from verification.operations.served_application import Admin, job_of

POLLED_EVERY_SECOND = ("/metrics", "/dashboard/snapshot", "/health/ready", "/health/live")
SMALL = {"PENSTOCK_MAX_EPOCH_RECORDS": "100000"}
"""Small enough to measure: only two epochs of the default size would fit into the measured time."""
ON = {**SMALL, "PENSTOCK_LOG_FORMAT": "json"}
OFF = {**SMALL, "PENSTOCK_ADMIN_ADDRESS": "off", "PENSTOCK_LOG_FORMAT": "text"}


def run(broker: Broker, directory: Path, records: int = 2_000_000, pairs: int = 2) -> dict[str, Any]:
    """The loss as a fraction, and every run's figure in records per second."""
    loaded = load(broker.bootstrap_servers, Totals(title="", keys=100_000, records=2 * records), name="observed")
    rates: dict[str, list[float]] = {"on": [], "off": []}
    for number, mode in enumerate(("on", "off", "off", "on") * ((pairs + 1) // 2)):
        job = job_of(broker, directory, f"observed-{number}", loaded)
        admin = Admin(free_port())
        environment = {**ON, "PENSTOCK_ADMIN_ADDRESS": f"127.0.0.1:{admin.port}"} if mode == "on" else OFF
        with polled_every_second(admin) if mode == "on" else nullcontext():
            found = measure(Application(Penstock(), job, environment), loaded, broker.pid)
        rates[mode].append(round(found.per_s))
        print(f"overhead: {mode:>3}: {found.per_s:,.0f} records/s", flush=True)
    return {"loss": round(1 - median(rates["on"]) / median(rates["off"]), 4), "records_per_s": rates}


@contextmanager
def polled_every_second(admin: Admin) -> Iterator[None]:
    """Poll like a monitoring system, a probe and an open dashboard."""
    over = threading.Event()

    def poll() -> None:
        while not over.wait(1.0):
            for path in POLLED_EVERY_SECOND:
                admin.get(path)

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    try:
        yield
    finally:
        over.set()
        poller.join()
