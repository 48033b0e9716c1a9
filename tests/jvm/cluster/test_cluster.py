"""An application on a real standalone cluster of three hosts that share no files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from penstock.state.remote import hosting
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.spark_cluster import SparkCluster

pytestmark = pytest.mark.jvm

TIMEOUT_S = 300
LANES = 6
LINE = "to be or not to be that is the question whether tis nobler in the mind to suffer"
COUNTS = """
import json, os
from penstock import App, StreamsBuilder

builder = StreamsBuilder()
words = builder.stream("cluster-lines", key=str, value=str).flat_map_values(str.split)
words.group_by(lambda _, word: word, key=str).count(store="counts").to_stream().to("cluster-words")
app = App("cluster-counts", builder.build())
if __name__ == "__main__":
    app.run(until="latest", spark=json.loads(os.environ["SPARK"]))
"""


IN_A_SESSION = """
import json, os
from penstock import App, StreamsBuilder
from penstock.spark.context import SparkSession, open_context

builder = StreamsBuilder()
builder.stream("cluster-lines", key=str, value=str).group_by_key().count(store="counts")
if __name__ == "__main__":
    spark = json.loads(os.environ["SPARK"])
    session = SparkSession(open_context("notebook", 6, spark))
    for number in range(2):
        App(f"cluster-cell-{number}", builder.build()).run(until="latest", spark=spark)
    print("ended", flush=True)
    input()
"""
MIGRATED = """
import json, os
from penstock import App, Store, StreamsBuilder

VERSION = int(os.environ["VERSION"])
new = {"version": 2, "old": int, "migrate": lambda old: old + 1_000} if VERSION == 2 else {}
builder = StreamsBuilder()
lines = builder.stream("cluster-migrated", key=str, value=str).map_values(int)
totals = lines.group_by_key(value=int).reduce(lambda total, one: total + one, store=Store("totals", value=int, **new))
totals.to_stream().to("cluster-totals")
app = App("cluster-migrations", builder.build())
if __name__ == "__main__":
    app.run(until="latest", spark=json.loads(os.environ["SPARK"]))
"""
QUERIED = """
import json, os, time
from collections import Counter
from pathlib import Path
from penstock import App, StreamsBuilder
from penstock.errors import NotReadyError

builder = StreamsBuilder()
builder.global_table("cluster-names", key=str, value=str, store="names")
words = builder.stream("cluster-asked", key=str, value=str).flat_map_values(str.split)
words.group_by(lambda _, word: word, key=str).count(store="counts")
app = App("cluster-queries", builder.build())
SORTED = "select key, value from counts order by key"


def counted(rows):
    return [[row["key"], row["value"]] for row in rows]


if __name__ == "__main__":
    directory, total = Path(os.environ["SEEN"]), int(os.environ["TOTAL"])
    with app.start(spark=json.loads(os.environ["SPARK"])) as running:
        running.wait_until_running()
        while sum(running.store("counts").values()) < total:
            time.sleep(0.2)
        by_frame = counted(running.sql(SORTED).collect())
        by_client = counted(running.guarded_sql(SORTED, 1_000, 1 << 20, 60.0).to_pylist())
        names = [row.asDict() for row in running.table("names").select("key", "value").collect()]
        again = running.sql("select a.key from counts a join counts b using (key)").count()
        print("found", json.dumps([by_frame, by_client, names, again]), flush=True)
        (directory / "asking").touch()
        seen, lost_at, end = Counter(), None, time.monotonic() + 120
        while time.monotonic() < end and not (lost_at and time.monotonic() - lost_at > 5 and seen["complete after"] > 2):
            if lost_at is None and (directory / "lost").exists():
                lost_at = time.monotonic()
            try:
                rows = counted(running.guarded_sql(SORTED, 1_000, 1 << 20, 60.0).to_pylist())
            except NotReadyError:
                seen["retry"] += 1
                time.sleep(0.2)
            else:
                whole = "complete" if rows == by_frame else "partial"
                seen[whole + (" after" if lost_at and time.monotonic() - lost_at > 5 else "")] += 1
        print("seen", json.dumps(seen), flush=True)
