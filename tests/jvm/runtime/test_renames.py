"""A store with another name has its content, on a real broker, wherever the start that copies it was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import App
from penstock.errors import IncompatibleTopologyError
from penstock.state import last_registers
from tests.jvm.runtime.cases import LocalCase, counts_and_windows
from verification.harness import topics
from verification.harness.broker import Broker

pytestmark = pytest.mark.jvm

NAMES, OTHERS = ("counts", "windows"), ("totals", "per-window")
FILE = """
from penstock import App
from tests.jvm.runtime.cases import counts_and_windows

app = App({id!r}, counts_and_windows("{id}-in", "{id}-out", "totals", "per-window", is_renamed=True))
"""


class Case(LocalCase):
    """Its stores have other names in the file."""

    def run(self, *, is_renamed: bool) -> None:
        names = OTHERS if is_renamed else NAMES
        topology = counts_and_windows(f"{self.id}-in", f"{self.id}-out", *names, is_renamed=is_renamed)
        self.run_to_the_end(App(self.id, topology))

    def registers(self) -> dict[str, int]:
        """All registers of the first shard that has any of a window store."""
        rows = topics.read(self.servers, f"{self.id}-lanes-changelog")
        found = [known for row in rows if (known := last_registers([row.key or b""], [row.value])) is not None]
        return next(known for known in reversed(found) if "windows/observed_stream_time" in known)


@pytest.mark.slow  # a start for each moment
def test_a_renamed_store_continues_wherever_the_start_was_killed(broker: Broker, tmp_path: Path) -> None:
    renamed, original = Case(broker, tmp_path, FILE), Case(broker, tmp_path, FILE)
    for case in (renamed, original):
        case.send(1, keys=11_000)
        case.send(11)
        case.run(is_renamed=False)
    for fault in ("renaming.begun", "renaming.chunk", "renaming.copied"):
        renamed.dies_at(fault, "run", "--until", "latest")
        with pytest.raises(IncompatibleTopologyError, match="being copied from 'counts', which is not complete"):
            renamed.run(is_renamed=False)
    registers = renamed.registers()
    assert registers["per-window/observed_stream_time"] == registers["windows/observed_stream_time"]
    for case in (renamed, original):
        case.send(5, 12, 21, 35)  # the first is too late for its window
        case.run(is_renamed=case is renamed)
        case.send(36)
        case.run(is_renamed=case is renamed)
    assert renamed.results() == original.results()
    assert (b"k0", (7).to_bytes(8, "big"), 36_000) in renamed.results()
