"""(B) with 1, 2 and 3 executors: how the rate grows, against that of Spark by itself, whoever writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.bench import Bench, in_turn
from benchmarks.cluster import EXECUTORS, SIDES, SPARE, against_spark, rate
from benchmarks.engine.group import Figures, Group, Round, Row, in_tasks
from benchmarks.workloads import WORKLOADS
from verification.harness.spark_cluster import SparkCluster

FIGURE = "{}, executors {}, records/s"


def measure(bench: Bench) -> Iterator[Round]:
    """All sides with one executor and with all, which the ratio is made of; in the first round with each number."""
    with bench.broker() as broker, SparkCluster(len(EXECUTORS), cores=1 + SPARE) as cluster:
        loaded = bench.load(broker, WORKLOADS["B"])
        for number in range(bench.options.rounds):
            found: dict[str, float] = {}
            for count in EXECUTORS if number == 0 else (EXECUTORS[0], EXECUTORS[-1]):
                for name in in_turn(list(SIDES), number):
                    found[FIGURE.format(name, count)] = rate(bench, broker, cluster, SIDES[name], loaded, count)
            yield Round(found, in_tasks(bench.report.ran_on["penstock"]))


def rows(medians: Figures) -> Iterable[Row]:
    """The growth of each of Penstock's sides from one executor to all, against Spark's."""
    rates = {name: {count: medians[FIGURE.format(name, count)] for count in EXECUTORS} for name in SIDES}
    for name, ratio in against_spark(rates).items():
        of = tuple(FIGURE.format(side, count) for side in (name, "spark") for count in EXECUTORS)
        writes = name.partition(", ")[2] or "the driver writes"
        yield Row(f"B with 1, 2, 3 executors against Spark's own scaling, {writes}", ratio, 0.95, of, is_most=False)


GROUP = Group("scaling", 19, measure, rows)
