"""`python -m verification.harness.archive PATH`: an archive of the classes that Spark's JVM loads for an application.

A JVM that starts from it has its first commit in little more than half the time, which is most of what tests and campaigns with
Spark wait for. The Makefile passes it on in SPARK_SUBMIT_OPTS; a JVM that cannot use it starts without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from verification.harness import topics
from verification.harness.broker import Broker
from verification.harness.processes import HarnessError

TIMEOUT_S = 600
APPLICATION = """
from penstock import App, StreamsBuilder

builder = StreamsBuilder()
words = builder.stream("lines", key=str, value=str).flat_map_values(str.split).group_by(lambda _, word: word, key=str)
words.count(store="counts").to_stream().to("words")
App("archive", builder.build()).run(until="latest")
"""


def make(path: Path) -> None:
    """Run an application that reads, shuffles and writes, and let its JVM write the archive when it ends."""
    with tempfile.TemporaryDirectory(prefix="archive-") as name, Broker() as broker:
        directory = Path(name)
        for topic in ("lines", "words"):
            topics.create(broker.bootstrap_servers, topic, partitions=4)
        lines = [topics.Sent(key=b"%d" % number, value=b"to be or not to be") for number in range(4_000)]
        topics.produce(broker.bootstrap_servers, "lines", lines)
        script = directory / "application.py"
        script.write_text(APPLICATION, encoding="utf-8")
        made = directory / "classes.jsa"
        own = {
            "PENSTOCK_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
            "PENSTOCK_STATE_DIR": str(directory / "state"),
            "PENSTOCK_ADMIN_ADDRESS": "127.0.0.1:0",
            "PENSTOCK_LANES": "2",
            "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={made}",
        }
        done = subprocess.run(
            [sys.executable, str(script)],
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0 or not made.exists():
            raise HarnessError(f"no archive; the application ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made.read_bytes())


if __name__ == "__main__":
    make(Path(sys.argv[1]))
