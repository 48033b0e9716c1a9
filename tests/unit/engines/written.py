"""Executors that write into files instead of topics, and what the driver would have written there.

Slots do not import this module: its functions travel to them as a user's do.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import cloudpickle
import pyarrow as pa

from penstock.engines.writing import WriteStage, by_writer
from penstock.epochs.program import Program
from penstock.epochs.wire import Kind
from penstock.kafka.partitioner import by_partition
from penstock.kafka.writers.batches import Identity
from penstock.kafka.writers.publisher import Writing
from penstock.kafka.writers.transactions import Shared, Transactions
from penstock.records import Partition

cloudpickle.register_pickle_by_value(sys.modules[__name__])

LIMIT = 1 << 20
Written = dict[str, list[list[Any]]]
"""Keys, values and timestamps in their order, by topic and partition."""


@dataclass(frozen=True)
class Files:
    """Stands for the settings of writers, and for a writer: a slot appends a line for each of its rows to a file."""

    directory: str

    def writer(self) -> tuple[Any, Files]:
        return SimpleNamespace(close=lambda: None), self

    def write(self, identity: Identity, rows: Mapping[Partition, pa.Table], opened: Collection[Partition] = ()) -> None:
        for (topic, partition), own in rows.items():
            with Path(self.directory, f"{topic}@{partition}@{os.getpid()}").open("a", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(line)}\n" for line in _lines(own))


class Begun:
    """Transactions that are never committed."""

    def begin(self) -> Shared:
        return Shared(Identity("app", 1, 2), frozenset())

    def wrote(self, rows: Mapping[Partition, int]) -> None:
        """Do nothing: files are looked at."""


def ending_in(directory: Path, program: Program) -> WriteStage:
    """The ending of epochs whose rows slots write into a directory."""
    limits = dict.fromkeys(program.topics, LIMIT)
    return WriteStage(program, cast("Transactions", Begun()), cast("Writing", Files(str(directory))), limits)


def taken_from(directory: Path) -> Written:
    """What slots have written, which is removed. Each partition must have been written by one slot."""
    found: Written = {}
    for path in sorted(directory.iterdir()):
        place = path.name.rpartition("@")[0]
        assert place not in found
        found[place] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        path.unlink()
    return _comparable(found)


def expected(program: Program, rows: pa.Table, partitions: Mapping[str, int]) -> Written:
    """What has to be written of an epoch's rows, which are in the order of their causes."""
    is_own = [kind in (Kind.SINK, Kind.CHANGELOG) for kind in rows.column("kind").to_pylist()]
    placed = pa.concat_tables(by_writer(program, rows.filter(pa.array(is_own)), partitions))
    places = by_partition(placed, program.topics).items()
    return _comparable({f"{topic}@{partition}": _lines(own) for (topic, partition), own in places})


def _comparable(written: Written) -> Written:
    """Sort the results of each partition: the order of those that different source partitions have caused is open."""
    return {place: lines if "-changelog@" in place else sorted(lines, key=json.dumps) for place, lines in written.items()}


def _lines(rows: pa.Table) -> list[list[Any]]:
    texts = [[None if each is None else each.hex() for each in rows.column(name).to_pylist()] for name in ("key", "value")]
    return [list(line) for line in zip(*texts, rows.column("timestamp").to_pylist(), strict=True)]
