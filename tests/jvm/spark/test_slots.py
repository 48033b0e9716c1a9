"""With default settings, all records are processed in tasks of one Spark job, whatever happens to tasks and job."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pyspark
import pytest
from pyspark import SparkContext

from penstock import App, StreamsBuilder, Topology
from penstock.runtime.application import RunningApplication
from penstock.spark import lane_job
from tests.jvm.runtime.test_life_cycle import ON_SPARK, run, started
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until
from verification.on_spark.processes import is_task

pytestmark = pytest.mark.jvm

LANES, KEYS, PARTITIONS = 2, 50, 4
SLOTS = min(LANES, os.cpu_count() or 1)
MANY = 6_000
"""Records of epochs of which each slot runs a part."""
START_S = 120
SOON_S = 20
WHOLE_S = 2 * START_S
FOUR = "local[4]"
SUBMIT = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
MOST_LOST = 8
"""Spark fails a job if it loses a task so often."""


class Case:
    """An application that counts by key, and sends for each record the process that has processed it."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.servers = broker.bootstrap_servers
        self.id = f"slots-{uuid4().hex[:8]}"
        self.sent = 0
        self._directory = directory
        for name in ("in", "by", "out"):
            topics.create(self.servers, self.topic(name), PARTITIONS)

    def topic(self, name: str) -> str:
        return f"{self.id}-{name}"

    def topology(self) -> Topology:
        builder = StreamsBuilder()
        records = builder.stream(self.topic("in"), key=str, value=str)
        records.map_values(lambda _: str(os.getpid())).to(self.topic("by"), value=str)
        records.group_by_key().count(store="counts").to_stream().to(self.topic("out"), value=int)
        return builder.build()

    @contextmanager
    def running(self) -> Iterator[RunningApplication]:
        """It runs, and has all its slots; in the end each record was processed once."""
        own: dict[str, Any] = {"bootstrap_servers": self.servers, "state_dir": self._directory / "state", "admin_address": "off"}
        with App(self.id, self.topology()).start(lanes=LANES, **own) as running:
            assert running.wait_until_running(START_S)
            wait_until("all slots", lambda: active_tasks() == SLOTS, START_S)
            yield running
            self.wait_until_read()
        assert running.wait(0)
        assert len(topics.read(self.servers, self.topic("by"))) == self.sent
        last = {record.key: record.value or b"" for record in topics.read(self.servers, self.topic("out"))}
        counted = {key: int.from_bytes(count, "big") for key, count in last.items()}
        assert counted == Counter(b"k%d" % (number % KEYS) for number in range(self.sent))

    def send(self, count: int) -> None:
        numbers = range(self.sent, self.sent + count)
        topics.produce(self.servers, self.topic("in"), [topics.Sent(key=b"k%d" % (at % KEYS), value=b"v") for at in numbers])
        self.sent += count

    def wait_until_read(self, timeout_s: float = START_S) -> None:
        def is_read() -> bool:
            offsets = topics.group_offsets(self.servers, self.id)
            return sum(offset for offset, _ in offsets.values()) == self.sent

        wait_until("all is read", is_read, timeout_s)

    def processes(self) -> set[int]:
        return {int(record.value or b"") for record in topics.read(self.servers, self.topic("by"))}


@pytest.fixture
def case(broker: Broker, tmp_path: Path) -> Case:
    return Case(broker, tmp_path)


def active_tasks() -> int:
    """The active tasks of all jobs, by Spark's status tracker."""
    context = SparkContext._active_spark_context
    assert context is not None
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getActiveJobsIds()]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def tasks() -> list[psutil.Process]:
    """The Python processes of tasks, the last one that was started at the end."""
    found = [process for process in psutil.Process().children(recursive=True) if is_task(process.pid)]
    return sorted(found, key=psutil.Process.create_time)


@pytest.mark.slow
def test_all_records_are_processed_in_the_tasks_of_one_job(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), case.running() as running:
        seen = set()
        for _ in range(3):
            case.send(MANY)
            seen.add(active_tasks())
            case.wait_until_read()
        processes = case.processes()
        assert [process for process in processes if not is_task(process)] == []
        assert len(processes) == SLOTS
        assert seen == {SLOTS}
        assert running.whereabouts is not None
        assert running.whereabouts.count == SLOTS
    ended = re.findall(r"the lane job of \S+ ended \(.*\): \d+ requests, (\d+) records", caplog.text)
    assert [int(records) for records in ended] == [case.sent]


@pytest.mark.parametrize("kills", [1, pytest.param(MOST_LOST + 1, marks=pytest.mark.slow)])  # each until all is read
def test_a_slot_that_is_killed_is_replaced(case: Case, kills: int, caplog: pytest.LogCaptureFixture) -> None:
    with case.running() as running:
        case.send(MANY)
        for _ in range(kills):
            case.send(MANY)
            wait_until("all slots", lambda: len(tasks()) == SLOTS, START_S)
            wait_until("an epoch is in hand", lambda: running.recorder.current is not None, START_S, every_s=0.001)
            tasks()[-1].kill()  # the one that has replaced the last one, so that Spark loses the same task again
            case.wait_until_read(SOON_S)
    assert ("is submitted again" in caplog.text) == (kills > MOST_LOST)


