"""A driver with two forked slots, one of them busy; a test kills it. `python -m tests.unit.engines.driver DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.engines.forked.slots import ForkedSlots
from penstock.engines.one_host import OneHost
from penstock.epochs.program import Epoch
from tests.unit.engines.programs import Lists, installed, nothing, obedient
from tests.unit.epochs.application import Raw, keys_of_shards


def main(directory: Path) -> None:
    """Run an epoch on both slots that never ends on one of them."""
    program = installed(obedient(), directory / "state", 2)
    engine = OneHost(program, ForkedSlots(program, nothing, 2, lambda line: None), 60, "local", "forked processes")
    engine.start()
    keys = keys_of_shards(b"key")
    lists = Lists.of([Raw(keys[0], f"sleep {directory / 'busy'}".encode(), 5), Raw(keys[-1], b"count", 5)])
    epoch = Epoch(0, -1, 0, (("in", 0),), (-1,))
    engine.run(epoch, lists.records(epoch, {("in", 0): (0, 2)}), is_small=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
