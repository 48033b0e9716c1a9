"""Probes while an application restores all of its state, and when one of its epochs hangs."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from benchmarks.measurements.samples import Sampler
from benchmarks.workloads import Totals
from benchmarks.workloads.loading import load
from verification.harness.broker import Broker
from verification.harness.processes import HarnessError
from verification.operations.served_application import Admin, job_of, serving

RESTORE_S = 240
HUNG_CODE = 23
EPOCH_TIMEOUT_S = 8
POLL_S = 0.03
"""Time between two requests; a restore takes only tenths of a second once the lanes read."""


def cold_restore(broker: Broker, directory: Path, keys: int = 1_000_000) -> dict[str, Any]:
    """The probes' responses from the start of the process until it was ready."""
    loaded = load(broker.bootstrap_servers, Totals(title="", keys=keys, records=keys), name="restored")
    job = job_of(broker, directory, "restored", loaded)
    with serving(job) as (application, _, _):
        progress = application.side.progress(job)
        Sampler(application, progress, broker.pid).reach(loaded.records)
        progress.close()
    shutil.rmtree(job.state_dir)
    with serving(job) as (application, admin, _):
        statuses, fractions, lives = _watched(admin, time.monotonic() + RESTORE_S)
        application.check()
    return {
        "keys": keys,
        "ready_statuses": statuses,
        "live_statuses": sorted(lives),
        "progress_seen": list(dict.fromkeys(fractions)),
        "progress_rises": fractions == sorted(fractions) and len(set(fractions)) > 2,
    }


def _watched(admin: Admin, deadline: float) -> tuple[list[int], list[float], set[int]]:
    """The statuses of readiness in order, the progress of the restore, and all statuses of liveness."""
    statuses: list[int] = []
    fractions: list[float] = []
    lives: set[int] = set()
    while time.monotonic() < deadline:
        answer = admin.get("/health/ready")
        if answer.status:
            lives.add(admin.get("/health/live").status)
            if not statuses or statuses[-1] != answer.status:
                statuses.append(answer.status)
            restore = answer.json().get("restore") or {}
            if answer.status == 503 and restore.get("lanes"):
                fractions.append(restore["fraction"])
            if answer.status == 200:
                return statuses, fractions, lives
        time.sleep(POLL_S)
    raise HarnessError(f"not ready after {RESTORE_S} s; readiness statuses were {statuses}")


def hung_epoch(broker: Broker, directory: Path) -> dict[str, Any]:
    """The time from a hung epoch's deadline until liveness failed, and the exit code of the process."""
    loaded = load(broker.bootstrap_servers, Totals(title="", keys=100, records=1_000), name="hung")
    job = job_of(broker, directory, "hung", loaded)
    faults = directory / "hung-faults"
    environment = {
        "PENSTOCK_EPOCH_TIMEOUT": f"{EPOCH_TIMEOUT_S}s",
        "PENSTOCK_FAULT": "epoch.after_job:1:sleep=600",
        "PENSTOCK_FAULT_DIR": str(faults),
    }
    with serving(job, environment) as (application, admin, _):
        deadline = time.monotonic() + RESTORE_S
        while not (faults / "fired").exists():
            if time.monotonic() > deadline:
                raise HarnessError(f"no epoch hangs:\n{application.log_tail()}")
            time.sleep(0.02)
        hung_at = time.monotonic()
        while (status := admin.get("/health/live").status) == 200:
            time.sleep(0.05)
        red_after_s = time.monotonic() - hung_at
        code = application.wait(60)
    return {"live_status": status, "red_after_s": round(red_after_s, 2), "epoch_timeout_s": EPOCH_TIMEOUT_S, "exit_code": code}
