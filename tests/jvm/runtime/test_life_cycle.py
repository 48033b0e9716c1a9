"""An application as a user starts it, on a real broker: it runs, it stops, and it says why it ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import wait_until

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[3]
START_S = 120
ON_SPARK: Mapping[str, str] = {}
LOCAL = {"PENSTOCK_ENGINE": "local"}
"""For `started`: the default settings, which take ten seconds longer to start, and those of what is not about Spark."""

ECHO = """
from penstock import App, StreamsBuilder

def shout(value):
    if value == "bad":
        raise ValueError("too quiet")
    return value.upper()

builder = StreamsBuilder()
builder.stream("{name}-in", value=str).map_values(shout).group_by_key().reduce(lambda old, new: new, store="last").to_stream().to(
    "{name}-out", value=str
)
app = App("{name}", builder.build())
if __name__ == "__main__":
    app.run({arguments})
"""


def write_app(directory: Path, name: str, arguments: str = "") -> Path:
    path = directory / f"{name}.py"
    path.write_text(ECHO.format(name=name, arguments=arguments), encoding="utf-8")
    return path


@contextmanager
def started(
    path: Path, broker: Broker, engine: Mapping[str, str] = LOCAL, /, program: Sequence[str] = (), **settings: str
) -> Iterator[subprocess.Popen[str]]:
    """An application that runs; `program` runs it if it is not Python."""
    own = {"PENSTOCK_BOOTSTRAP_SERVERS": broker.bootstrap_servers, "PENSTOCK_ADMIN_ADDRESS": "127.0.0.1:0"}
    parts = {"PENSTOCK_LANES": "2", "PENSTOCK_SHARDS": "8"}  # whatever partitions the topics have
    environment = {**os.environ, **own, **parts, **engine, **settings}
    with path.with_suffix(".log").open("a") as log:
        command = [*(program or [sys.executable]), str(path)]
        with subprocess.Popen(command, env=environment, cwd=path.parent, stdout=log, stderr=log, text=True) as process:
            try:
                yield process
            finally:
                process.kill()


def run(path: Path, broker: Broker, engine: Mapping[str, str] = LOCAL, /, **settings: str) -> tuple[int, str]:
    with started(path, broker, engine, **settings) as process:
        return finish(process, path)


def finish(process: subprocess.Popen[str], path: Path) -> tuple[int, str]:
    code = process.wait(START_S)
    return code, path.with_suffix(".log").read_text()


def lines_of(broker: Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in topics.read(broker.bootstrap_servers, topic)]


def test_the_readmes_app_counts_words(broker: Broker, tmp_path: Path) -> None:
    [source] = re.findall(r"```python\n# app\.py\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in source.splitlines() if line.strip()]) <= 20
    path = tmp_path / "app.py"
    path.write_text(source, encoding="utf-8")
    servers = broker.bootstrap_servers
    topics.create(servers, "lines", partitions=4)
    topics.create(servers, "counts", partitions=4)
    topics.produce(servers, "lines", [topics.Sent(key=b"%d" % i, value=b"to be or not to be") for i in range(50)])
    with started(path, broker, ON_SPARK) as process:
        wait_until("word counts", lambda: len(lines_of(broker, "counts")) >= 4, START_S)
        process.send_signal(signal.SIGTERM)
        code, log = finish(process, path)
    assert code == 0, log
    counted = {record.key: int.from_bytes(record.value or b"", "big") for record in topics.read(servers, "counts")}
    assert counted == {b"to": 100, b"be": 100, b"or": 50, b"not": 50}
    group = topics.describe_group(servers, "word-count")
    lags = [line.split()[5] for line in group.splitlines() if line.startswith("word-count")]
    assert lags == ["0"] * 4, group
    assert "word-count" not in topics.open_transactions(servers)


def test_a_bounded_run_stops_by_itself_and_a_second_one_finds_nothing_to_do(broker: Broker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    for topic in ("bounded-in", "bounded-out"):
        topics.create(servers, topic, partitions=2)
    topics.produce(
        servers, "bounded-in", [topics.Sent(key=b"k%d" % (i % 8), value=b"v%d" % i, partition=i % 2) for i in range(40)]
    )
    path = write_app(tmp_path, "bounded", 'until={("bounded-in", 0): 5, ("bounded-in", 1): 20}')
    code, log = run(path, broker)
    assert code == 0, log
    offsets = {place: offset for place, (offset, _) in topics.group_offsets(servers, "bounded").items()}
    assert offsets == {("bounded-in", 0): 5, ("bounded-in", 1): 20}
    write_app(tmp_path, "bounded", 'until="latest"')
    code, log = run(path, broker)
    assert code == 0, log
    before = len(lines_of(broker, "bounded-out"))
    code, log = run(path, broker)
    assert (code, len(lines_of(broker, "bounded-out"))) == (0, before), log
    last = {record.key: record.value for record in topics.read(servers, "bounded-out")}
    assert last == {b"k%d" % (i % 8): b"V%d" % i for i in range(40)}


def test_exit_codes_say_why(broker: Broker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    path = write_app(tmp_path, "codes")
    code, log = run(path, broker)
    assert code == 12, log
    assert "Topics do not exist: codes-in, codes-out" in log

    code, log = run(path, broker, PENSTOCK_LANES="many")
    assert code == 2, log

    for topic in ("codes-in", "codes-out"):
        topics.create(servers, topic)
    topics.produce(servers, "codes-in", [topics.Sent(key=b"a", value=b"good"), topics.Sent(key=b"a", value=b"bad")])
    code, log = run(path, broker)
    assert code == 10, log
    assert "too quiet" in log
    assert "codes-in-0 at offset 1" in log
    assert lines_of(broker, "codes-out") == []
    assert "codes" not in topics.open_transactions(servers)


def test_a_second_instance_fences_the_first(broker: Broker, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    for topic in ("twice-in", "twice-out"):
        topics.create(servers, topic)
    topics.produce(servers, "twice-in", [topics.Sent(key=b"a", value=b"1")])
    path = write_app(tmp_path, "twice")
    with started(path, broker, PENSTOCK_STATE_DIR=str(tmp_path / "one")) as first:
        wait_until("the first instance's result", lambda: lines_of(broker, "twice-out") == [b"1"], START_S)
        with started(path, broker, PENSTOCK_STATE_DIR=str(tmp_path / "two")) as second:
            number = 1
            deadline = time.monotonic() + START_S
            while first.poll() is None and time.monotonic() < deadline:
                number += 1
                topics.produce(servers, "twice-in", [topics.Sent(key=b"a", value=b"%d" % number)])
                time.sleep(0.5)
            assert first.poll() == 20, path.with_suffix(".log").read_text()
            wait_until("the second instance's results", lambda: lines_of(broker, "twice-out")[-1] == b"%d" % number, START_S)
            second.send_signal(signal.SIGTERM)
            assert second.wait(START_S) == 0
    seen = [int(value or b"0") for value in lines_of(broker, "twice-out")]
    assert seen == sorted(set(seen))
    assert "another instance" in path.with_suffix(".log").read_text().lower()
