"""Migrations at a start: values of stores are converted in epochs without records, before the first one with records.

Each of these epochs is committed like any other, with the same offsets. The first also commits a note in the topology's facts
that stores are partly converted, so that no other version of the application uses them; the last commits the new facts. A start
that follows a crash continues where the last commit ended.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock import faults
from penstock.epochs.assignment import Assignment
from penstock.epochs.migration import finish_lane, migrate_lane
from penstock.epochs.program import Epoch, Program
from penstock.errors import ConfigError
from penstock.plan import TopologyFacts, convertible, migrating, migrations
from penstock.records import NO_TIMESTAMP
from penstock.runtime.progress import Progress
from penstock.runtime.publication import Publication

_log = logging.getLogger(__name__)

_MOST = 25_000
"""The number of values that an epoch converts on each lane."""

FactsRow = Callable[[TopologyFacts], pa.Table]


class Migrations:
    """Converts the values of a program's stores. `facts_row` returns the row by which facts are committed."""

    def __init__(self, program: Program, publication: Publication, facts_row: FactsRow) -> None:
        self._program = program
        self._publication = publication
        self._facts_row = facts_row

    def run(self, progress: Progress, before: TopologyFacts | None, after: TopologyFacts) -> Progress:
        """Convert the values that are of the version before; return the progress with the epochs that this took."""
        stores = migrations(before, after, convertible(self._program.specs))
        if before is None or not stores:
            return progress
        if self._program.is_spread:
            cure = "Start the application once with a local master, and then on the cluster."
            raise ConfigError(f"Stores cannot be migrated on a cluster yet: {', '.join(stores)}. {cure}")
        return self._migrate(stores, progress, before, after)

    def _migrate(self, stores: Sequence[str], progress: Progress, before: TopologyFacts, after: TopologyFacts) -> Progress:
        names, begun = ", ".join(stores), migrating(before, stores, after)
        _log.info("migrating %s", names)
        total, is_done = 0, False
        while not is_done:
            epoch = self._next(progress)
            found = [migrate_lane(assigned, stores, _MOST) for assigned in self._lanes(epoch)]
            faults.point("migration.before_commit")
            progress = self._publish(progress, [table for each in found for table in each.rows], begun)
            faults.point("migration.after_commit")
            total += sum(each.converted for each in found)
            is_done = all(each.is_done for each in found)
            _log.info("migrating %s: %d values converted", names, total)
        epoch = self._next(progress)
        rows = [table for assigned in self._lanes(epoch) for table in finish_lane(assigned, stores)]
        progress = self._publish(progress, rows, after)
        _log.info("migrated %s", names)
        return progress

    def _next(self, progress: Progress) -> Epoch:
        times = tuple(progress.high_times.get(origin, NO_TIMESTAMP) for origin in progress.origins)
        return Epoch(progress.epoch + 1, progress.epoch, int(time.time() * 1000), progress.origins, times)

    def _lanes(self, epoch: Epoch) -> list[Assignment]:
        return [Assignment(self._program, epoch, lane=lane) for lane in range(self._program.lanes)]

    def _publish(self, progress: Progress, rows: Sequence[pa.Table], facts: TopologyFacts) -> Progress:
        reached = replace(progress, epoch=progress.epoch + 1)
        self._publication.publish(reached, rows, self._facts_row(facts).to_batches())
        return reached
