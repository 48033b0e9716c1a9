"""Three hosts beside one machine: latency, and how soon after a worker, an executor or a host has died records are committed.

A host is also suspended until its lanes run elsewhere, and then continues. In the end all results must be there once: what it
writes late is void.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import psutil

from benchmarks.bench import Bench, in_turn
from benchmarks.cluster import write_settings
from benchmarks.engine.faults import KEYS, NEXT_S, PROBES_PER_S, RATE, kill_busiest, until_next_commit
from benchmarks.engine.group import Figures, Group, Round, Row, in_tasks
from benchmarks.measurements import latency
from benchmarks.measurements.prober import Prober
from benchmarks.sides.application import Application
from benchmarks.sides.penstock import Penstock
from benchmarks.workloads.loading import create
from verification.harness.broker import Broker
from verification.harness.processes import HarnessError, wait_until
from verification.harness.spark_cluster import Host, SparkCluster

HOSTS, CORES = 3, 3
LANES = {"one machine": 2, "three hosts": HOSTS}
WARM_S, MEASURED_S = 30, 30
SPREAD_S = 150
"""Longer than it takes until slots are spread evenly over executors that came one after the other."""
AWAKE_S = 3
"""How long a suspended host is awake before more records are sent."""
SIDE = Penstock()


def measure(bench: Bench) -> Iterator[Round]:
    """Both places in each round, one after the other; then the faults."""
    with bench.broker() as broker, SparkCluster(HOSTS, cores=CORES) as cluster:
        for number in range(bench.options.rounds):
            figures: dict[str, float] = {}
            ran_on: dict[str, Mapping[str, Any]] = {}
            for place in in_turn(list(LANES), number):
                own, ran_on[place] = _round(bench, broker, cluster, place)
                figures |= {f"{place}, {figure}": value for figure, value in own.items()}
            yield Round(figures, ran_on["three hosts"])


def rows(medians: Figures) -> Iterable[Row]:
    """The ratio, and the time after each fault."""
    hosts, machine = "three hosts, p95, ms", "one machine, p95, ms"
    p50 = ("three hosts, p50, ms", "one machine, p50, ms")
    yield Row("p95 at 1,000 records/s, three hosts / one machine", medians[hosts] / medians[machine], 1.5, (hosts, machine, *p50))
    for fault, goal in (("a killed Python worker", 3), ("a killed executor", 5), ("a killed host", 10)):
        figure = f"three hosts, {fault}, s"
        yield Row(f"{fault}: s to the next commit", medians[figure], goal, (figure,))
    figure = "three hosts, a suspended host, s"
    yield Row("a suspended host, whose later writes were void: s to the next commit", medians[figure], 10, (figure,))


def _round(bench: Bench, broker: Broker, cluster: SparkCluster, place: str) -> tuple[dict[str, float], Mapping[str, Any]]:
    on_hosts = place == "three hosts"
    write_settings(bench.directory, {**cluster.settings, "spark.driver.memory": "1g"} if on_hosts else {})
    source = bench.fresh("steady-in")
    create(broker.bootstrap_servers, source)
    lanes = LANES[place]
    with bench.job(broker, SIDE, "steady", "totals", (source,), cores=lanes) as job, Prober(job, KEYS) as prober:
        with Application(SIDE, job) as application:
            prober.wait_until_ready(application)
            _await_slots(application, prober, HOSTS if on_hosts else 1)
            prober.send(RATE, bench.options.scaled(WARM_S))
            ran_on = in_tasks(SIDE.runs_on(job))
            span = prober.send(RATE, bench.options.scaled(MEASURED_S))
            prober.wait_for_all(latency.LAST_RESULTS_S)
            figures = _faults(cluster, application, prober) if on_hosts else {}
            prober.wait_until_committed(SIDE.progress(job), latency.LAST_RESULTS_S)
        prober.check_totals()
    summary = latency.summary(prober.latencies_ms(span))
    return {**figures, "p50, ms": summary["p50"], "p95, ms": summary["p95"]}, ran_on


def _await_slots(application: Application, prober: Prober, hosts: int) -> Mapping[str, int]:
    """Send records until each lane has a slot, on so many hosts at least; return the slots by host."""
    job, end = application.job, time.monotonic() + SPREAD_S
    while sum((slots := SIDE.slots(job)).values()) < job.cores or len(slots) < hosts:
        application.check()
        if time.monotonic() > end:
            raise HarnessError(f"{job.cores} slots on {hosts} hosts wanted, {slots} there:\n{application.log_tail()}")
        prober.send(RATE, 1, PROBES_PER_S)
    return slots


def _faults(cluster: SparkCluster, application: Application, prober: Prober) -> dict[str, float]:
    """Each fault, on a host with slots, and what brings the cluster back."""
    found: dict[str, float] = {}
    faults: Mapping[str, tuple[Callable[[Host], object], Callable[[Host], object]]] = {
        "a killed Python worker": (_kill_worker, lambda host: None),
        "a killed executor": (_kill_executor, lambda host: None),
        "a suspended host": (Host.pause, _wake),
        "a killed host": (Host.kill, Host.start),
    }
    for name, (hurt, bring_back) in faults.items():
        host = _with_slots(cluster, application, prober)
        found[f"{name}, s"] = until_next_commit(prober, partial(hurt, host))
        print(f"{time.strftime('%H:%M:%S')} {name}: {found[f'{name}, s']:.2f} s to the next commit", flush=True)
        application.check()
        bring_back(host)
        prober.send(RATE, 2, PROBES_PER_S)
        prober.wait_for_all(NEXT_S)
    return found


def _with_slots(cluster: SparkCluster, application: Application, prober: Prober) -> Host:
    """The host with most slots, once there is an executor on each host."""
    wait_until("each host has an executor", lambda: all(host.executors() for host in cluster.hosts.values()))
    slots = _await_slots(application, prober, hosts=1)
    return max(cluster.hosts.values(), key=lambda host: slots.get(host.address, 0))


def _kill_worker(host: Host) -> None:
    below: list[psutil.Process] = []
    for executor in host.executors():
        below += executor.children(recursive=True)
    kill_busiest(below)


def _kill_executor(host: Host) -> None:
    if not host.kill_executor():
        raise HarnessError(f"{host.address} has no executor")


def _wake(host: Host) -> None:
    host.resume()
    time.sleep(AWAKE_S)


GROUP = Group("three-hosts", 15, measure, rows)
