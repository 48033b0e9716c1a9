"""The application that is looked at: two exchanges, default settings, and a note of every process that runs its functions.

Usage: app.py SOURCE SINK APPLICATION_ID DIRECTORY. The environment has its settings. It says what Spark's status tracker shows
while it runs; with PLANT=1 some epochs run in the driver's own process, as no engine may do.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
from pyspark import SparkContext

from penstock import App, StreamsBuilder, Topology
from penstock.engines.one_host import OneHost
from penstock.engines.port import Batches
from penstock.epochs.in_process import run_epoch
from penstock.epochs.program import Epoch, Program

EVERY = 5
"""Which epochs a planted fallback takes."""

LOOK_S = 0.05
SHOWN_S = 30.0
"""How long the tracker may take to show tasks: of two that start at once it shows the second with the next heartbeat (10 s)."""

_noted: set[tuple[str, str, int]] = set()


def note(directory: str, what: str) -> None:
    """Note that this process has run a function of a stage."""
    me = (directory, what, os.getpid())
    if me not in _noted:
        _noted.add(me)
        (Path(directory) / f"{what}-{os.getpid()}").touch()


def topology(source: str, sink: str, directory: str) -> Topology:
    """Words, counted, and how many different ones there are by their length; each stage notes its process."""

    def split(line: str) -> list[str]:
        note(directory, "lines")
        return line.split()

    def length(word: str, count: int) -> tuple[str, int]:
        note(directory, "words")
        return str(len(word)), count

    def shown(count: int) -> int:
        note(directory, "lengths")
        return count

    builder = StreamsBuilder()
    words = builder.stream(source, key=str, value=str).flat_map_values(split).group_by(lambda _, word: word, key=str)
    lengths = words.count(store="words").group_by(length, key=str, value=int).count(store="lengths")
    lengths.to_stream().map_values(shown).to(sink, value=int)
    return builder.build()


def plant() -> None:
    """Let every fifth epoch run in this process, which no engine may do."""
    run = OneHost.run

    def fallen_back(self: OneHost, epoch: Epoch, records: Batches, *, is_small: bool) -> pa.Table:
        if epoch.number % EVERY or not records:
            return run(self, epoch, records, is_small=is_small)
        program: Program = self._program
        return run_epoch(program, epoch, records)

    OneHost.run = fallen_back  # type: ignore[method-assign]


def active_tasks() -> int:
    """The active tasks of all jobs, by Spark's status tracker."""
    context = SparkContext._active_spark_context
    if context is None:
        return 0
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getActiveJobsIds()]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def main(source: str, sink: str, application_id: str, directory: str) -> None:
    """Run until SIGTERM, and write what was seen into the directory."""
    logging.basicConfig(level=logging.INFO)
    if os.environ.get("PLANT"):
        plant()
    spark = json.loads(os.environ.get("SPARK", "{}"))
    app = App(application_id, topology(source, sink, directory))
    seen: list[int] = []
    ended = threading.Event()

    def look(slots: int) -> None:
        while not ended.wait(LOOK_S):
            seen.append(active_tasks())
            report = {"slots": slots, "most": max(seen), "least": min(seen), "looks": len(seen)}
            new = Path(directory) / "tracker.new"
            new.write_text(json.dumps(report), encoding="utf-8")
            new.replace(Path(directory) / "tracker.json")

    with app.start(spark=spark) as running:
        running.wait_until_running()
        while (where := running.whereabouts) is None or where.count < int(os.environ["SLOTS"]):
            time.sleep(LOOK_S)  # the first epochs need not wait for all slots
        end = time.monotonic() + SHOWN_S
        while active_tasks() != where.count and time.monotonic() < end:
            time.sleep(LOOK_S)
        threading.Thread(target=look, args=(where.count,), daemon=True).start()
        stop = Path(directory) / "stop"
        while not stop.exists() and not running.wait(0):
            time.sleep(LOOK_S)
        ended.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