@pytest.mark.slow  # twice, and all slots begin anew
def test_a_lane_job_that_is_cancelled_is_submitted_again(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    with case.running():
        for _ in range(2):
            case.send(MANY)
            context = SparkContext._active_spark_context
            assert context is not None
            context.cancelJobGroup(f"penstock-{case.id}-0")
            case.wait_until_read(SOON_S)
            wait_until("all slots", lambda: active_tasks() == SLOTS, START_S)
    assert caplog.text.count("is submitted again") == 2


def test_leases_end_between_epochs_and_the_same_processes_take_them_up(
    case: Case, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lane_job, "LEASE_S", 1.0)
    with caplog.at_level(logging.INFO), case.running():
        for _ in range(4):
            case.send(MANY)
            case.wait_until_read()
            time.sleep(lane_job.LEASE_S)
        wait_until("all slots", lambda: active_tasks() == SLOTS, START_S)
        names = job_names()
    assert len(case.processes()) == SLOTS
    ended = re.findall(r"the lane job of \S+ ended (\(.*\): \d+ requests, (\d+) records.*)", caplog.text)
    assert sum(int(records) for _, records in ended) == case.sent
    about = f"penstock {case.id}: slots 0-{SLOTS - 1}"
    history = [f"{about}, {done.replace('(', '').replace(')', '')}" for done, _ in ended]
    assert len(history) > 2
    assert [name for name in names if " requests, " in name] == history[:-1]  # that of the last one came when Spark ended
    assert sum(name.startswith((f"{about}, after epoch", about)) for name in names) == len(names)


def job_names() -> list[str]:
    """What Spark's UI calls all jobs, the first one first."""
    context = SparkContext._active_spark_context
    assert context is not None
    jobs = context._jsc.sc().statusStore().jobsList(None)
    return [jobs.apply(at).description().get() for at in reversed(range(jobs.size()))]


COUNTS = """
from penstock import App, StreamsBuilder

builder = StreamsBuilder()
builder.stream("{id}-in", value=str).group_by_key().count(store="counts").to_stream().to("{id}-out", value=int)
app = App("{id}", builder.build())
if __name__ == "__main__":
    app.run()
"""


def test_without_java_it_ends_at_once_and_names_the_cure(case: Case, broker: Broker, tmp_path: Path) -> None:
    case.send(10)
    path = tmp_path / "app.py"
    path.write_text(COUNTS.format(id=case.id), encoding="utf-8")
    began = time.monotonic()
    code, log = run(path, broker, ON_SPARK, PATH="", JAVA_HOME="")
    assert code == 2, log
    assert "Spark needs Java, which is not on the path, and JAVA_HOME is not set. Install Java 17 or later" in log
    assert "or set engine = local, which runs without Java" in log
    assert time.monotonic() - began < SOON_S
    assert topics.group_offsets(case.servers, case.id) == {}
    assert topics.read(case.servers, case.topic("out")) == []


IN_A_SESSION = """
import json
import time

from pyspark.sql import SparkSession

from penstock import App, StreamsBuilder

builder = StreamsBuilder()
builder.stream("{id}-in", value=str).group_by_key().count(store="counts").to_stream().to("{id}-out", value=int)


def summed(session):
    return session.sparkContext.parallelize(range(8), 4).map(lambda number: number * number).sum()


if __name__ == "__main__":
    session = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    with App("{id}", builder.build()).start() as running:
        assert running.wait_until_running({start_s})
        while running.whereabouts is None or running.whereabouts.count < 3:
            time.sleep(0.1)
        while sum(running.store("counts").values()) < {count}:
            time.sleep(0.1)
        slots, meanwhile = running.whereabouts.count, summed(session)
    active = session.sparkContext.statusTracker().getActiveJobsIds()
    print("found", json.dumps([slots, meanwhile, len(active), summed(session)]))
"""


def ended(path: Path, broker: Broker, program: list[str], **settings: str) -> tuple[int, str]:
    """The exit code and the log of an application that ends by itself; of spark-submit it is a grandchild."""
    with started(path, broker, ON_SPARK, program=program, PYSPARK_PYTHON=sys.executable, **settings) as process:
        try:
            code = process.wait(WHOLE_S)
        finally:
            for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
                child.kill()
    return code, path.with_suffix(".log").read_text()


@pytest.mark.slow  # Spark starts with the daemon of its own, which imports nothing ahead
@pytest.mark.parametrize("is_submitted", [False, True])
def test_a_session_of_the_users_own_keeps_a_slot_and_lives_on(
    case: Case, broker: Broker, tmp_path: Path, is_submitted: bool
) -> None:
    case.send(100)
    path = tmp_path / "app.py"
    text = IN_A_SESSION.format(id=case.id, count=case.sent, start_s=START_S)
    path.write_text(
        text if is_submitted else text.replace("builder.config(", f'builder.master("{FOUR}").config('), encoding="utf-8"
    )
    code, log = ended(path, broker, [SUBMIT, "--master", FOUR] if is_submitted else [], PENSTOCK_LANES="4")
    assert code == 0, log
    [found] = re.findall(r"^found (.*)$", log, re.MULTILINE)
    assert json.loads(found) == [3, 140, 0, 140]
    assert len(topics.read(case.servers, case.topic("out"))) >= KEYS


@pytest.mark.slow  # as above
@pytest.mark.parametrize(("master", "expected"), [(FOUR, 0), ("local-cluster[1,2,1024]", 2)])
def test_by_spark_submit_it_opens_a_context_of_its_own(
    case: Case, broker: Broker, tmp_path: Path, master: str, expected: int
) -> None:
    """Where `--master` is a cluster, the settings have to say so."""
    case.send(100)
    path = tmp_path / "app.py"
    path.write_text(COUNTS.format(id=case.id).replace("app.run()", 'app.run(until="latest")'), encoding="utf-8")
    code, log = ended(path, broker, [SUBMIT, "--master", master])
    assert code == expected, log
    assert (f"spark-submit has the master {master}, but the master of" in log) == bool(expected)
    assert bool(topics.read(case.servers, case.topic("out"))) != bool(expected)
