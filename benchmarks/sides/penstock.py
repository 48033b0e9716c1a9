"""Penstock, its topologies written with lambdas and default settings, or with expressions that are computed in columns."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

import penstock
from benchmarks.sides.job import Job
from benchmarks.sides.progress import GroupProgress
from benchmarks.workloads import WORKLOADS
from verification.harness.processes import ROOT

APPLICATIONS = ROOT / "benchmarks" / "applications"
WITH_COLUMNS = frozenset(workload.topology for workload in WORKLOADS.values())
ADMIN_TIMEOUT_S = 10


@dataclass(frozen=True, slots=True)
class Penstock:
    """Two lanes; everything else by default."""

    name: str = "penstock"
    program: str = "penstock_app.py"
    settings: str = ""
    share: float = 1.0
    keeps_late: bool = False
    follows_tables: bool = True

    def excuse(self, topology: str) -> str | None:
        """It runs all of them."""
        return None

    def command(self, job: Job) -> list[str]:
        """The command that starts it."""
        where = [job.application_id, job.bootstrap_servers, str(job.state_dir), str(job.cores)]
        return [sys.executable, str(APPLICATIONS / self.program), job.topology, ",".join(job.sources), job.sink, *where]

    def environment(self, job: Job) -> Mapping[str, str]:
        """A port of its own, so that no other application is in the way."""
        return {"PENSTOCK_ADMIN_ADDRESS": f"127.0.0.1:{job.admin_port}"}

    def progress(self, job: Job) -> GroupProgress:
        """Its exchanges are within an epoch: what is committed is done."""
        return GroupProgress(job)

    def epoch_phases(self, job: Job) -> Mapping[str, float]:
        """Seconds by phase of all epochs so far, from its metrics; none if its admin server is off or elsewhere."""
        families = text_string_to_metric_families(_answer(job, "/metrics"))
        samples = [sample for family in families for sample in family.samples]
        return {sample.labels["phase"]: sample.value for sample in samples if sample.name == "penstock_epoch_phase_seconds_sum"}

    def runs_on(self, job: Job) -> Mapping[str, Any]:
        """Engine, hosts, slots, and how many of them are Spark tasks; nothing if its admin server is off or elsewhere."""
        found = json.loads(_answer(job, "/state") or "{}").get("engine", {})
        if "slots" not in found:
            return {}
        tasks = found["slots"] if found["kind"] == "Spark tasks" else 0
        return {"engine": found["name"], "slots": found["slots"], "spark_tasks": tasks, "hosts": len(found["hosts"])}

    def slots(self, job: Job) -> Mapping[str, int]:
        """The number of slots that are there now, by host."""
        found: dict[str, int] = json.loads(_answer(job, "/state") or "{}").get("engine", {}).get("hosts", {})
        return found


@dataclass(frozen=True, slots=True)
class PenstockLocal(Penstock):
    """The same without Spark."""

    name: str = "penstock-local"

    def environment(self, job: Job) -> Mapping[str, str]:
        """No JVM is started."""
        return {**Penstock.environment(self, job), "PENSTOCK_ENGINE": "local"}


@dataclass(frozen=True, slots=True)
class PenstockColumns(Penstock):
    """The same with expressions over columns instead of lambdas."""

    name: str = "penstock-columns"
    program: str = "columns_app.py"

    def excuse(self, topology: str) -> str | None:
        """It has the workloads of the throughput."""
        if not hasattr(penstock, "agg"):
            return "this version of Penstock has no expressions over columns"
        return None if topology in WITH_COLUMNS else "measured with lambdas only"


def _answer(job: Job, path: str) -> str:
    """What its admin server answers; nothing if it is off or elsewhere."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{job.admin_port}{path}", timeout=ADMIN_TIMEOUT_S) as response:
            return str(response.read().decode())
    except OSError:
        return ""
