"""Values are converted once each, in epochs that the lanes run where they are, however often a start is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest

from penstock import Store, StreamsBuilder, Topology
from penstock.engines.requests import Migrate
from penstock.epochs.assignment import Assignment
from penstock.epochs.migration import MigrationStep
from penstock.epochs.program import Epoch
from penstock.errors import LaneMovedError, ProcessingError
from penstock.history.progress import Progress
from penstock.runtime.hosting import migrations as module
from penstock.runtime.hosting.migrations import Migrations, RunSteps
from penstock.topology.plan import TopologyFacts, facts
from tests.unit.epochs.application import Application, Raw
from tests.unit.epochs.spread import SpreadApplication

KEYS = 40
RECORDS = [Raw(b"k%d" % number, b"1", number) for number in range(KEYS)]
AFTERWARDS = {f"k{number}".encode(): 1_001 for number in range(KEYS)}


def to_thousands(old: int) -> int:
    """Not to be done twice."""
    if old >= 1_000:
        raise ValueError("converted already")
    return old + 1_000


def counting(version: int) -> Topology:
    builder = StreamsBuilder()
    new: dict[str, Any] = {"version": 2, "old": int, "migrate": to_thousands} if version == 2 else {}
    numbers = builder.stream("in", value=str).map_values(int)
    numbers.group_by_key(value=int).reduce(lambda total, number: total + number, store=Store("totals", value=int, **new))
    return builder.build()


class Kafka:
    """Commits what is published to the topics of an application; notes the facts."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.facts: list[TopologyFacts] = []

    def publish(self, progress: Progress, tables: Sequence[pa.Table], first: Sequence[Any]) -> None:
        self.app.commit([], pa.concat_tables(tables))
        assert self.app.epoch == progress.epoch
        self.facts += first

    def note(self, known: TopologyFacts) -> Any:
        return SimpleNamespace(to_batches=lambda: [known])


def by_driver(app: Application) -> RunSteps:
    """Run a step as the driver does on one machine."""

    def run(epoch: Epoch, step: MigrationStep) -> pa.Table:
        return pa.concat_tables(step(Assignment(app.running, epoch, lane=lane)) for lane in range(app.lanes))

    return run


def by_slots(app: Application) -> RunSteps:
    """Run a step in a slot per lane, which knows only the directory of its host."""
    assert isinstance(app, SpreadApplication)

    def run(epoch: Epoch, step: MigrationStep) -> pa.Table:
        batches: list[pa.RecordBatch] = []
        for lane, host in enumerate(app.placement):
            request = cloudpickle.loads(cloudpickle.dumps(Migrate(epoch, step, (lane,))))
            batches += request.run(app.on(host), [])
        return pa.Table.from_batches(batches)

    return run


def begin(app: Application) -> None:
    if isinstance(app, SpreadApplication):
        app.begin()
    else:
        app.start(3)


def migrated(app: Application, run: RunSteps, kafka: Kafka) -> Progress:
    """Start the second version; on a cluster, each epoch continues the last writes of the one before."""
    app.topology = counting(2)
    begin(app)
    assert app.past is not None
    publication: Any = kafka
    start = app.past.progress
    if isinstance(app, SpreadApplication):
        start = replace(start, heads=app.heads[0])
    before = kafka.facts[-1] if kafka.facts else facts(counting(1), "1")
    return Migrations(app.running, publication, kafka.note, run).run(start, before, facts(app.topology, "2"))


def totals(app: Application) -> dict[bytes, int]:
    return {key: int.from_bytes(value[8:], "big") for key, value in app.content("totals").items()}


Run = Callable[[Application], RunSteps]
HOSTS = [(Application, by_driver), (SpreadApplication, by_slots)]


@pytest.fixture(params=HOSTS, ids=["here", "on hosts"])
def started(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Application, Run]]:
    monkeypatch.setattr(module, "_MOST", 3)
    make, run = request.param
    app: Application = make(tmp_path, lambda: counting(1))
    begin(app)
    app.step(RECORDS)
    yield app, run
    if isinstance(app, SpreadApplication):
        app.close()


def test_every_value_is_converted_and_epochs_continue(started: tuple[Application, Run]) -> None:
    app, run = started
    kafka = Kafka(app)
    progress = migrated(app, run(app), kafka)
    assert totals(app) == AFTERWARDS
    assert progress.epoch == app.epoch > KEYS // 3 // app.lanes
    is_partly = ["migrating" in known.stores["totals"] for known in kafka.facts]
    assert is_partly == [True] * (len(kafka.facts) - 1) + [False]
    if isinstance(app, SpreadApplication):
        app.heads = [progress.heads]
    app.step(RECORDS)
    app.check()
    assert totals(app) == {key: value + 1 for key, value in AFTERWARDS.items()}


@pytest.mark.parametrize("lost_at", [0, 1, 4])
def test_a_start_that_is_interrupted_is_continued_by_the_next(started: tuple[Application, Run], lost_at: int) -> None:
    app, run = started
    kafka = Kafka(app)
    steps: list[int] = []

    def interrupted(epoch: Epoch, step: MigrationStep) -> pa.Table:
        rows = run(app)(epoch, step)  # lanes have written it
        steps.append(epoch.number)
        if len(steps) > lost_at:
            raise LaneMovedError("An executor was lost.")
        return rows

    with pytest.raises(LaneMovedError, match=r"while totals were migrated\. Start again: .* \(An executor was lost\.\)"):
        migrated(app, interrupted, kafka)
    assert app.epoch == steps[-1] - 1
    migrated(app, run(app), kafka)
    assert totals(app) == AFTERWARDS
    app.check()


def test_a_value_that_cannot_be_converted_ends_the_start(started: tuple[Application, Run]) -> None:
    app, run = started
    app.step([Raw(b"k0", b"999", 100)])
    with pytest.raises(ProcessingError, match="Store 'totals' cannot be migrated to version 2: ValueError: converted already"):
        migrated(app, run(app), Kafka(app))


def test_a_lane_on_the_wrong_host_is_not_converted(tmp_path: Path) -> None:
    app = SpreadApplication(tmp_path, lambda: counting(1))
    begin(app)
    app.step(RECORDS)

    def elsewhere(epoch: Epoch, step: MigrationStep) -> pa.Table:
        app.placement = (*app.placement[1:], app.placement[0])
        return by_slots(app)(epoch, step)

    with pytest.raises(LaneMovedError, match="which epoch 1 does not continue"):
        migrated(app, elsewhere, Kafka(app))
    app.close()


def test_without_another_version_nothing_runs(started: tuple[Application, Run]) -> None:
    app, _ = started
    assert app.past is not None
    publication: Any = Kafka(app)
    nothing: Any = None
    same = facts(counting(1), "1")
    made = Migrations(app.running, publication, nothing, nothing)
    assert made.run(app.past.progress, same, same) is app.past.progress
    assert made.run(app.past.progress, None, same) is app.past.progress