"""


@pytest.fixture(scope="module")
def cluster(broker: Broker) -> Iterator[SparkCluster]:
    for topic in ("cluster-lines", "cluster-words"):
        topics.create(broker.bootstrap_servers, topic, partitions=4)
    with SparkCluster(hosts=3, cores=3) as running:
        yield running


def run(
    directory: Path, broker: Broker, spark: Mapping[str, str], source: str = COUNTS, **environment: str
) -> subprocess.CompletedProcess[str]:
    script = directory / "application.py"
    script.write_text(source, encoding="utf-8")
    command, own = [sys.executable, str(script)], own_settings(directory, broker, spark)
    return subprocess.run(
        command, env={**os.environ, **own, **environment}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def own_settings(directory: Path, broker: Broker, spark: Mapping[str, str]) -> dict[str, str]:
    return {
        "SPARK": json.dumps(dict(spark)),
        "PENSTOCK_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "PENSTOCK_STATE_DIR": str(directory / "driver"),
        "PENSTOCK_ADMIN_ADDRESS": "off",
        "PENSTOCK_LANES": str(LANES),
        "PENSTOCK_SHARDS": "256",
    }


def lanes_of(cluster: SparkCluster) -> dict[int, list[str]]:
    """The lanes whose stores each host has."""
    return {
        number: sorted(path.name for path in host.state_dir.glob("cluster-counts/lanes-*/[0-9]*"))
        for number, host in cluster.hosts.items()
    }


def test_lanes_are_spread_over_hosts_and_continue_there_whoever_writes(
    broker: Broker, cluster: SparkCluster, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    expected: Counter[str] = Counter()
    for round_ in range(2):
        words = LINE.split()
        lines = [" ".join(words[start : start + 3]) for start in range(len(words))] * 5
        sent = [topics.Sent(key=b"%d" % number, value=line.encode()) for number, line in enumerate(lines)]
        topics.produce(servers, "cluster-lines", sent)
        expected.update(word for line in lines for word in line.split())
        done = run(tmp_path, broker, cluster.settings, PENSTOCK_WRITERS="executors" if round_ else "driver")
        assert done.returncode == 0, done.stderr[-4000:]
        if round_:
            assert f"restored {LANES} lanes (behind)" in done.stderr
    found = {record.key: record.value for record in topics.read(servers, "cluster-words")}
    assert {(key or b"").decode(): int.from_bytes(value or b"", "big") for key, value in found.items()} == dict(expected)
    lanes = lanes_of(cluster)
    assert sorted(lane for each in lanes.values() for lane in each) == [f"{lane:04}" for lane in range(LANES)]
    assert all(len(each) == LANES // 3 for each in lanes.values())
    assert not list((tmp_path / "driver").glob("*/lanes-*/[0-9]*"))


def test_nothing_of_an_application_is_left_in_a_session_that_goes_on(
    broker: Broker, cluster: SparkCluster, tmp_path: Path
) -> None:
    (tmp_path / "cells.py").write_text(IN_A_SESSION, encoding="utf-8")
    own = own_settings(tmp_path, broker, cluster.settings)
    with (tmp_path / "err").open("w") as err:
        command = [sys.executable, str(tmp_path / "cells.py")]
        pipe = subprocess.PIPE
        notebook = subprocess.Popen(command, env={**os.environ, **own}, stdin=pipe, stdout=pipe, stderr=err, text=True)
        with notebook:
            try:
                assert notebook.stdout is not None
                assert "ended\n" in iter(notebook.stdout.readline, ""), (tmp_path / "err").read_text()[-4000:]
                notes = [note for host in cluster.hosts.values() for note in host.state_dir.glob("cluster-cell-*/server")]
                assert len(notes) == 6
                wait_for(lambda: not any(hosting._is_server(json.loads(note.read_text())["pid"]) for note in notes))
                assert notebook.poll() is None
            finally:
                notebook.kill()


@pytest.mark.parametrize("writers", ["driver", "executors"])
def test_values_are_migrated_on_their_hosts(broker: Broker, cluster: SparkCluster, tmp_path: Path, writers: str) -> None:
    servers, names = broker.bootstrap_servers, ("cluster-migrated", "cluster-totals")
    source = MIGRATED.replace("cluster-", f"{writers}-cluster-")
    for topic in names:
        topics.create(servers, f"{writers}-{topic}", partitions=2)
    keys = [b"k%d" % number for number in range(500)]
    for version in ("1", "2"):
        topics.produce(servers, f"{writers}-cluster-migrated", [topics.Sent(key=key, value=b"1") for key in keys])
        done = run(tmp_path, broker, cluster.settings, source, VERSION=version, PENSTOCK_WRITERS=writers)
        assert done.returncode == 0, done.stderr[-4000:]
        assert ("migrating totals: 500 values converted" in done.stderr) == (version == "2")
    last = {
        record.key: int.from_bytes(record.value or b"", "big") for record in topics.read(servers, f"{writers}-cluster-totals")
    }
    assert last == dict.fromkeys(keys, 1_002)


def test_sql_reads_the_stores_of_all_hosts_and_is_complete_or_retried(
    broker: Broker, cluster: SparkCluster, tmp_path: Path
) -> None:
    servers = broker.bootstrap_servers
    for topic in ("cluster-asked", "cluster-names"):
        topics.create(servers, topic, partitions=2)
    expected = Counter(f"w{number % 200}" for number in range(3_000))
    lines = [" ".join(f"w{(start + number) % 200}" for number in range(30)) for start in range(0, 3_000, 30)]
    topics.produce(servers, "cluster-asked", [topics.Sent(key=b"%d" % n, value=line.encode()) for n, line in enumerate(lines)])
    topics.produce(servers, "cluster-names", [topics.Sent(key=b"a", value=b"one")])
    (tmp_path / "queried.py").write_text(QUERIED, encoding="utf-8")
    own = {**own_settings(tmp_path, broker, cluster.settings), "SEEN": str(tmp_path), "TOTAL": str(expected.total())}
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        asking = subprocess.Popen(
            [sys.executable, str(tmp_path / "queried.py")], env={**os.environ, **own}, stdout=out, stderr=err, text=True
        )
        try:
            wait_for(lambda: (tmp_path / "asking").exists() or asking.poll() is not None)
            assert cluster.hosts[2].kill_executor()
            (tmp_path / "lost").touch()
            code = asking.wait(TIMEOUT_S)
        finally:
            asking.kill()
            asking.wait()
    assert code == 0, (tmp_path / "err").read_text()[-4000:]
    told = dict(line.split(" ", 1) for line in (tmp_path / "out").read_text().splitlines() if line.startswith(("found", "seen")))
    by_frame, by_client, names, joined = json.loads(told["found"])
    assert by_frame == by_client == sorted(map(list, expected.items()))
    assert (names, joined) == ([{"key": "a", "value": "one"}], len(expected))
    seen = json.loads(told["seen"])
    assert seen.keys() <= {"complete", "complete after", "retry"}
    assert seen["complete after"] > 2


def wait_for(is_there: Callable[[], bool]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not is_there():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_a_standalone_cluster_needs_its_secret(broker: Broker, cluster: SparkCluster, tmp_path: Path) -> None:
    settings = {name: value for name, value in cluster.settings.items() if name != "spark.authenticate.secret"}
    done = run(tmp_path, broker, settings)
    assert done.returncode == 2
    assert "'spark.authenticate.secret' is missing" in done.stderr


def test_executors_with_another_environment_are_refused(broker: Broker, cluster: SparkCluster, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "penstock_streams-0.0.1.dist-info").mkdir(parents=True)
    (other / "penstock_streams-0.0.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: penstock-streams\nVersion: 0.0.1\n"
    )
    done = run(tmp_path, broker, {**cluster.settings, "spark.executorEnv.PYTHONPATH": str(other)})
    assert done.returncode == 2
    assert "penstock-streams 0.0.1, but the driver has" in done.stderr


def test_the_doctor_examines_every_executor(broker: Broker, cluster: SparkCluster, tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(COUNTS, encoding="utf-8")
    (tmp_path / "penstock.toml").write_text("[spark]\n" + "\n".join(f'"{k}" = "{v}"' for k, v in cluster.settings.items()))
    own = {"PENSTOCK_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "PENSTOCK_LANES": "3", "PENSTOCK_ADMIN_ADDRESS": "off"}
    command = [sys.executable, "-m", "penstock.cli", "doctor", "counts.py:app", "--cluster", "--json"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, **own}, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    found = {finding["what"]: finding for finding in json.loads(done.stdout)}
    for number in (1, 2, 3):
        assert found[f"executor 127.0.0.1{number}"]["level"] == "ok", done.stdout
