"""A driver with a pool of two workers, one of them busy; a test kills it. `python -m tests.unit.workers.driver DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.epochs.program import Epoch
from penstock.workers.jobs import WorkerJobs
from penstock.workers.pool import WorkerPool
from tests.unit.epochs.application import Raw, keys_of_shards
from tests.unit.workers.programs import Lists, installed, nothing, obedient


def main(directory: Path) -> None:
    """Run an epoch on both workers that never ends on one of them."""
    program = installed(obedient(), directory / "state", 2)
    pool = WorkerPool(program, nothing, 2, lambda line: None)
    pool.start()
    keys = keys_of_shards(b"key")
    lists = Lists.of([Raw(keys[0], f"sleep {directory / 'busy'}".encode(), 5), Raw(keys[-1], b"count", 5)])
    jobs = WorkerJobs(pool, program, lists.between, 60)
    jobs.read_too({"in": 0})
    jobs.run(Epoch(0, -1, 0, (("in", 0),), (-1,)), False, {("in", 0): (0, 2)}, None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
