"""Batches that are small on the wire and large in memory: the application processes them, with dead letters for bad records."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer

from verification.harness import topics
from verification.harness.broker import Broker

pytestmark = [pytest.mark.jvm, pytest.mark.security(28)]

START_S = 180
SIZE, COUNT = 900_000, 100
MOST_BYTES = 2_500 << 20
APPLICATION = """
from penstock import App, StreamsBuilder, dead_letter

builder = StreamsBuilder()
builder.stream("bombs-CODEC", value=dict).map_values(len).to("fragments-CODEC", value=int)
app = App("sapper-CODEC", builder.build(), deserialization_errors=dead_letter("duds-CODEC"))
if __name__ == "__main__":
    app.run(until="latest", max_epoch_records=1000, spark={"spark.driver.memory": "1g"})
"""


def lay_bombs(servers: str, codec: str) -> None:
    """Write ninety megabytes in one batch, which is less than a tenth of a megabyte on the wire."""
    sizes = {"linger.ms": 500, "batch.size": 200_000_000, "message.max.bytes": 200_000_000}
    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, **sizes})
    for _ in range(COUNT):
        producer.produce(f"bombs-{codec}", b" " * SIZE, b"k")
        producer.poll(0)
    producer.produce(f"bombs-{codec}", b'{"a": ' * 200_000, b"deep")
    assert producer.flush(60) == 0


def watched(process: subprocess.Popen[bytes]) -> int:
    """Return the peak of the memory that the application's processes used together, in bytes."""
    most = 0

    def watch() -> None:
        nonlocal most
        while process.poll() is None:
            try:
                family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
                most = max(most, sum(member.memory_info().rss for member in family))
            except psutil.Error:
                continue
            time.sleep(0.1)

    watcher = threading.Thread(target=watch)
    watcher.start()
    process.wait(START_S)
    watcher.join()
    return most


@pytest.mark.parametrize("codec", ["zstd", "gzip"])
def test_a_compressed_bomb_does_not_exhaust_memory(broker: Broker, codec: str, tmp_path: Path) -> None:
    servers = broker.bootstrap_servers
    for topic in ("bombs", "fragments", "duds"):
        topics.create(servers, f"{topic}-{codec}")
    lay_bombs(servers, codec)
    path = tmp_path / "sapper.py"
    path.write_text(APPLICATION.replace("CODEC", codec))
    with (tmp_path / "log").open("wb") as log:
        environment = {**os.environ, "PENSTOCK_BOOTSTRAP_SERVERS": servers, "PENSTOCK_LANES": "1"}
        process = subprocess.Popen([sys.executable, str(path)], cwd=tmp_path, env=environment, stdout=log, stderr=log)
        most = watched(process)
    assert process.returncode == 0, (tmp_path / "log").read_text()[-4000:]
    assert len(topics.read(servers, f"duds-{codec}")) == COUNT + 1
    assert most < MOST_BYTES
