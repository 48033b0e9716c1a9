"""`python -m verification.on_spark`: whether every record is processed in a Spark task, with default settings.

While records flow through two exchanges, each process that runs a function of the application must be a Python worker of an
executor, there must be such processes on each host, Spark's status tracker must always show as many active tasks as there are
slots, and in the end the totals of the lane jobs must equal the records that were read. A fallback that is planted must be seen.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from verification.harness import topics
from verification.harness.broker import NEVER_KILLED, Broker
from verification.harness.processes import ROOT, HarnessError, ended_by_sigterm, wait_until
from verification.harness.spark_cluster import SparkCluster
from verification.on_spark.processes import host_of, is_task, noted

REPORT = Path("reports/on-spark.json")
RECORDS, QUICK_RECORDS = 1_000_000, 50_000
LINE, WORDS = "w{0} w{1} w{2}", 997
PARTITIONS = 4
STAGES = frozenset({"lines", "words", "lengths"})
TIMEOUT_S = 600
HOSTS, CORES, SPREAD_LANES = 3, 3, 8
"""So many lanes take all cores but one: each host must have some of them."""
LEAST_LOOKS = 20
_TOTALS = re.compile(r"the lane job of \S+ ended \([^)]*\): \d+ requests, (\d+) records")


@dataclass
class Row:
    """What was seen of one application."""

    name: str
    wanted: int
    wanted_hosts: int
    slots: int = 0
    hosts: int = 0
    """Those whose processes have run functions."""
    records: int = 0
    in_spark_tasks: int = 0
    active_tasks: tuple[int, int] = (0, 0)
    """The least and the most."""
    looks: int = 0
    """How often the tracker was asked while records flowed."""
    fallbacks: list[int] = field(default_factory=list)
    right: bool = False

    @property
    def is_good(self) -> bool:
        """Whether all records were processed in tasks, and nothing elsewhere."""
        tasks = set(self.active_tasks) == {self.slots} and self.looks >= LEAST_LOOKS
        places = self.slots == self.wanted and self.hosts == self.wanted_hosts
        return self.right and tasks and places and not self.fallbacks and self.in_spark_tasks == self.records


def main(arguments: list[str] | None = None) -> int:
    """Look at all applications; the exit code is 0 if each is as promised, and the planted fallback was seen."""
    parser = argparse.ArgumentParser(prog="python -m verification.on_spark")
    parser.add_argument("--quick", action="store_true", help="fewer records, one machine with two lanes only")
    parser.add_argument("--report", type=Path, default=REPORT)
    options = parser.parse_args(arguments)
    count = QUICK_RECORDS if options.quick else RECORDS
    with ended_by_sigterm(), Broker(settings=NEVER_KILLED) as broker:
        rows = [_row(broker, f"one machine, {lanes} lanes", lanes, count) for lanes in ((2,) if options.quick else (1, 2, 8))]
        if not options.quick:
            with SparkCluster(HOSTS, cores=CORES) as cluster:
                rows.append(_row(broker, f"three hosts, {SPREAD_LANES} lanes", SPREAD_LANES, count, cluster=cluster))
        planted = _row(broker, "a planted fallback", 2, min(count, QUICK_RECORDS), is_planted=True)
    report = {
        "records": sum(row.records for row in rows),
        "in_spark_tasks": sum(row.in_spark_tasks for row in rows),
        "hosts": max(row.hosts for row in rows),
        "slots": [row.slots for row in rows],
        "fallbacks_seen": sum(len(row.fallbacks) for row in rows),
        "planted_seen": bool(planted.fallbacks) and planted.in_spark_tasks < planted.records,
        "rows": [asdict(row) for row in [*rows, planted]],
    }
    options.report.parent.mkdir(exist_ok=True)
    options.report.write_text(json.dumps(report, indent=2) + "\n")
    for row in [*rows, planted]:
        tasks = f"{row.slots} Spark tasks on {row.hosts} hosts ({row.active_tasks[0]}-{row.active_tasks[1]} active)"
        verdict = "good" if row.is_good else "NOT GOOD"
        print(f"{row.name}: {row.in_spark_tasks} of {row.records} records in {tasks}, fallbacks {row.fallbacks}: {verdict}")
    print(json.dumps({name: value for name, value in report.items() if name != "rows"}))
    return 0 if all(row.is_good for row in rows) and report["planted_seen"] else 1


def _row(
    broker: Broker, name: str, lanes: int, count: int, cluster: SparkCluster | None = None, *, is_planted: bool = False
) -> Row:
    """Run one application over so many records."""
    wanted = min(lanes, os.cpu_count() or 1) if cluster is None else lanes
    row = Row(name, wanted, wanted_hosts=1 if cluster is None else len(cluster.hosts))
    application_id = re.sub(r"\W+", "-", name)
    source, sink = f"{application_id}-lines", f"{application_id}-out"
    for topic in (source, sink):
        topics.create(broker.bootstrap_servers, topic, partitions=PARTITIONS)
    with tempfile.TemporaryDirectory(prefix="on-spark-") as directory:
        seen = Path(directory) / "seen"
        seen.mkdir()
        own = {
            "PENSTOCK_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "PENSTOCK_STATE_DIR": f"{directory}/state",
            "PENSTOCK_ADMIN_ADDRESS": "off",
            "PENSTOCK_LANES": str(lanes),
            "PENSTOCK_SHARDS": "32",
            "SPARK": json.dumps({} if cluster is None else cluster.settings),
            "PLANT": "1" if is_planted else "",
            "SLOTS": str(wanted),
        }
        with _application([source, sink, application_id, str(seen)], own, Path(directory) / "log") as process:
            _await(process, "the application is running", (seen / "tracker.json").exists, Path(directory) / "log")
            before = json.loads((seen / "tracker.json").read_text())
            expected = _feed(broker, source, count)
            outside: set[int] = set()
            hosts: set[str] = set()

            def is_read() -> bool:
                is_done = _committed(broker, application_id, source) >= count
                for process in {process for each in noted(seen).values() for process in each}:
                    if is_task(process, in_driver=cluster is None):
                        hosts.add(host_of(process))
                    else:
                        outside.add(process)
                return is_done

            _await(process, "all records are committed", is_read, Path(directory) / "log")
            tracker = json.loads((seen / "tracker.json").read_text())
            if set(noted(seen)) != STAGES:
                raise HarnessError(f"not all stages have noted their processes: {sorted(noted(seen))}")
            (seen / "stop").touch()
            if process.wait(TIMEOUT_S):
                raise HarnessError(f"the application ended with {process.returncode}")
        log = (Path(directory) / "log").read_text(errors="replace")
    row.slots, row.hosts, row.records = tracker["slots"], len(hosts), count
    row.active_tasks, row.looks = (tracker["least"], tracker["most"]), tracker["looks"] - before["looks"]
    row.in_spark_tasks = sum(map(int, _TOTALS.findall(log)))
    row.fallbacks = sorted(outside)
    found = {record.key: int.from_bytes(record.value or b"", "big") for record in topics.read(broker.bootstrap_servers, sink)}
    row.right = found == expected
    return row


def _feed(broker: Broker, source: str, count: int) -> Mapping[bytes | None, int]:
    """Produce so many lines; return the last result of each key: by the length of words, how many different ones there are."""
    words: set[str] = set()
    produced: list[topics.Sent] = []
    for number in range(count):
        line = LINE.format(*((number * factor) % WORDS for factor in (1, 7, 31)))
        words.update(line.split())
        produced.append(topics.Sent(key=b"%d" % (number % 1_000), value=line.encode()))
        if len(produced) == 50_000 or number == count - 1:
            topics.produce(broker.bootstrap_servers, source, produced)
            produced.clear()
    return {str(length).encode(): different for length, different in Counter(map(len, words)).items()}


def _committed(broker: Broker, application_id: str, source: str) -> int:
    found = topics.group_offsets(broker.bootstrap_servers, application_id)
    return sum(offset for (topic, _), (offset, _) in found.items() if topic == source)


@contextmanager
def _application(arguments: list[str], own: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "verification.on_spark.app", *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **own}, stdout=output, stderr=output, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _await(process: subprocess.Popen[bytes], what: str, is_so: Callable[[], bool], log: Path) -> None:
    def answers() -> bool:
        if process.poll() is not None:
            raise HarnessError(f"the application ended with {process.returncode}:\n{log.read_text(errors='replace')[-4000:]}")
        return is_so()

    wait_until(what, answers, TIMEOUT_S, 0.2)


if __name__ == "__main__":
    sys.exit(main())
