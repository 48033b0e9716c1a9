"""A process killed at any moment leaves a lane at exactly one of its epochs; others read it while it is written."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.state import EngineFactory, EngineKind, LaneState
from tests.unit.state.homes import raw

pytestmark = pytest.mark.security(30)

FILES = pytest.mark.parametrize("kind", [EngineKind.LMDB, EngineKind.ROCKSDB])
KEYS = 400

# Writes the epoch's number under every key, adds a key for the epoch, and prints it after each commit.
WRITER = """
import sys
from penstock.state import EngineFactory, EngineKind, LaneState, StoreKind, StoreSpec
lane = LaneState(EngineFactory(EngineKind(sys.argv[1]), sys.argv[2]).open())
store = lane.store(StoreSpec("raw", StoreKind.RAW))
epochs = lane.registers.register("epochs", 0)
for epoch in range(lane.epoch + 1, int(sys.argv[3])):
    for key in range(int(sys.argv[4])):
        store.put(b"key-%06d" % key, b"%d" % epoch * 20)
    store.put(b"epoch-%06d" % epoch + b"x" * 600, b"1")
    epochs.value += 1
    lane.commit(epoch, committed=epoch - 3)
    sys.stdout.write(f"{epoch}\\n")
    sys.stdout.flush()
"""


def writer(factory: EngineFactory, epochs: int, keys: int = KEYS) -> subprocess.Popen[str]:
    arguments = [factory.kind.value, factory.directory or "", str(epochs), str(keys)]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", WRITER, *arguments], stdout=subprocess.PIPE, text=True, env=environment)


def check(lane: LaneState) -> None:
    store, epoch = lane.store(raw()), lane.epoch
    assert lane.registers.register("epochs", 0).value == epoch + 1
    content = dict(store.scan())
    marks = [b"epoch-%06d" % number + b"x" * 600 for number in range(epoch + 1)]
    assert sorted(content) == sorted([*marks, *(b"key-%06d" % key for key in range(KEYS) if epoch >= 0)])
    assert {content[key] for key in content if key.startswith(b"key-")} <= {b"%d" % epoch * 20}


@FILES
def test_a_killed_writer_leaves_a_whole_epoch(kind: EngineKind, tmp_path: Path) -> None:
    factory = EngineFactory(kind, str(tmp_path / "lane"))
    for attempt in range(3):
        process = writer(factory, epochs=10**6)
        assert process.stdout is not None
        said = int(process.stdout.readline())
        time.sleep(0.05 + 0.037 * attempt)
        process.kill()
        rest = process.stdout.read().split()
        process.stdout.close()
        process.wait()
        said = int(rest[-1]) if rest else said
        lane = LaneState(factory.open())
        assert lane.epoch in {said, said + 1}  # killed between the commit and the print
        check(lane)
        earliest = max(-1, lane.epoch - 3)
        assert lane.earliest == earliest
        while lane.epoch > earliest:
            lane.roll_back()
            check(lane)
        lane.verify()
        lane.close()


def test_lmdb_is_read_as_of_the_committed_epoch_while_another_process_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.state.engines.lmdb._SMALLEST_MAP", 1 << 20)
    factory = EngineFactory(EngineKind.LMDB, str(tmp_path / "lane"))
    first = writer(factory, epochs=2)
    first.communicate()
    engine = factory.open(read_only=True)
    process = writer(factory, epochs=60)
    seen = set()
    while process.poll() is None:
        engine.refresh()
        lane = LaneState(engine)
        for epoch in range(lane.earliest, lane.epoch + 1):
            view = lane.read_committed(epoch)
            check(view)
            seen.add(view.epoch)
    process.communicate()
    engine.refresh()
    check(LaneState(engine))
    engine.close()
    assert seen


def test_a_reader_follows_when_a_writer_grows_the_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    factory = EngineFactory(EngineKind.LMDB, str(tmp_path / "lane"))
    with monkeypatch.context() as small:
        small.setattr("penstock.state.engines.lmdb._SMALLEST_MAP", 1 << 17)
        owner = factory.open()
        owner.close()
        reader = factory.open(read_only=True)
    writer(factory, epochs=1, keys=20_000).communicate()
    reader.refresh()
    assert LaneState(reader).epoch == 0
    assert sum(1 for _ in reader.scan("raw", None, None)) == 20_001
    reader.close()
