"""One machine, `engine = spark` beside `engine = local`: throughput, latency, CPU time of the JVM, memory, and a killed slot."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from benchmarks.bench import Bench, in_turn
from benchmarks.engine.faults import KEYS, RATE, kill_busiest, until_next_commit
from benchmarks.engine.group import Figures, Group, Round, Row, in_tasks
from benchmarks.measurements import latency, throughput
from benchmarks.measurements.prober import Prober
from benchmarks.sides.application import Application
from benchmarks.sides.job import Job
from benchmarks.sides.penstock import Penstock, PenstockLocal
from benchmarks.workloads import WORKLOADS
from benchmarks.workloads.loading import Loaded, create
from verification.harness.broker import Broker
from verification.harness.processes import HarnessError


class PenstockLocalAsOften(PenstockLocal):
    """The local engine with the epoch interval of Spark: its own default is half of that, and latency would show little else."""

    def environment(self, job: Job) -> Mapping[str, str]:
        """The default of Spark."""
        return {**PenstockLocal.environment(self, job), "PENSTOCK_EPOCH_INTERVAL": "100ms"}


SIDES: dict[str, Penstock] = {"spark": Penstock(), "local": PenstockLocalAsOften()}
LETTERS = ("B", "C", "D")
SHARES = {"B": 2.0}
"""(B) is quick: with fewer records it would be a few epochs only."""
WARM_S, MEASURED_S, IDLE_S = 30, 30, 20


def measure(bench: Bench) -> Iterator[Round]:
    """Both sides in each round, one after the other."""
    with bench.broker() as broker:
        loaded = {
            letter: bench.load(broker, WORKLOADS[letter], SHARES.get(letter, 1.0))
            for letter in LETTERS
            if not WORKLOADS[letter].needs_tables_first
        }
        for number in range(bench.options.rounds):
            figures: dict[str, float] = {}
            for name in in_turn(list(SIDES), number):
                own = {**_throughput(bench, broker, name, loaded), **_steady(bench, broker, name)}
                figures |= {f"{name}, {figure}": value for figure, value in own.items()}
            yield Round(figures, _ran_on(bench, "spark"))


def rows(medians: Figures) -> Iterable[Row]:
    """Ratios of the two sides, and what only Spark's side has."""

    def ratio(figure: str) -> tuple[float, tuple[str, str]]:
        ours, theirs = (f"{name}, {figure}" for name in SIDES)
        return medians[ours] / medians[theirs], (ours, theirs)

    def own(name: str, figure: str, goal: float) -> Row:
        return Row(name, medians[f"spark, {figure}"], goal, (f"spark, {figure}",))

    for letter in LETTERS:
        quotient, of = ratio(f"{letter}, records/s")
        yield Row(f"throughput of {letter}, engine = spark / engine = local", quotient, 0.95, of, is_most=False)
    quotient, of = ratio("p95, ms")
    p50 = ("spark, p50, ms", "local, p50, ms")
    yield Row("p95 at 1,000 records/s, epochs every 100 ms, engine = spark / engine = local", quotient, 1.1, (*of, *p50))
    yield own("CPU of the JVM, idle, % of a core", "JVM idle, %", 1)
    yield own("CPU of the JVM at 1,000 records/s, % of a core", "JVM, %", 5)
    yield own("a killed Python worker on one machine: s to the next commit", "killed worker, s", 3)
    of = ("spark, memory, MB", "local, memory, MB")
    yield Row("memory of all processes beside engine = local, GB", (medians[of[0]] - medians[of[1]]) / 1_000, 0.5, of)


def _throughput(bench: Bench, broker: Broker, name: str, loaded: dict[str, Loaded]) -> dict[str, float]:
    found: dict[str, float] = {}
    for letter in LETTERS:
        found[f"{letter}, records/s"] = throughput.run_once(bench, broker, letter, SIDES[name], loaded.get(letter)).per_s
        _ran_on(bench, name)
    return found


def _ran_on(bench: Bench, name: str) -> Mapping[str, Any]:
    """Where the lanes of a side's last application ran; raises if that was another engine."""
    ran_on = bench.report.ran_on[SIDES[name].name]
    if name == "local" and ran_on.get("engine") != "local":
        raise HarnessError(f"lanes did not run in forked processes: {dict(ran_on)}")
    return in_tasks(ran_on) if name == "spark" else ran_on


def _steady(bench: Bench, broker: Broker, name: str) -> dict[str, float]:
    """At a steady rate: latency, CPU time of the JVM, memory; on Spark then while idle, and with a slot that is killed."""
    side, source = SIDES[name], bench.fresh("steady-in")
    create(broker.bootstrap_servers, source)
    with bench.job(broker, side, "steady", "totals", (source,)) as job, Prober(job, KEYS) as prober:
        with Application(side, job) as application:
            prober.wait_until_ready(application)
            prober.send(RATE, bench.options.scaled(WARM_S))
            spans = list[range]()
            found = {
                "JVM, %": _jvm_percent(application, lambda: spans.append(prober.send(RATE, bench.options.scaled(MEASURED_S))))
            }
            prober.wait_for_all(latency.LAST_RESULTS_S)
            found["memory, MB"] = application.tree.peak_pss_bytes / 1e6
            if name == "spark":
                found["JVM idle, %"] = _jvm_percent(application, lambda: time.sleep(bench.options.scaled(IDLE_S)))
                found["killed worker, s"] = until_next_commit(prober, lambda: kill_busiest(application.tree.descendants()))
            prober.wait_until_committed(side.progress(job), latency.LAST_RESULTS_S)
        _ran_on(bench, name)
        prober.check_totals()
    summary = latency.summary(prober.latencies_ms(spans[0]))
    return {**found, "p50, ms": summary["p50"], "p95, ms": summary["p95"]}


def _jvm_percent(application: Application, passes: Callable[[], object]) -> float:
    """CPU time of the JVM with its compiler while something happens, in percent of a core."""

    def spent() -> float:
        seconds = application.cpu_seconds()
        return seconds.get("jvm", 0.0) + seconds.get("compiler", 0.0)

    before, began = spent(), time.monotonic()
    passes()
    return 100 * (spent() - before) / (time.monotonic() - began)


GROUP = Group("one-machine", 27, measure, rows)
