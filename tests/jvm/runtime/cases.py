"""Applications of a single test, small enough to start and stop in seconds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from penstock import App, Store, StreamsBuilder, Topology, tumbling, until_window_closes
from verification.harness import topics
from verification.harness.broker import Broker


def settings_of_a_case(servers: str, directory: Path) -> dict[str, Any]:
    """Two lanes over four shards, with files below `directory`, and no admin server.

    On the local engine, because a Spark context takes ten seconds to start: what is about Spark names it.
    """
    return {
        "bootstrap_servers": servers,
        "engine": "local",
        "lanes": 2,
        "shards": 4,
        "state_dir": directory / "state",
        "admin_address": "off",
    }


def counts_and_windows(
    source: str, out: str, counts: str = "counts", windows: str = "windows", *, is_renamed: bool = False
) -> Topology:
    """Counts, and windows that are held back until they are closed: their buffer and the stream time are state too.

    If the stores have other names, `is_renamed` says that they take over the content of those with these.
    """
    builder = StreamsBuilder()
    records = builder.stream(source, value=str).group_by_key()
    before = ("counts", "windows") if is_renamed else (None, None)
    kept, by_window = (Store(name, caching=False, renamed_from=old) for name, old in zip((counts, windows), before, strict=True))
    records.count(store=kept).to_stream().to(out, value=int)
    held = records.windowed_by(tumbling("10s", grace="0s")).count(store=by_window).suppress(until_window_closes()).to_stream()
    held.map(lambda at, count: (f"{at.key}@{at.start}", count)).to(out, key=str, value=int)
    return builder.build()


class LocalCase:
    """An application of its own, with `counts_and_windows`; `file` says how the command line gets it."""

    def __init__(self, broker: Broker, directory: Path, file: str) -> None:
        self.servers = broker.bootstrap_servers
        self.id = f"case-{uuid4().hex[:8]}"
        self.directory = directory
        self.source = directory / f"{self.id.replace('-', '_')}.py"
        self.source.write_text(file.format(id=self.id))
        for name in ("in", "out"):
            topics.create(self.servers, f"{self.id}-{name}", partitions=1)

    @property
    def settings(self) -> dict[str, Any]:
        return settings_of_a_case(self.servers, self.directory)

    def run_to_the_end(self, app: App) -> None:
        with app.start(until="latest", **self.settings) as running:
            assert running.wait(120)

    def send(self, *seconds: int, keys: int = 5) -> None:
        sent = [topics.Sent(key=b"k%d" % key, value=b"v", timestamp=1_000 * second) for second in seconds for key in range(keys)]
        topics.produce(self.servers, f"{self.id}-in", sent)

    def results(self, out: str = "out") -> list[tuple[bytes | None, bytes | None, int]]:
        return [(row.key, row.value, row.timestamp) for row in topics.read(self.servers, f"{self.id}-{out}")]

    def arguments(self, command: str, *more: str) -> list[str]:
        given = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        return [command, str(self.source), *more, *given]

    def dies_at(self, point: str, command: str, *more: str) -> None:
        """Call a command in a process of its own, which dies at a fault point."""
        faults = {"PENSTOCK_FAULT": f"{point}:1:kill", "PENSTOCK_FAULT_DIR": str(self.directory / "faults" / point)}
        called = [sys.executable, "-m", "penstock.cli", *self.arguments(command, *more)]
        assert subprocess.run(called, env={**os.environ, **faults}, check=False).returncode == -9
