"""`penstock dev` with a broker of its own: from a file of records to a query, through a change of the program."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen
from uuid import uuid4

import psutil
import pytest

from penstock import App, StreamsBuilder
from penstock.cli.dev.feeding import Prepared, prepare_brokers
from penstock.cli.samples.records import read_samples
from penstock.config import Config
from penstock.kafka.clients import reach_brokers
from penstock.kafka.topics import Topics
from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import KAFKA_JARS, free_port, wait_until

pytestmark = pytest.mark.jvm

APP = """
from penstock import App, StreamsBuilder

builder = StreamsBuilder()
words = builder.stream("lines", value=str).flat_map_values(str.split).group_by(lambda _, word: word)
words.count(store="words").to_stream().to("counts", value=int)
app = App("developed", builder.build())
"""


def count(port: int, word: str) -> int | None:
    try:
        with urlopen(f"http://127.0.0.1:{port}/stores/words/get?key={word}", timeout=5) as answer:
            return int(json.load(answer)["value"])
    except (URLError, OSError):
        return None


def test_from_a_file_to_a_query_through_a_change(tmp_path: Path) -> None:
    project, temporary, port = tmp_path / "project", tmp_path / "temporary", free_port()
    project.mkdir()
    temporary.mkdir()
    (project / "developed.py").write_text(APP)
    (project / "lines.jsonl").write_text('"to be or"\n"not to be"\n')
    command = [
        *(sys.executable, "-m", "penstock.cli", "dev", "developed.py", "--kafka", str(KAFKA_JARS)),
        *("--input", "lines=lines.jsonl", "--set", f"admin_address=127.0.0.1:{port}", "--set", "lanes=1"),
    ]
    log = tmp_path / "log"
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=project, env=environment, stdout=output, stderr=output)
    try:
        wait_until("the first count", lambda: count(port, "to") == 2, 90)
        assert "sent 2 records" in log.read_text()
        (project / "developed.py").write_text(APP.replace("str.split", "lambda line: line.upper().split()"))
        wait_until("the new start", lambda: log.read_text().count("admin server listening") == 2, 60)
        assert "developed.py changed: starting again" in log.read_text()
        wait_until("the count of before", lambda: count(port, "to") == 2, 60)
        assert count(port, "TO") is None  # samples are sent once
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
    finally:
        if process.poll() is None:
            children = psutil.Process(process.pid).children(recursive=True)
            for each in (process, *children):
                each.kill()
            process.wait()
    assert list(temporary.iterdir()) == []
    assert count(port, "to") is None


def test_topics_are_created_and_samples_sent_by_the_serdes_of_their_sources(broker: Broker, tmp_path: Path) -> None:
    name = f"dev-{uuid4().hex[:8]}"
    builder = StreamsBuilder()
    builder.stream(f"{name}-in", key=str, value=int).to(f"{name}-out", value=int)
    builder.stream(re.compile(f"{name}-logs-.*"), value=str).to(f"{name}-out", value=str)
    app = App(name, builder.build())
    (tmp_path / "in.jsonl").write_text('{"key": "k", "value": 7, "timestamp": 5000, "headers": {"a": "b"}}\n{"value": null}\n')
    (tmp_path / "logs.csv").write_text("value\nhello\n")
    inputs = [f"{name}-in={tmp_path / 'in.jsonl'}", f"{name}-logs-eu={tmp_path / 'logs.csv'}"]
    config = Config.load(environment={}, bootstrap_servers=broker.bootstrap_servers, topic_partitions=1)
    samples = read_samples(inputs, app.topology, now=9_000)
    created = [f"{name}-in", f"{name}-logs-eu", f"{name}-out"]
    assert prepare_brokers(app, config, samples) == Prepared(created, 3)
    found = Topics(reach_brokers(config), config.broker_timeout_ms).describe(created)
    assert {topic.config["retention.ms"] for topic in found.values()} == {"-1"}, "brokers would delete what has an old timestamp"
    first, second = topics.read(broker.bootstrap_servers, f"{name}-in")
    assert (first.key, first.value, first.timestamp) == (b"k", bytes(7) + b"\x07", 5_000)
    assert first.headers == (("a", b"b"),)
    assert (second.key, second.value) == (None, None)
    [line] = topics.read(broker.bootstrap_servers, f"{name}-logs-eu")
    assert (line.value, line.timestamp) == (b"hello", 9_000)
    assert prepare_brokers(app, config, samples).created == []
