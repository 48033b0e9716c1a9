"""A store with another name has its content, on a real broker, wherever the start that copies it was killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from penstock import App
from penstock.errors import IncompatibleTopologyError
from tests.jvm.runtime.cases import counts_and_windows, settings_of_a_case
from verification.harness import topics
from verification.harness.broker import Broker

pytestmark = pytest.mark.jvm

NAMES, OTHERS = ("counts", "windows"), ("totals", "per-window")
MODULE = """
from penstock import App
from tests.jvm.runtime.cases import counts_and_windows

app = App({id!r}, counts_and_windows("{id}-in", "{id}-out", "totals", "per-window", is_renamed=True))
"""


class Case:
    """An application of its own, on the local engine."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.servers = broker.bootstrap_servers
        self.id = f"renamed-{uuid4().hex[:8]}"
        self.directory = directory
        self.source = directory / f"{self.id.replace('-', '_')}.py"
        self.source.write_text(MODULE.format(id=self.id))
        for name in ("in", "out"):
            topics.create(self.servers, f"{self.id}-{name}", partitions=1)

    @property
    def settings(self) -> dict[str, Any]:
        return {**settings_of_a_case(self.servers, self.directory), "engine": "local"}

    def run(self, *, is_renamed: bool) -> None:
        names = OTHERS if is_renamed else NAMES
        topology = counts_and_windows(f"{self.id}-in", f"{self.id}-out", *names, is_renamed=is_renamed)
        with App(self.id, topology).start(until="latest", **self.settings) as running:
            assert running.wait(120)

    def run_killed_at(self, fault: str) -> None:
        settings = {**self.settings, "bootstrap_servers": self.servers}
        given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
        faults = {"PENSTOCK_FAULT": f"{fault}:1:kill", "PENSTOCK_FAULT_DIR": str(self.directory / "faults" / fault)}
        command = [sys.executable, "-m", "penstock.cli", "run", str(self.source), "--until", "latest", *given]
        assert subprocess.run(command, env={**os.environ, **faults}, check=False).returncode == -9

    def send(self, *seconds: int, keys: int = 5) -> None:
        sent = [topics.Sent(key=b"k%d" % key, value=b"v", timestamp=1_000 * second) for second in seconds for key in range(keys)]
        topics.produce(self.servers, f"{self.id}-in", sent)

    def results(self) -> list[tuple[bytes | None, bytes | None, int]]:
        return [(row.key, row.value, row.timestamp) for row in topics.read(self.servers, f"{self.id}-out")]


def test_a_renamed_store_continues_wherever_the_start_was_killed(broker: Broker, tmp_path: Path) -> None:
    renamed, original = Case(broker, tmp_path), Case(broker, tmp_path)
    for case in (renamed, original):
        case.send(1, keys=11_000)
        case.send(11)
        case.run(is_renamed=False)
    for fault in ("renaming.begun", "renaming.chunk", "renaming.copied"):
        renamed.run_killed_at(fault)
        with pytest.raises(IncompatibleTopologyError, match="being copied from 'counts', which is not complete"):
            renamed.run(is_renamed=False)
    for case in (renamed, original):
        case.send(5, 12, 21, 35)  # the first is too late for its window: the stream time has been taken over, too
        case.run(is_renamed=case is renamed)
        case.send(36)
        case.run(is_renamed=case is renamed)
    assert renamed.results() == original.results()
    assert (b"k0", (7).to_bytes(8, "big"), 36_000) in renamed.results()
