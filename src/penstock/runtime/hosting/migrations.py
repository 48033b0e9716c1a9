"""Migrations at a start: values of stores are converted in epochs without records, before the first one with records.

Each of these epochs is committed like any other, with the same offsets. The first also commits a note in the topology's facts
that stores are partly converted, so that no other version of the application uses them; the last commits the new facts. A start
that follows a crash continues where the last commit ended.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from penstock import faults, machine
from penstock.engines.port import SlotLostError
from penstock.epochs.migration import MigrationStep, finish_lane, migrate_lane
from penstock.epochs.program import Epoch, Placement, Program
from penstock.epochs.wire import reports_of
from penstock.errors import LaneMovedError
from penstock.history.progress import Progress
from penstock.records import NO_TIMESTAMP
from penstock.runtime.loop.publication import Publication
from penstock.topology.plan import TopologyFacts, convertible, migrating, migrations

_log = logging.getLogger(__name__)

_MOST = 25_000
"""The number of values that an epoch converts on each lane; if a lane converts fewer, none are left there."""

FactsRow = Callable[[TopologyFacts], pa.Table]
RunSteps = Callable[[Epoch, MigrationStep], pa.Table]


class Migrations:
    """Converts the values of a program's stores. `facts_row` returns the row by which facts are committed.

    `run` runs a step of an epoch on all lanes, wherever they are.
    """

    def __init__(self, program: Program, publication: Publication, facts_row: FactsRow, run: RunSteps) -> None:
        self._program = program
        self._publication = publication
        self._facts_row = facts_row
        self._run = run

    def run(self, progress: Progress, before: TopologyFacts | None, after: TopologyFacts) -> Progress:
        """Convert the values that are of the version before; return the progress with the epochs that this took."""
        stores = migrations(before, after, convertible(self._program.specs))
        if before is None or not stores:
            return progress
        try:
            return self._migrate(stores, progress, before, after)
        except (LaneMovedError, SlotLostError) as error:
            cure = "Start again: the migration continues where the last commit ended."
            raise LaneMovedError(f"A slot was lost while {', '.join(stores)} were migrated. {cure} ({error})") from error

    def _migrate(self, stores: Sequence[str], progress: Progress, before: TopologyFacts, after: TopologyFacts) -> Progress:
        names, begun = ", ".join(stores), migrating(before, stores, after)
        _log.info("migrating %s", names)
        total, is_done = 0, False
        while not is_done:
            rows = self._run(self._next(progress), partial(migrate_lane, stores=stores, most=_MOST))
            faults.point("migration.before_commit")
            progress = self._publish(progress, rows, begun)
            faults.point("migration.after_commit")
            converted = [report.records for report in reports_of(rows)]
            total += sum(converted)
            is_done = all(count < _MOST for count in converted)
            _log.info("migrating %s: %d values converted", names, total)
        rows = self._run(self._next(progress), partial(finish_lane, stores=stores))
        progress = self._publish(progress, rows, after)
        _log.info("migrated %s", names)
        return progress

    def _next(self, progress: Progress) -> Epoch:
        times = tuple(progress.high_times.get(origin, NO_TIMESTAMP) for origin in progress.origins)
        now_ms = machine.now_ms()
        return Epoch(progress.epoch + 1, progress.epoch, now_ms, progress.origins, times, placement=Placement(progress.heads))

    def _publish(self, progress: Progress, rows: pa.Table, facts: TopologyFacts) -> Progress:
        heads = {report.lane: report.write_id for report in reports_of(rows)}
        reached = replace(progress, epoch=progress.epoch + 1, heads=heads)
        self._publication.publish(reached, [rows], self._facts_row(facts).to_batches())
        return reached
