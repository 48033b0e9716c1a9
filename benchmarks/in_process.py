"""A topology as a program with its own files, for measurements without Spark and Kafka."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from penstock import Topology
from penstock.epochs.program import Program
from penstock.epochs.state_directory import StateDirectory
from penstock.handlers import ErrorHandlers
from penstock.state import EngineKind
from penstock.topology.plan import plan


@contextmanager
def program_of(topology: Topology, lanes: int, shards: int = 8) -> Iterator[Program]:
    """The program, while its directory exists."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        StateDirectory(directory, "bench").take_over("one")
        yield Program.of(
            "bench",
            topology,
            plan(topology),
            lanes=lanes,
            shards=shards,
            directory=directory,
            engine=EngineKind.LMDB,
            incarnation="one",
            handlers=ErrorHandlers(),
            columns=True,
        )
