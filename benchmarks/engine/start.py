"""The start to the first commit, from an archive of the JVM's classes, beside Kafka Streams with one of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from benchmarks.bench import Bench, in_turn
from benchmarks.engine.group import Figures, Group, Round, Row, in_tasks
from benchmarks.measurements import start
from benchmarks.sides.job import Side
from benchmarks.sides.kafka_streams import with_commits_every
from benchmarks.sides.penstock import Penstock

SIDES: dict[str, Side] = {"penstock": Penstock(), "kafka streams": with_commits_every(100)}
NEW, ARCHIVED = "{}, new, s", "{}, archive, s"


def measure(bench: Bench) -> Iterator[Round]:
    """Start each side in each round: new, again, and from an archive."""
    with bench.broker() as broker:
        for number in range(bench.options.rounds):
            loaded = bench.load(broker, start.WORKLOAD)
            figures: dict[str, float] = {}
            for name in in_turn(list(SIDES), number):
                with bench.job(broker, SIDES[name], "start", start.WORKLOAD.topology, loaded.sources) as job:
                    found = start.started(broker, SIDES[name], job)
                figures[NEW.format(name)] = found["cold_s"]
                figures[ARCHIVED.format(name)] = found["with_archive_s"]
            yield Round(figures, in_tasks(bench.report.ran_on["penstock"]))


def rows(medians: Figures) -> Iterable[Row]:
    """The ratio."""
    ours, theirs = (ARCHIVED.format(name) for name in SIDES)
    name = "start to the first commit with the archive / Kafka Streams'"
    yield Row(name, medians[ours] / medians[theirs], 3, (ours, theirs, *(NEW.format(each) for each in SIDES)))


GROUP = Group("start", 4, measure, rows)
